"""PPO on CartPole with nothing to choose about the optimizer, for many seeds at once.

    python -m examples.ppo_cartpole                  # 2.5 minutes
    python -m examples.ppo_cartpole --steps 50000    # a quarter of the steps

Needs the extra ``rl`` (gymnax). Measured on one core of a busy x86-64 CPU, no GPU; mean return
(worst) of 8 seeds after 200,000 steps of the environment each, of at most 500:

                               while training     params       kept policy
    mu2_auto()                 476 (393)          500 (500)    500 (500)
    clipped mu2_auto()         490 (444)          500 (500)    500 (500)
    clipped adam, 2.5e-4 to 0  375 (241)          477 (382)    477 (382)
    adam(1e-3)                 452 (404)          500 (500)    500 (500)

This is the PPO of PureJaxRL: environment, rollouts, minibatches and updates are one ``lax.scan``,
vmapped over seeds. The optimizer is one line, ``mu2_optax.mu2_auto()``. Rollouts and gradients are
at the params, as with any optimizer; ``mu2_optax.linen.eval_state`` gives the policy to keep.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnax
import jax
import jax.numpy as jnp
import optax
from flax import linen
from flax.training.train_state import TrainState

import mu2_optax
import mu2_optax.linen
from examples.option_types import positive_int

ENVS, ROLLOUT = 4, 128
EPOCHS, MINIBATCHES = 4, 4
DISCOUNT, GAE, CLIP, ENTROPY, VALUE = 0.99, 0.95, 0.2, 0.01, 0.5
EPISODE = 500  # steps, at most

ENV, ENV_PARAMS = gymnax.make("CartPole-v1")


class ActorCritic(linen.Module):
    """Logits of the two actions and a value, each from 64 – tanh – 64 – tanh."""

    @linen.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The logits and the value of observations."""
        dense = lambda size, gain: linen.Dense(
            size, kernel_init=linen.initializers.orthogonal(gain)
        )
        actor = critic = x
        for _ in range(2):
            actor = linen.tanh(dense(64, 2**0.5)(actor))
            critic = linen.tanh(dense(64, 2**0.5)(critic))
        return dense(2, 0.01)(actor), dense(1, 1.0)(critic)[..., 0]


class Transition(NamedTuple):
    """One step of every environment."""

    done: jax.Array
    action: jax.Array
    value: jax.Array
    reward: jax.Array
    log_prob: jax.Array
    obs: jax.Array


def chosen(log_probs: jax.Array, action: jax.Array) -> jax.Array:
    return jnp.take_along_axis(log_probs, action[..., None], axis=-1)[..., 0]


def rollout(train_state: TrainState, carry: Any) -> tuple[Any, tuple[Transition, Any]]:
    """Steps of all environments with the present policy, and the lengths of ended episodes."""

    def step(carry: Any, _: None) -> tuple[Any, Any]:
        obs, env_state, lengths, key = carry
        key, action_key, step_key = jax.random.split(key, 3)
        logits, value = train_state.apply_fn(train_state.params, obs)
        action = jax.random.categorical(action_key, logits)
        log_prob = chosen(jax.nn.log_softmax(logits), action)
        keys = jax.random.split(step_key, ENVS)
        step_all = jax.vmap(ENV.step, in_axes=(0, 0, 0, None))
        after, env_state, reward, ended, cut, _ = step_all(keys, env_state, action, ENV_PARAMS)
        done = ended | cut
        lengths = lengths + 1
        taken = Transition(done, action, value, reward, log_prob, obs)
        return (after, env_state, lengths * ~done, key), (taken, (done, lengths))

    return jax.lax.scan(step, carry, None, ROLLOUT)


def advantages(batch: Transition, last_value: jax.Array) -> jax.Array:
    """Generalized advantage estimation, backwards in time."""

    def step(carry: Any, taken: Transition) -> tuple[Any, jax.Array]:
        gae, next_value = carry
        delta = taken.reward + DISCOUNT * next_value * ~taken.done - taken.value
        gae = delta + DISCOUNT * GAE * ~taken.done * gae
        return (gae, taken.value), gae

    start = (jnp.zeros_like(last_value), last_value)
    return jax.lax.scan(step, start, batch, reverse=True)[1]


def loss_fn(params: Any, apply_fn: Callable[..., Any], batch: Transition, gae: jax.Array) -> Any:
    """PPO's loss: the clipped policy, the clipped value, the entropy."""
    logits, value = apply_fn(params, batch.obs)
    log_probs = jax.nn.log_softmax(logits)
    ratio = jnp.exp(chosen(log_probs, batch.action) - batch.log_prob)
    target = batch.value + gae
    near = batch.value + jnp.clip(value - batch.value, -CLIP, CLIP)
    of_value = jnp.maximum((value - target) ** 2, (near - target) ** 2).mean() / 2
    gae = (gae - gae.mean()) / (gae.std() + 1e-8)
    of_policy = -jnp.minimum(ratio * gae, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gae).mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    return of_policy + VALUE * of_value - ENTROPY * entropy


