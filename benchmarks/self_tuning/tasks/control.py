"""Proximal policy optimization (PPO), all of it compiled, in the manner of PureJaxRL.

Every step of the optimizer is one minibatch. Before the first of each round, all environments run
for some time with the present params; four passes over what was seen follow. What is measured is
the mean return of whole episodes with the params that are evaluated.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.self_tuning.task import apply_layers, layers
from benchmarks.training import Functions

ENVIRONMENTS, LENGTH, MINIBATCHES, PASSES = 16, 64, 4, 4
DISCOUNT, TRACE, CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.99, 0.95, 0.2, 0.5, 0.01
EPISODES, LIMIT = 32, 500


class Environment(NamedTuple):
    """An environment with states as vectors.

    Attributes:
      start: From a key to a first state.
      step: From (state, action) to the next state, the reward, and whether the episode ends.
      observe: From a state to what the policy sees.
      sizes: How many numbers it sees, and between how many actions it chooses.
      scale: Of the rewards that it learns from.
    """

    start: Callable[[Any], Any]
    step: Callable[[Any, Any], tuple[Any, Any, Any]]
    observe: Callable[[Any], Any]
    sizes: tuple[int, int]
    scale: float


def cartpole() -> Environment:
    """Balances a pole on a cart for up to 500 steps, as Gym's CartPole-v1."""

    def step(state: Any, action: Any) -> tuple[Any, Any, Any]:
        _, speed, angle, turn = state
        force = 20.0 * action - 10
        push = (force + 0.05 * turn**2 * jnp.sin(angle)) / 1.1
        bend = (9.8 * jnp.sin(angle) - jnp.cos(angle) * push) / (
            0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1)
        )
        pull = push - 0.05 * bend * jnp.cos(angle) / 1.1
        change = jnp.stack([speed, pull, turn, bend])
        state = state + 0.02 * change
        return state, 1.0, (jnp.abs(state[0]) > 2.4) | (jnp.abs(state[2]) > 12 * jnp.pi / 180)

    start = lambda key: jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
    return Environment(start, step, lambda state: state, (4, 2), 0.1)


def acrobot() -> Environment:
    """Swings the end of two links up in as few steps as possible, as Gym's Acrobot-v1."""

    def change(state: Any, torque: Any) -> Any:
        a, b, da, db = state
        d1 = 3.5 + jnp.cos(b)
        d2 = 1.25 + 0.5 * jnp.cos(b)
        phi2 = 4.9 * jnp.cos(a + b - jnp.pi / 2)
        phi1 = -0.5 * db * (db + 2 * da) * jnp.sin(b) + 14.7 * jnp.cos(a - jnp.pi / 2) + phi2
        ddb = (torque + d2 / d1 * phi1 - 0.5 * da**2 * jnp.sin(b) - phi2) / (1.25 - d2**2 / d1)
        return jnp.stack([da, db, -(d2 * ddb + phi1) / d1, ddb])

    def step(state: Any, action: Any) -> tuple[Any, Any, Any]:
        torque = action - 1.0
        k1 = change(state, torque)
        k2 = change(state + 0.1 * k1, torque)
        k3 = change(state + 0.1 * k2, torque)
        k4 = change(state + 0.2 * k3, torque)
        state = state + 0.2 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        angles = (state[:2] + jnp.pi) % (2 * jnp.pi) - jnp.pi
        limits = jnp.pi * jnp.array([4.0, 9.0])
        state = jnp.concatenate([angles, jnp.clip(state[2:], -limits, limits)])
        done = -jnp.cos(angles[0]) - jnp.cos(angles[0] + angles[1]) > 1
        return state, jnp.where(done, 0.0, -1.0), done

    def observe(state: Any) -> Any:
        a, b, da, db = state
        return jnp.stack([jnp.cos(a), jnp.sin(a), jnp.cos(b), jnp.sin(b), da / 4, db / 9])

    start = lambda key: jax.random.uniform(key, (4,), minval=-0.1, maxval=0.1)
    return Environment(start, step, observe, (6, 3), 0.1)


def load() -> Any:
    """The seeds of the episodes to measure with."""
    return {"validation": np.uint32(1), "test": np.uint32(2)}


