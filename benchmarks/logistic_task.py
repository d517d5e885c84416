"""Logistic regression on images, as the function of a rate and a key that a sweep takes."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import mu2_optax
from benchmarks.experiment import Case
from benchmarks.optimizers import OPTIMIZERS, Setting
from mu2_optax.sweep import Data

BATCH = 64
PROJECTIONS = {
    "per_tensor": mu2_optax.per_tensor(mu2_optax.onto_l2_ball(1.0)),
    "global": mu2_optax.onto_l2_ball(1.0),
    "ball_4": mu2_optax.onto_l2_ball(4.0),
    "none": None,
}
IN_WORDS = {
    "per_tensor": "each tensor in its unit ball",
    "global": "the whole vector in the unit ball",
    "ball_4": "the whole vector in a ball of radius 4",
    "none": "not constrained",
}


def make_train(case: Case, data: Data, evaluations: int = 1) -> Callable[..., dict[str, Any]]:
    """Training on batches of 64; ``anytime_exact`` on all images in every step.

    The weights start as PyTorch's ``nn.Linear`` does, at uniform numbers of size up to 1/√inputs,
    as in the paper's experiments, projected onto the set. The key gives them and the order of the
    images.

    Args:
      case: The optimizer, its projection and its steps.
      data: The data set.
      evaluations: How often to evaluate on the test images, evenly spaced and at the end; it
        divides the steps.

    Returns:
      A function with the metrics ``test_accuracy`` and ``test_loss``, and ``test_accuracy_curve``
      and ``test_loss_curve``: their values before the first step and at each evaluation.
    """
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    train_x, test_x = (x.reshape(len(x), -1) for x in (train_x, test_x))
    count, inputs = train_x.shape
    project = PROJECTIONS[case.projection]
    setting = Setting(momentum=mu2_optax.linear_momentum(), projection=project)
    epochs = -(-case.steps * BATCH // count)

    def loss_fn(params: Any, batch: Any) -> Any:
        logits = batch[0] @ params["w"] + params["b"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    grad_fn = jax.grad(loss_fn)
    optimizer = OPTIMIZERS[case.optimizer]
    exact = case.optimizer == "anytime_exact"
    in_parts = mu2_optax.value_and_grad(loss_fn, part=optimizer.share)

    def gradient(params: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        if optimizer.share < 1:
            return in_parts(params, batch)[1:]
        return grad_fn(params, batch), {"grad_fn": grad_fn, "batch": batch}

    def measure(params: Any) -> dict[str, Any]:
        logits = test_x @ params["w"] + params["b"]
        hits = (logits.argmax(axis=-1) == test_y).mean()
        return {
            "test_accuracy": jnp.where(jnp.isfinite(logits).all(), hits, jnp.nan),
            "test_loss": loss_fn(params, (test_x, test_y)),
        }

    def train(learning_rate: Any, key: Any) -> dict[str, Any]:
        tx = optimizer.make(learning_rate, setting)
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
        rows = orders.reshape(-1)[: case.steps * BATCH].reshape(evaluations, -1, BATCH)

        def step(carry: Any, rows: Any) -> tuple[Any, None]:
            params, state = carry
            batch = (train_x, train_y) if exact else (train_x[rows], train_y[rows])
            grads, again = gradient(params, batch)
            updates, state = tx.update(grads, state, params, **again)
            return (optax.apply_updates(params, updates), state), None

        def stretch(carry: Any, rows: Any) -> tuple[Any, Any]:
            carry, _ = jax.lax.scan(step, carry, rows)
            return carry, measure(optimizer.evaluate(carry[1], carry[0]))

        first = measure(params)
        _, later = jax.lax.scan(stretch, (params, tx.init(params)), rows)
        curves = {
            f"{name}_curve": jnp.concatenate([first[name][None], later[name]]) for name in later
        }
        return {name: values[-1] for name, values in later.items()} | curves

    return train