def update(train_state: TrainState, carry: Any) -> tuple[TrainState, Any, jax.Array]:
    """A rollout and its epochs; also the mean return of the episodes that ended in it."""
    carry, (batch, (done, lengths)) = rollout(train_state, carry)
    obs, env_state, steps, key = carry
    _, last_value = train_state.apply_fn(train_state.params, obs)
    data = (batch, advantages(batch, last_value))
    flat = jax.tree.map(lambda a: a.reshape(ENVS * ROLLOUT, *a.shape[2:]), data)

    def minibatch(train_state: TrainState, rows: jax.Array) -> tuple[TrainState, None]:
        some = jax.tree.map(lambda a: a[rows], flat)
        grads = jax.grad(loss_fn)(train_state.params, train_state.apply_fn, *some)
        return train_state.apply_gradients(grads=grads), None

    def epoch(train_state: TrainState, key: jax.Array) -> tuple[TrainState, None]:
        rows = jax.random.permutation(key, ENVS * ROLLOUT).reshape(MINIBATCHES, -1)
        return jax.lax.scan(minibatch, train_state, rows)

    key, epochs_key = jax.random.split(key)
    train_state, _ = jax.lax.scan(epoch, train_state, jax.random.split(epochs_key, EPOCHS))
    mean = jnp.sum(lengths * done) / jnp.maximum(done.sum(), 1)
    returned = jnp.where(done.any(), mean, jnp.nan)
    return train_state, (obs, env_state, steps, key), returned


def evaluate(train_state: TrainState, key: jax.Array, episodes: int = 16) -> jax.Array:
    """The mean return of whole episodes with the likeliest actions."""

    def episode(key: jax.Array) -> jax.Array:
        def step(carry: Any, key: jax.Array) -> tuple[Any, jax.Array]:
            obs, env_state, alive = carry
            logits, _ = train_state.apply_fn(train_state.params, obs)
            obs, env_state, _, ended, _, _ = ENV.step(key, env_state, logits.argmax(), ENV_PARAMS)
            return (obs, env_state, alive & ~ended), alive

        keys = jax.random.split(key, EPISODE + 1)
        start = (*ENV.reset(keys[0], ENV_PARAMS), True)
        return jax.lax.scan(step, start, keys[1:])[1].sum()

    return jax.vmap(episode)(jax.random.split(key, episodes)).mean()


def train(tx: optax.GradientTransformation, updates: int, key: jax.Array) -> dict[str, jax.Array]:
    """One seed, from the first params to the evaluated policy."""
    network = ActorCritic()
    key, init_key, reset_key, test_key = jax.random.split(key, 4)
    params = network.init(init_key, jnp.zeros(4))
    train_state = TrainState.create(apply_fn=network.apply, params=params, tx=tx)
    resets = jax.random.split(reset_key, ENVS)
    obs, env_state = jax.vmap(ENV.reset, in_axes=(0, None))(resets, ENV_PARAMS)
    start = (train_state, (obs, env_state, jnp.zeros(ENVS, int), key))

    def step(carry: Any, _: None) -> tuple[Any, jax.Array]:
        *carry, returned = update(*carry)
        return tuple(carry), returned

    (train_state, _), returns = jax.lax.scan(step, start, None, updates)
    try:
        kept = mu2_optax.linen.eval_state(train_state)
        rate = mu2_optax.found_rate(train_state)
    except ValueError:  # of an optimizer that averages nothing
        kept, rate = train_state, jnp.nan
    return {
        "training": jnp.nanmean(returns[-updates // 10 :]),
        "params": evaluate(train_state, test_key),
        "kept": evaluate(kept, test_key),
        "rate": jnp.asarray(rate),
    }


def optimizers(updates: int) -> dict[str, optax.GradientTransformation]:
    """The one line, and what PureJaxRL has in its place."""
    steps = updates * EPOCHS * MINIBATCHES
    annealed = optax.adam(optax.linear_schedule(2.5e-4, 0.0, steps), eps=1e-5)
    return {
        "mu2_auto()": mu2_optax.mu2_auto(),
        "clipped mu2_auto()": optax.chain(optax.clip_by_global_norm(0.5), mu2_optax.mu2_auto()),
        "clipped adam, 2.5e-4 to 0": optax.chain(optax.clip_by_global_norm(0.5), annealed),
        "adam(1e-3)": optax.adam(1e-3),
    }


def parse_arguments() -> argparse.Namespace:
    """The command line; nothing of it concerns the optimizer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    shown: dict[str, Any] = {"type": positive_int, "metavar": "N", "help": "default: %(default)s"}
    parser.add_argument("--steps", default=200_000, **shown)
    parser.add_argument("--seeds", default=8, **shown)
    return parser.parse_args()


def main() -> None:
    """Trains every optimizer for all seeds, and prints a table."""
    args = parse_arguments()
    updates = -(-args.steps // (ENVS * ROLLOUT))
    keys = jax.random.split(jax.random.key(0), args.seeds)
    print(f"mean return of {args.seeds} seeds (worst seed)")
    print(f"{'':26} {'while training':>16} {'params':>14} {'kept policy':>14}  rate found")
    for name, tx in optimizers(updates).items():
        begin = time.perf_counter()
        run = jax.jit(jax.vmap(functools.partial(train, tx, updates)))
        found = jax.block_until_ready(run(keys))
        training, params, kept = (
            f"{found[key].mean():.0f} ({found[key].min():.0f})"
            for key in ("training", "params", "kept")
        )
        rate = float(jnp.median(found["rate"]))
        seconds = time.perf_counter() - begin
        shown = "" if jnp.isnan(rate) else f"{rate:.2g}"
        print(f"{name:26} {training:>16} {params:>14} {kept:>14}  {shown:10} ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
