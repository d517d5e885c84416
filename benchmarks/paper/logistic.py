"""Logistic regression over a grid of learning rates and seeds, in one compiled call per seed."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax
from optimizers import evaluation_params, make_optimizer

import mu2_optax
from mu2_optax.sweep import SweepResult, sweep
from mu2_optax.sweep.data import Data

BATCH = 64
PROJECTIONS = {
    "per_tensor": mu2_optax.per_tensor(mu2_optax.onto_l2_ball(1.0)),
    "global": mu2_optax.onto_l2_ball(1.0),
    "none": None,
}


def describe(projection: str) -> str:
    """A projection in words, for titles."""
    return {
        "per_tensor": "each tensor in its unit ball",
        "global": "the whole vector in the unit ball",
        "none": "not constrained",
    }[projection]


def run(
    data: Data,
    optimizer: str,
    projection: str,
    rates: tuple[float, ...],
    seeds: int,
    *,
    steps: int,
    evaluations: int = 1,
    resume: Path | None = None,
) -> SweepResult:
    """Trains for every rate and seed.

    The weights start as PyTorch's ``nn.Linear`` does, at uniform numbers of size up to 1/√inputs,
    as in the paper's experiments, projected onto the set.

    Args:
      data: The data set.
      optimizer: The optimizer's name.
      projection: ``"per_tensor"``, ``"global"`` or ``"none"``.
      rates: The learning rates.
      seeds: How many seeds; a seed gives the weights and the order of the images.
      steps: Steps of batch 64.
      evaluations: How often to evaluate on the test images, evenly spaced and at the end; it
        divides ``steps``.
      resume: A file that records what has finished.

    Returns:
      A result with the metrics ``test_accuracy`` and ``test_loss``, with a leading value before the
      first step, and then one value per evaluation.
    """
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    train_x, test_x = (x.reshape(len(x), -1) for x in (train_x, test_x))
    count, inputs = train_x.shape
    project = PROJECTIONS[projection]
    momentum = mu2_optax.linear_momentum()
    epochs = -(-steps * BATCH // count)

    def loss_fn(params: Any, batch: Any) -> Any:
        logits = batch[0] @ params["w"] + params["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    grad_fn = jax.grad(loss_fn)

    def measure(params: Any) -> dict[str, Any]:
        logits = test_x @ params["w"] + params["b"]
        hits = (logits.argmax(axis=-1) == test_y).mean()
        return {
            "test_accuracy": jnp.where(jnp.isfinite(logits).all(), hits, jnp.nan),
            "test_loss": loss_fn(params, (test_x, test_y)),
        }

    def train(learning_rate: Any, key: Any) -> dict[str, Any]:
        tx = make_optimizer(optimizer, learning_rate, momentum, project)
        w_key, b_key, order_key = jax.random.split(key, 3)
        bound = inputs**-0.5
        params = {
            "w": jax.random.uniform(w_key, (inputs, 10), minval=-bound, maxval=bound),
            "b": jax.random.uniform(b_key, (10,), minval=-bound, maxval=bound),
        }
        params = project(params) if project else params
        orders = jax.vmap(lambda k: jax.random.permutation(k, count))(
            jax.random.split(order_key, epochs)
        )
        rows = orders.reshape(-1)[: steps * BATCH].reshape(evaluations, -1, BATCH)

        def step(carry: Any, rows: Any) -> tuple[Any, None]:
            params, state = carry
            batch = (train_x[rows], train_y[rows])
            grads = grad_fn(params, batch)
            updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
            return (optax.apply_updates(params, updates), state), None

        def stretch(carry: Any, rows: Any) -> tuple[Any, Any]:
            carry, _ = jax.lax.scan(step, carry, rows)
            return carry, measure(evaluation_params(carry[1], carry[0]))

        _, curves = jax.lax.scan(stretch, (params, tx.init(params)), rows)
        first = measure(params)
        return {name: jnp.concatenate([first[name][None], curves[name]]) for name in curves}

    context = {"projection": projection, "steps": steps, "images": count}
    return sweep(train, rates, seeds, resume=resume, label=optimizer, context=context)
