"""The built-in tasks of the command line: what is trained, on what, for how long."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax.sweep import Data, load_digits, load_mnist

# The metrics of every task.
METRICS = ("test_accuracy", "test_loss", "train_loss", "initial_loss", "test_loss_curve")
INITIAL = {"train_loss": "initial_loss"}  # which metric holds the value before training
HIDDEN = 32  # units of the hidden layer, if there is one
CURVE_POINTS, CURVE_IMAGES = 20, 500  # at most; a few per cent of the time of a run


class Task(NamedTuple):
    """What is trained, on the data that ``load`` finds in the folder of ``--data``."""

    summary: str
    load: Callable[[str | Path | None], Data]
    hidden: bool
    steps: int
    batch_size: int = 64


TASKS: dict[str, Task] = {
    "digits": Task(
        "logistic regression on scikit-learn's digits", lambda _: load_digits(), False, 440
    ),
    "digits-mlp": Task(
        "a hidden layer of 32 units on the same digits", lambda _: load_digits(), True, 440
    ),
    "mnist": Task("logistic regression on MNIST (needs --data), one epoch", load_mnist, False, 938),
    "mnist-mlp": Task("a hidden layer of 32 units on MNIST, one epoch", load_mnist, True, 938),
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

    It returns the `METRICS`: ``initial_loss`` is the training loss before the first step, and
    ``test_loss_curve`` is taken at `curve_steps`, on the first test images.
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
            "initial_loss": loss_fn(params, (train_x, train_y)),
            "test_loss_curve": jnp.append(loss_fn(params, (curve_x, curve_y)), curve),
        }

    return train


def init(key: Any, inputs: int, hidden: bool) -> Any:
    """Weights and biases: at 0 for logistic regression, random with a hidden layer."""
    last = {"w": jnp.zeros((HIDDEN if hidden else inputs, 10)), "b": jnp.zeros(10)}
    if not hidden:
        return last
    keys = jax.random.split(key)
    first = jax.random.normal(keys[0], (inputs, HIDDEN)) * jnp.sqrt(2 / inputs)
    last["w"] = jax.random.normal(keys[1], (HIDDEN, 10)) * jnp.sqrt(1 / HIDDEN)
    return last | {"w1": first, "b1": jnp.zeros(HIDDEN)}


def apply(params: Any, images: Any) -> Any:
    """The logits of a batch of images."""
    x = images.reshape(len(images), -1)
    if "w1" in params:
        x = jax.nn.relu(x @ params["w1"] + params["b1"])
    return x @ params["w"] + params["b"]