def ppo(data: Any, env: Environment) -> Functions:
    """PPO with two dense networks for policy and value."""
    seen_size, actions = env.sizes

    def init(key: Any) -> Any:
        keys = jax.random.split(key)
        params = {
            "policy": layers(keys[0], (seen_size, 64, 64, actions)),
            "value": layers(keys[1], (seen_size, 64, 64, 1)),
        }
        params["policy"][-1]["w"] *= 0.01
        return params

    def network(params: Any, x: Any) -> Any:
        return apply_layers(params, x, jnp.tanh)

    def act(params: Any, states: Any, key: Any) -> tuple[Any, Any, Any]:
        seen = jax.vmap(env.observe)(states)
        logits = jax.nn.log_softmax(network(params["policy"], seen))
        action = jax.random.categorical(key, logits)
        return seen, action, jnp.take_along_axis(logits, action[:, None], 1)[:, 0]

    def moved(states: Any, ages: Any, action: Any, key: Any) -> tuple[Any, ...]:
        """One step of all environments; one that ends or is too old starts anew."""
        after, reward, done = jax.vmap(env.step)(states, action)
        ages = ages + 1
        over = done | (ages >= LIMIT)
        fresh = jax.vmap(env.start)(jax.random.split(key, len(states)))
        states = jnp.where(over[:, None], fresh, after)
        return states, jnp.where(over, 0, ages), reward, over

    def rollout(params: Any, states: Any, ages: Any, key: Any) -> tuple[Any, Any, Any]:
        def step(carry: Any, key: Any) -> tuple[Any, Any]:
            states, ages = carry
            act_key, start_key = jax.random.split(key)
            seen, action, log_p = act(params, states, act_key)
            states, ages, reward, over = moved(states, ages, action, start_key)
            value = network(params["value"], seen)[..., 0]
            return (states, ages), (seen, action, log_p, value, env.scale * reward, over)

        (states, ages), steps = jax.lax.scan(step, (states, ages), jax.random.split(key, LENGTH))
        seen, action, log_p, value, reward, over = steps
        last = network(params["value"], jax.vmap(env.observe)(states))[..., 0]

        def back(carry: Any, of_step: Any) -> tuple[Any, Any]:
            advantage, next_value = carry
            value, reward, over = of_step
            surprise = reward + DISCOUNT * next_value * (1 - over) - value
            advantage = surprise + DISCOUNT * TRACE * (1 - over) * advantage
            return (advantage, value), advantage

        start = (jnp.zeros(ENVIRONMENTS), last)
        _, advantage = jax.lax.scan(back, start, (value, reward, over), reverse=True)
        found = (seen, action, log_p, advantage, advantage + value)
        return states, ages, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), found)

    def world(key: Any) -> Any:
        count = ENVIRONMENTS * LENGTH
        numbers = lambda *shape: jnp.zeros((count, *shape))
        empty = (numbers(seen_size), jnp.zeros(count, jnp.int32), numbers(), numbers(), numbers())
        states = jax.vmap(env.start)(jax.random.split(key, ENVIRONMENTS))
        return states, jnp.zeros(ENVIRONMENTS, jnp.int32), empty

    def draw(key: Any, steps: int) -> Any:
        """The place in a round, the round's key, and the rows of the minibatch."""
        rounds = -(-steps // (MINIBATCHES * PASSES))
        keys = jax.random.split(key, (rounds, 1 + PASSES))
        order = jax.vmap(lambda k: jax.random.permutation(k, ENVIRONMENTS * LENGTH))
        rows = order(keys[:, 1:].reshape(-1)).reshape(rounds * PASSES * MINIBATCHES, -1)
        number = jnp.arange(steps)
        return (
            number % (MINIBATCHES * PASSES),
            keys[number // (MINIBATCHES * PASSES), 0],
            rows[:steps],
        )

    def collect(world: Any, params: Any, row: Any) -> tuple[Any, Any]:
        place, key, rows = row
        fresh = lambda: rollout(params, world[0], world[1], key)
        world = jax.lax.cond(place == 0, fresh, lambda: world)
        return tuple(a[rows] for a in world[2]), world

    def loss(params: Any, batch: Any) -> Any:
        seen, action, old_log_p, advantage, wanted = batch
        logits = jax.nn.log_softmax(network(params["policy"], seen))
        log_p = jnp.take_along_axis(logits, action[:, None], 1)[:, 0]
        ratio = jnp.exp(log_p - old_log_p)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
        gain = jnp.minimum(ratio * advantage, clipped * advantage).mean()
        error = 0.5 * ((network(params["value"], seen)[..., 0] - wanted) ** 2).mean()
        entropy = -(jnp.exp(logits) * logits).sum(-1).mean()
        return VALUE_WEIGHT * error - gain - ENTROPY_WEIGHT * entropy

    def measure(params: Any, rows: Any, part: str) -> Any:
        del rows
        key = jax.random.key(data[part])
        start_key, key = jax.random.split(key)
        states = jax.vmap(env.start)(jax.random.split(start_key, EPISODES))

        def step(carry: Any, key: Any) -> tuple[Any, None]:
            states, alive, total = carry
            _, action, _ = act(params, states, key)
            states, reward, done = jax.vmap(env.step)(states, action)
            return (states, alive & ~done, total + alive * reward), None

        alive = jnp.ones(EPISODES, bool)
        carry = (states, alive, jnp.zeros(EPISODES))
        (_, _, total), _ = jax.lax.scan(step, carry, jax.random.split(key, LIMIT))
        sound = jnp.isfinite(network(params["policy"], jnp.ones(seen_size))).all()
        return jnp.where(sound, total.mean(), jnp.nan)

    return Functions(init, draw, None, loss, measure, world, collect)
