"""A task as pure functions, and its training as the function of a rate and a key for a sweep.

Everything is in one ``lax.scan``: small models on a CPU spend more time between steps than in them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from benchmarks.experiment import Case
from benchmarks.optimizers import OPTIMIZERS, Setting, at_params


class Task(NamedTuple):
    """What is learnt.

    Attributes:
      init: From a key to the first params.
      draw: From (key, steps) to an array with what a batch is made of in each row.
      batch: From such a row to the batch.
      loss: Of (params, batch).
      measure: Of (params, rows of the first batches), the accuracy and the loss on held-out data.
    """

    init: Callable[[Any], Any]
    draw: Callable[[Any, int], Any]
    batch: Callable[[Any], Any]
    loss: Callable[[Any, Any], Any]
    measure: Callable[[Any, Any], tuple[Any, Any]]


def make_train(task: Task, case: Case) -> Callable[..., dict[str, Any]]:
    """Training with the optimizer and the steps of a case, and the paper's momenta for networks."""
    own = OPTIMIZERS[case.optimizer]
    return make_train_with(task, lambda rate: own.make(rate, Setting()), case.steps, own.evaluate)


def make_train_with(
    task: Task,
    make: Callable[[Any], optax.GradientTransformationExtraArgs],
    steps: int,
    evaluate: Callable[[Any, Any], Any] = at_params,
) -> Callable[..., dict[str, Any]]:
    """Training with the metrics ``test_accuracy`` and ``test_loss``, NaN where it diverged.

    Args:
      task: What is learnt.
      make: From a learning rate to the optimizer.
      steps: How many steps.
      evaluate: From (state, params) to the params to evaluate.

    Returns:
      A function of a rate and a key.
    """
    grad_fn = jax.grad(task.loss)

    def train(learning_rate: Any, key: Any) -> dict[str, Any]:
        tx = make(learning_rate)
        start_key, draw_key = jax.random.split(key)
        params = task.init(start_key)
        rows = task.draw(draw_key, steps)

        def step(carry: Any, row: Any) -> tuple[Any, None]:
            params, state = carry
            batch = task.batch(row)
            grads = grad_fn(params, batch)
            updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
            return (optax.apply_updates(params, updates), state), None

        (params, state), _ = jax.lax.scan(step, (params, tx.init(params)), rows)
        accuracy, loss = task.measure(evaluate(state, params), rows)
        fine = jnp.isfinite(loss)
        return {
            "test_accuracy": jnp.where(fine, accuracy, jnp.nan),
            "test_loss": jnp.where(fine, loss, jnp.nan),
        }

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
