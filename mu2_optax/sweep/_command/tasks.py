"""The built-in tasks of the command line: what is trained, on what, for how long."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from mu2_optax.sweep import Data, load_digits, load_mnist
from mu2_optax.sweep._command.optimizers import evaluated

# The metrics of every task.
METRICS = ("test_accuracy", "test_loss", "train_loss", "initial_loss", "test_loss_curve")
EVALUATED_AT_ONCE = 200  # images: the patches of a whole data set would be gigabytes
CURVE_POINTS, CURVE_IMAGES = 20, 500  # at most; a few per cent of the time of a run

INITIAL = {"train_loss": "initial_loss"}  # which metric holds the value before training


@dataclass(frozen=True)
class Task:
    """What is trained, on what, for how long.

    Attributes:
      summary: One line for ``--list``.
      load: Reads the data; its argument is the value of ``--data``.
      init: Makes params from a key and an image's shape.
      apply: The logits of a batch of images.
      steps: Steps of training.
      batch_size: Images a step.
      strategy: How cells run: side by side, or one by one where a cell keeps the cores busy.
    """

    summary: str
    load: Callable[[str | Path | None], Data]
    init: Callable[[Any, tuple[int, ...]], Any]
    apply: Callable[[Any, Any], Any]
    steps: int
    batch_size: int = 64
    strategy: str = "vmap"


def curve_steps(steps: int) -> list[int]:
    """The steps after which a run is evaluated: 0, and up to 20 more, evenly spaced.

    Examples:
      >>> curve_steps(440)[:3], len(curve_steps(938))
      ([0, 22, 44], 15)
    """
    points = max(n for n in range(1, CURVE_POINTS + 1) if steps % n == 0)
    return list(range(0, steps + 1, steps // points))


def make_train(task: Task, data: Data) -> Callable[[Any, Any], dict[str, Any]]:
    """The training function of a task: of (optimizer, key), on the data that its ``load`` gives.

    It returns the metrics ``test_accuracy``, ``test_loss``, ``train_loss``, ``initial_loss`` (the
    training loss before the first step) and ``test_loss_curve`` (at `curve_steps`, on the first
    test images).
    """
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    curve_x, curve_y = test_x[:CURVE_IMAGES], test_y[:CURVE_IMAGES]
    count = len(train_x)
    epochs = -(-task.steps * task.batch_size // count)

    def cross_entropy(logits: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    grad_fn = jax.grad(lambda params, batch: cross_entropy(task.apply(params, batch[0]), batch[1]))

    def train(optimizer: Any, key: Any) -> dict[str, Any]:
        init_key, order_key = jax.random.split(key)
        params = task.init(init_key, train_x.shape[1:])
        orders = jax.vmap(lambda k: jax.random.permutation(k, count))(
            jax.random.split(order_key, epochs)
        )
        batches = orders.reshape(-1)[: task.steps * task.batch_size].reshape(task.steps, -1)

        def step(carry: Any, rows: Any) -> tuple[Any, None]:
            params, state = carry
            batch = (train_x[rows], train_y[rows])
            grads = grad_fn(params, batch)
            updates, state = optimizer.update(grads, state, params, grad_fn=grad_fn, batch=batch)
            return (optax.apply_updates(params, updates), state), None

        def stretch(carry: Any, batches: Any) -> tuple[Any, Any]:
            (params, state), _ = jax.lax.scan(step, carry, batches)
            return (params, state), evaluated(state, params)

        initial = cross_entropy(logits_of_all(task, params, train_x), train_y)
        stretches = batches.reshape(len(curve_steps(task.steps)) - 1, -1, task.batch_size)
        _, snapshots = jax.lax.scan(stretch, (params, optimizer.init(params)), stretches)
        snapshots = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), params, snapshots)
        params = jax.tree.map(lambda leaf: leaf[-1], snapshots)
        logits = logits_of_all(task, params, test_x)
        return {
            "test_accuracy": jnp.where(
                jnp.isfinite(logits).all(), (logits.argmax(axis=-1) == test_y).mean(), jnp.nan
            ),
            "test_loss": cross_entropy(logits, test_y),
            "train_loss": cross_entropy(logits_of_all(task, params, train_x), train_y),
            "initial_loss": initial,
            "test_loss_curve": jax.lax.map(
                lambda params: cross_entropy(task.apply(params, curve_x), curve_y), snapshots
            ),
        }

    return train


def logits_of_all(task: Task, params: Any, images: Any) -> Any:
    """The logits of a whole data set, part by part."""
    whole = len(images) - len(images) % EVALUATED_AT_ONCE
    logits = [task.apply(params, images[whole:])] if whole < len(images) else []
    if whole:
        parts = images[:whole].reshape(-1, EVALUATED_AT_ONCE, *images.shape[1:])
        of_parts = jax.lax.map(lambda part: task.apply(params, part), parts)
        logits.insert(0, of_parts.reshape(whole, -1))
    return jnp.concatenate(logits)


def init_linear(key: Any, shape: tuple[int, ...]) -> Any:
    """Weights and biases of logistic regression, at 0."""
    del key
    return {"w": jnp.zeros((shape[0] * shape[1], 10)), "b": jnp.zeros(10)}


def apply_linear(params: Any, images: Any) -> Any:
    """Logistic regression."""
    return images.reshape(len(images), -1) @ params["w"] + params["b"]


def init_cnn(key: Any, shape: tuple[int, ...]) -> Any:
    """Two 3×3 convolutions (8 and 16 channels, each with 2×2 pooling) and a linear layer."""
    keys = jax.random.split(key, 3)
    flat = (shape[0] // 4) * (shape[1] // 4) * 16

    def layer(key: Any, fan_in: int, out: int) -> Any:
        return jax.random.normal(key, (fan_in, out)) * jnp.sqrt(2 / fan_in)

    return {
        "conv1": layer(keys[0], 9, 8),
        "bias1": jnp.zeros(8),
        "conv2": layer(keys[1], 9 * 8, 16),
        "bias2": jnp.zeros(16),
        "w": layer(keys[2], flat, 10),
        "b": jnp.zeros(10),
    }


def apply_cnn(params: Any, images: Any) -> Any:
    """The small network, its convolutions written as products of a matrix with patches.

    On a CPU XLA runs ``lax.conv`` inside ``lax.scan`` many times slower than outside, and the
    product at full speed. Channels come first and images last, so that patches are copies of long
    runs and pooling is arithmetic on vectors.
    """
    count = len(images)
    x = images.transpose(1, 2, 0)[None]
    for kernel, bias in (("conv1", "bias1"), ("conv2", "bias2")):
        _, height, width, _ = x.shape
        x = params[kernel].T @ _patches(x).reshape(len(params[kernel]), -1)
        x = x.reshape(-1, height, width, count) + params[bias][:, None, None, None]
        x = jax.nn.relu(_pool(x))
    return x.transpose(3, 1, 2, 0).reshape(count, -1) @ params["w"] + params["b"]


def _patches(x: Any) -> Any:
    """The 3×3 neighbourhood of each pixel, zero outside: (c, h, w, n) -> (3, 3, c, h, w, n)."""
    _, height, width, _ = x.shape
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    x = jnp.stack([x[:, :, j : j + width] for j in range(3)])
    return jnp.stack([x[:, :, i : i + height] for i in range(3)])


def _pool(x: Any) -> Any:
    """The maximum of each 2×2 square; an odd last row or column is dropped."""
    channels, height, width, count = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(channels, height // 2, 2, width // 2, 2, count).max(axis=(2, 4))


LINEAR, CNN = (init_linear, apply_linear), (init_cnn, apply_cnn)
TASKS: dict[str, Task] = {
    "digits": Task(
        "logistic regression on scikit-learn's digits (no download), 440 steps",
        lambda _: load_digits(),
        *LINEAR,
        steps=440,
    ),
    "digits-cnn": Task(
        "a small convolutional network on the same digits, 220 steps",
        lambda _: load_digits(),
        *CNN,
        steps=220,
        strategy="loop",
    ),
    "mnist": Task(
        "logistic regression on MNIST (needs --data), one epoch", load_mnist, *LINEAR, steps=938
    ),
    "mnist-cnn": Task(
        "a small convolutional network on MNIST (needs --data), one epoch",
        load_mnist,
        *CNN,
        steps=938,
        strategy="loop",
    ),
}
