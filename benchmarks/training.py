"""The one training loop, and what a task gives to it: pure functions of params and data."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

import mu2_optax
from benchmarks.optimizers import Optimizer, Setting

Measure = Callable[[Any, Any, Any], Any]  # of (params, state, rows)


class Functions(NamedTuple):
    """A task's functions.

    Attributes:
      init: From a key to the first params.
      draw: From (key, steps) to a tree whose leaves have what a batch is made of in each row.
      batch: From such a row to the batch.
      loss: Of (params, batch).
      measure: Of (params, rows of the run, a part of the data), what the task is judged by.
      world: From a key to what is carried from step to step beside params; for reinforcement
        learning, where batches depend on params.
      collect: From (world, params, row) to a batch and the next world, in the place of ``batch``.
      split: From the key of a run to those of ``init`` and ``draw``.
    """

    init: Callable[[Any], Any]
    draw: Callable[[Any, int], Any]
    batch: Callable[[Any], Any] | None
    loss: Callable[[Any, Any], Any]
    measure: Callable[[Any, Any, str], Any]
    world: Callable[[Any], Any] = lambda key: ()
    collect: Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    split: Callable[[Any], Any] = jax.random.split


def run_steps(task: Functions, tx: Any, carry: Any, rows: Any, share: float = 1.0) -> Any:
    """From (params, state, world) to the same after a step for each row, in one ``lax.scan``.

    Args:
      task: What is learnt.
      tx: The optimizer.
      carry: Where the run is.
      rows: What batches are made of.
      share: The share of each batch that a second gradient is taken on.
    """
    evaluate = mu2_optax.value_and_grad(task.loss, part=share if share < 1 else None)

    def step(carry: Any, row: Any) -> tuple[Any, None]:
        params, state, world = carry
        if task.collect is None:
            batch = task.batch(row)
        else:
            batch, world = task.collect(world, params, row)
        value, grads, again = evaluate(params, batch)
        updates, state = tx.update(grads, state, params, value=value, **again)
        return (optax.apply_updates(params, updates), state, world), None

    return jax.lax.scan(step, carry, rows)[0]


def run_measured(
    task: Functions,
    tx: Any,
    beginning: tuple[Any, Any, Any],
    measure: Measure,
    points: int = 1,
    share: float = 1.0,
) -> tuple[Any, Any, Any]:
    """A run that is measured at so many points, evenly along it and at its end.

    Args:
      task: What is learnt.
      tx: The optimizer.
      beginning: The first params, the rows and the first world.
      measure: What is measured.
      points: How often; they divide the steps.
      share: As in `run_steps`.

    Returns:
      The last params and state, and what was measured, stacked.
    """
    tx = optax.with_extra_args_support(tx)
    params, rows, world = beginning

    def stretch(carry: Any, some: Any) -> tuple[Any, Any]:
        carry = run_steps(task, tx, carry, some, share)
        return carry, measure(carry[0], carry[1], rows)

    stretches = jax.tree.map(lambda a: a.reshape(points, -1, *a.shape[1:]), rows)
    carry = (params, tx.init(params), world)
    (params, state, _), measured = jax.lax.scan(stretch, carry, stretches)
    return params, state, measured


def make_train(
    task: Functions, optimizer: Optimizer, setting: Setting, steps: int, points: int = 0
) -> Callable[..., dict[str, Any]]:
    """Training as `mu2_optax.sweep.sweep` takes it: a function of a rate and a key.

    Its metrics are ``test_accuracy`` and ``test_loss``, NaN where it diverged; with ``points`` also
    ``test_accuracy_curve`` and ``test_loss_curve``, from before the first step on.
    """

    def tested(params: Any, rows: Any) -> dict[str, Any]:
        accuracy, loss = task.measure(params, rows, "test")
        fine = jnp.isfinite(loss)
        return {
            "test_accuracy": jnp.where(fine, accuracy, jnp.nan),
            "test_loss": jnp.where(fine, loss, jnp.nan),
        }

    def train(learning_rate: Any, key: Any) -> dict[str, Any]:
        tx = optimizer.make(learning_rate, setting)
        init_key, draw_key = task.split(key)
        params, rows = task.init(init_key), task.draw(draw_key, steps)
        if setting.projection is not None:
            params = setting.projection(params)
        measure = lambda params, state, rows: tested(optimizer.evaluate(state, params), rows)
        beginning = (params, rows, ())
        *_, found = run_measured(task, tx, beginning, measure, points or 1, optimizer.share)
        final = {name: values[-1] for name, values in found.items()}
        if not points:
            return final
        before = tested(params, rows)
        whole = lambda name: jnp.concatenate([before[name][None], found[name]])
        return final | {f"{name}_curve": whole(name) for name in found}

    return train


def shuffled(key: Any, count: int, batch: int, steps: int) -> Any:
    """Rows of ``steps`` batches: everything in a new order in each epoch, nothing left over."""
    epochs = -(-steps * batch // count)
    order = jax.vmap(lambda key: jax.random.permutation(key, count))  # one sort to compile
    orders = order(jax.random.split(key, epochs))
    return orders.reshape(-1)[: steps * batch].reshape(steps, batch)


def dense(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
    """The first weights of a layer as PyTorch's ``nn.Linear``: uniform of size up to 1/√inputs."""
    w_key, b_key = jax.random.split(key)
    bound = inputs**-0.5
    return {
        "w": jax.random.uniform(w_key, (inputs, outputs), minval=-bound, maxval=bound),
        "b": jax.random.uniform(b_key, (outputs,), minval=-bound, maxval=bound),
    }


def cross_entropy(logits: Any, labels: Any) -> Any:
    """The mean over everything that has a label."""
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
