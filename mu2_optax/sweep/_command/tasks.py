"""The built-in tasks of the command line: what is trained, on what, for how long."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax.sweep import Data, load_digits, load_mnist

# The metrics of every task.
METRICS = ("test_accuracy", "test_loss", "train_loss", "test_loss_curve")
CURVE_POINTS, CURVE_IMAGES = 20, 500  # at most; a few per cent of the time of a run


class Task(NamedTuple):
    """What is trained, on the data that ``load`` finds in the folder of ``--data``."""

    load: Callable[[str | Path | None], Data]
    steps: int
    hidden: int = 0  # units of the hidden layer, if there is one
    batch_size: int = 64


TASKS = {
    "digits": Task(lambda folder: load_digits(), 440),  # logistic regression
    "digits-mlp": Task(lambda folder: load_digits(), 440, hidden=32),
    "mnist": Task(load_mnist, 938),  # logistic regression, one epoch
}


def curve_steps(steps: int) -> list[int]:
    """The steps after which a run is evaluated: 0, and up to 20 more, evenly spaced.

    Examples:
      >>> curve_steps(440)[:3], len(curve_steps(938))
      ([0, 22, 44], 15)
    """
    points = max(n for n in range(1, CURVE_POINTS + 1) if steps % n == 0)
    return list(range(0, steps + 1, steps // points))


def make_train(task: Task, data: Data) -> Callable[..., dict[str, Any]]:
    """The training function of a task: of (optimizer, key, steps), on its data.

    It returns the `METRICS`; ``test_loss_curve`` is taken at `curve_steps`, on the first images.
    """
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    curve_x, curve_y = test_x[:CURVE_IMAGES], test_y[:CURVE_IMAGES]
    count = len(train_x)

    def loss_fn(params: Any, batch: Any) -> Any:
        logits = apply(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    grad_fn = jax.grad(loss_fn)

    def train(optimizer: Any, key: Any, steps: int = task.steps) -> dict[str, Any]:
        init_key, order_key = jax.random.split(key)
        params = init(init_key, train_x[0].size, task.hidden)
        epochs = jax.random.split(order_key, -(-steps * task.batch_size // count))
        orders = jax.vmap(lambda k: jax.random.permutation(k, count))(epochs)
        stretches = len(curve_steps(steps)) - 1
        batches = orders.reshape(-1)[: steps * task.batch_size]

        def step(carry: Any, rows: Any) -> tuple[Any, None]:
            params, state = carry
            batch = (train_x[rows], train_y[rows])
            grads = grad_fn(params, batch)
            updates, state = optimizer.update(grads, state, params, grad_fn=grad_fn, batch=batch)
            return (optax.apply_updates(params, updates), state), None

        def stretch(carry: Any, batches: Any) -> tuple[Any, Any]:
            (params, state), _ = jax.lax.scan(step, carry, batches)
            averaged = optimizer.eval_params(state, params)
            return (params, state), (averaged, loss_fn(averaged, (curve_x, curve_y)))

        _, (snapshots, curve) = jax.lax.scan(
            stretch,
            (params, optimizer.init(params)),
            batches.reshape(stretches, -1, task.batch_size),
        )
        last = jax.tree.map(lambda leaf: leaf[-1], snapshots)
        logits = apply(last, test_x)
        correct = (logits.argmax(axis=-1) == test_y).mean()
        return {
            "test_accuracy": jnp.where(jnp.isfinite(logits).all(), correct, jnp.nan),
            "test_loss": loss_fn(last, (test_x, test_y)),
            "train_loss": loss_fn(last, (train_x, train_y)),
            "test_loss_curve": jnp.append(loss_fn(params, (curve_x, curve_y)), curve),
        }

    return train


def init(key: Any, inputs: int, hidden: int) -> Any:
    """Weights and biases of each layer: at 0 for logistic regression, else random."""
    if not hidden:
        return [(jnp.zeros((inputs, 10)), jnp.zeros(10))]
    first, last = jax.random.split(key)
    w = jax.random.normal(first, (inputs, hidden)) * jnp.sqrt(2 / inputs)
    v = jax.random.normal(last, (hidden, 10)) * jnp.sqrt(1 / hidden)
    return [(w, jnp.zeros(hidden)), (v, jnp.zeros(10))]


def apply(params: Any, images: Any) -> Any:
    """The logits of a batch of images."""
    x = images.reshape(len(images), -1)
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = params[-1]
    return x @ w + b
