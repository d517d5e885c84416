"""A small network whose runs with ``mu2_auto`` are compared, and the plain loop to compare with."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax

STEPS, BATCH = 30, 16
RNG = np.random.default_rng(0)
normal = lambda *shape: RNG.normal(size=shape).astype(np.float32)
FEATURES = normal(STEPS, BATCH, 3)
TARGETS = np.sin(FEATURES.sum(-1, keepdims=True)) + np.float32(0.1) * normal(STEPS, BATCH, 1)
START = jax.tree.map(
    jnp.asarray,
    {
        "body": {"kernel": normal(3, 8), "bias": np.zeros(8, np.float32)},
        "head": {"kernel": normal(8, 1) / 3, "bias": np.zeros(1, np.float32)},
    },
)


def apply(params, features):
    hidden = jnp.tanh(features @ params["body"]["kernel"] + params["body"]["bias"])
    return hidden @ params["head"]["kernel"] + params["head"]["bias"]


def loss_fn(params, batch):
    features, targets = batch
    return jnp.mean((apply(params, features) - targets) ** 2)


def batches(steps=STEPS):
    return [(FEATURES[i], TARGETS[i]) for i in range(steps)]


gradient = jax.grad(loss_fn)


average = jax.jit(mu2_optax.eval_params)


@functools.cache
def jitted_step(tx, grad_fn):
    @jax.jit
    def step(params, state, batch):
        updates, state = tx.update(grad_fn(params, batch), state, params)
        return optax.apply_updates(params, updates), state

    return step


def train(tx, start=START, data=None, grad_fn=None, every=None):
    """The plain loop of Optax; returns the params and the state after the last step.

    Args:
      tx: The optimizer.
      start: The first params.
      data: The batches.
      grad_fn: Of (params, batch), in the place of the gradient of the loss.
      every: Called with the params and the state after each step.
    """
    step = jitted_step(tx, grad_fn or gradient)
    params, state = start, tx.init(start)
    for batch in batches() if data is None else data:
        params, state = step(params, state, batch)
        if every:
            every(params, state)
    return params, state


def iterate(params, state, ahead=0.3):
    """w, which follows from x and the params."""
    return jax.tree.map(lambda y, x: x + (y - x) / ahead, params, state.x)


AUTO = mu2_optax.mu2_auto()


def plain(**options):
    """The loop with ``mu2_auto``, compiled once."""
    return train(AUTO, **options)


def assert_same(tree, other, atol=1e-4):
    """Equal to what fusing in another order leaves after some steps; the leaves in their order."""
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    for a, b in pairs:
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol=0, atol=atol)


def apart(tree, other):
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    return max(float(np.max(np.abs(np.asarray(a) - np.asarray(b)))) for a, b in pairs)
