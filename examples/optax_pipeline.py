"""A tour of μ² in Optax pipelines; each function can be pasted into a project.

    python -m examples.optax_pipeline        # 11 s, no download

Every part trains a small network on scikit-learn's digits and prints its test accuracy. Measured on
a 2-core x86-64 CPU, no GPU:

    plain                        test accuracy 0.9861
    clipping_and_weight_decay    test accuracy 0.9805
    with_a_schedule              test accuracy 0.9777
    around_adamw                 test accuracy 0.9805
    frozen_layers                test accuracy 0.9554
    gradient_accumulation        test accuracy 0.9861
    early_stopping               test accuracy 0.9666, after 174 of 440 steps
"""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from examples import data as datasets
from examples.option_types import positive_int
from mu2_optax import stopping

BATCH = 64


def init_params(seed=0):
    """A network with one hidden layer."""
    rng = np.random.default_rng(seed)
    layer = lambda n, m: {
        "w": jnp.asarray(rng.normal(size=(n, m)) * (2 / n) ** 0.5, jnp.float32),
        "b": jnp.zeros(m),
    }
    return {"hidden": layer(64, 100), "out": layer(100, 10)}


def logits_of(params, images):
    """The network."""
    hidden = jax.nn.relu(images @ params["hidden"]["w"] + params["hidden"]["b"])
    return hidden @ params["out"]["w"] + params["out"]["b"]


def loss_fn(params, batch):
    """Mean cross-entropy."""
    images, labels = batch
    losses = optax.softmax_cross_entropy_with_integer_labels(logits_of(params, images), labels)
    return losses.mean()


def train(tx, batches, params=None, accumulate=False):
    """The one training loop: any optimizer of the library, or of Optax, goes in."""
    params = init_params() if params is None else params
    tx = optax.with_extra_args_support(tx)
    state = tx.init(params)
    evaluate = mu2_optax.value_and_grad(loss_fn, accumulate=accumulate)

    @jax.jit
    def step(params, state, batch):
        _, grads, again = evaluate(params, batch)
        updates, state = tx.update(grads, state, params, **again)
        return optax.apply_updates(params, updates), state

    for batch in batches:
        params, state = step(params, state, batch)
    return params


def plain(batches):
    """μ²-SGD as it is."""
    return train(mu2_optax.mu2_sgd(0.3), batches)


def clipping_and_weight_decay(batches):
    """Clip after the corrected momentum, never before it; decay where the step is made.

    The corrected momentum subtracts the gradient at the previous point from an estimate that was
    made of gradients; if only one of the two were clipped or decayed, their difference would be
    wrong.
    """
    tx = optax.chain(
        mu2_optax.corrected_momentum(0.9),
        optax.clip_by_global_norm(1.0),
        mu2_optax.anytime(optax.chain(optax.add_decayed_weights(1e-3), optax.sgd(0.3)), gamma=0.1),
    )
    return train(tx, batches)


def with_a_schedule(batches):
    """Any Optax schedule for the learning rate."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 0.5, 20, max(len(batches), 21))
    return train(mu2_optax.mu2_sgd(schedule), batches)


def around_adamw(batches):
    """Double momentum around AdamW, without AdamW's own momentum: averaging takes its place."""
    return train(mu2_optax.mu2_adam(3e-3, weight_decay=1e-3), batches)


def frozen_layers(batches):
    """``partition`` goes inside, where the step is made; the estimate is of the whole gradient."""
    labels = {"hidden": "frozen", "out": "trained"}
    step = optax.partition({"trained": optax.sgd(0.3), "frozen": optax.set_to_zero()}, labels)
    start = init_params()
    params = train(mu2_optax.mu2(step), batches, start)
    same = jax.tree.map(lambda a, b: bool((a == b).all()), start["hidden"], params["hidden"])
    assert all(jax.tree.leaves(same)), "the frozen layer has moved"
    return params


def gradient_accumulation(batches):
    """Four microbatches a step, with memory for one; both evaluations accumulate.

    ``optax.MultiSteps`` cannot do this: it would show ``grad_fn`` the last microbatch only.
    """
    micro = [jax.tree.map(lambda a: a.reshape(4, -1, *a.shape[1:]), batch) for batch in batches]
    return train(mu2_optax.mu2_sgd(0.3), micro, accumulate=True)


def early_stopping(batches):
    """Stops when the norm of the estimate d is small; a stochastic gradient's norm never is."""
    ball = mu2_optax.onto_l2_ball(10.0, center=init_params())
    tx = mu2_optax.mu2_sgd(0.3, mu2_optax.linear_momentum(), projection=ball)
    evaluate = mu2_optax.value_and_grad(loss_fn)

    def step(params, state, batch):
        _, grads, again = evaluate(params, batch)
        updates, state = tx.update(grads, state, params, **again)
        return optax.apply_updates(params, updates), state

    params = init_params()
    stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *batches)
    result = stopping.run_until(
        step, params, tx.init(params), stacked, tolerance=0.1, max_steps=len(batches), patience=5
    )
    reason = stopping.StopReason(int(result.reason)).name
    print(f"  stopped after {int(result.steps)} of {len(batches)} steps: {reason}")
    return result.params


PARTS = (
    plain,
    clipping_and_weight_decay,
    with_a_schedule,
    around_adamw,
    frozen_layers,
    gradient_accumulation,
    early_stopping,
)


def main():
    """Runs every part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--steps", type=positive_int, default=440, metavar="N", help="default: %(default)s"
    )
    args = parser.parse_args()
    data = datasets.load("digits")
    train_x, test_x = (jnp.asarray(x.reshape(len(x), -1)) for x in (data.train_x, data.test_x))
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, len(train_x), BATCH) for _ in range(args.steps)]
    batches = [(train_x[row], jnp.asarray(data.train_y[row])) for row in rows]
    start = time.perf_counter()
    for part in PARTS:
        params = part(batches)
        accuracy = (logits_of(params, test_x).argmax(axis=-1) == data.test_y).mean()
        print(f"{part.__name__:28} test accuracy {accuracy:.4f}")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
