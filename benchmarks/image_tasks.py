"""Models on grey images: logistic regression, dense layers, and the paper's CNN with its ReLUs."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.training import Functions, cross_entropy, dense, shuffled
from examples.cpu_layers import convolution, max_pool
from mu2_optax.sweep import Data

CALIBRATION = 20  # batches whose statistics BatchNorm is evaluated with
TESTED_AT_ONCE = 1000


def made_up(count: int) -> Data:
    """Numbers in the place of MNIST's."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(count, 28, 28)).astype(np.float32)
    labels = rng.integers(0, 10, count).astype(np.int32)
    return Data(images, labels, images[:64], labels[:64])


def logistic_task(data: Data, batch: int, exact: bool = False) -> Functions:
    """Logistic regression; with ``exact`` every batch is all of the images.

    The weights start as PyTorch's ``nn.Linear`` does, as in the paper's experiments.
    """
    task = dense_task(data, (), batch)
    every = jnp.arange(len(data.train_y))

    def init(key: Any) -> Any:
        w_key, b_key, _ = jax.random.split(key, 3)
        inputs = data.train_x[0].size
        start = lambda key, *shape: jax.random.uniform(
            key, shape, minval=-(inputs**-0.5), maxval=inputs**-0.5
        )
        return [{"w": start(w_key, inputs, 10), "b": start(b_key, 10)}]

    return task._replace(
        init=init,
        draw=lambda key, steps: task.draw(jax.random.split(key, 3)[2], steps),
        batch=(lambda rows: task.batch(every)) if exact else task.batch,
        split=lambda key: (key, key),
    )


def dense_task(data: Data, hidden: Sequence[int], batch: int) -> Functions:
    """Dense layers with ReLUs between them; without a hidden layer it is logistic regression."""
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    train_x, test_x = (x.reshape(len(x), -1) for x in (train_x, test_x))
    sizes = (train_x.shape[1], *hidden, 10)

    def init(key: Any) -> Any:
        keys = jax.random.split(key, len(sizes) - 1)
        return [dense(k, m, n) for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)]

    def logits_of(params: Any, x: Any) -> Any:
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    def measure(params: Any, rows: Any, part: str) -> tuple[Any, Any]:
        del rows, part
        logits = logits_of(params, test_x)
        return (logits.argmax(-1) == test_y).mean(), cross_entropy(logits, test_y)

    return Functions(
        init=init,
        draw=lambda key, steps: shuffled(key, len(train_y), batch, steps),
        batch=lambda rows: (train_x[rows], train_y[rows]),
        loss=lambda params, batch: cross_entropy(logits_of(params, batch[0]), batch[1]),
        measure=measure,
    )


def cnn_task(data: Data, batch: int) -> Functions:
    """The paper's CNN: conv 20 – ReLU – pool – conv 50 – ReLU – pool – dense 50 – BatchNorm – ReLU
    – dense 10, with kernels of 5×5; of 3×3 on images smaller than 16×16, the second one padded.

    The convolutions are products of patches with a matrix (`examples.cpu_layers`), because XLA runs
    a convolution in a loop on a CPU many times slower than outside. BatchNorm is evaluated, for
    every optimizer alike, with the statistics of the first 20 training batches at the evaluated
    params.
    """  # noqa: D205
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    small = min(train_x.shape[1:]) < 16
    side = 3 if small else 5
    after = lambda n: ((n - side + 1) // 2 - (0 if small else side - 1)) // 2
    flat = after(train_x.shape[1]) * after(train_x.shape[2]) * 50

    def init(key: Any) -> Any:
        names = ("conv1", "conv2", "dense1", "dense2")
        sizes = ((side**2, 20), (20 * side**2, 50), (flat, 50), (50, 10))
        keys = jax.random.split(key, 4)
        layers = {name: dense(k, *size) for name, k, size in zip(names, keys, sizes, strict=True)}
        return layers | {"norm": {"scale": jnp.ones(50), "shift": jnp.zeros(50)}}

    def convolved(layer: Any, x: Any) -> Any:
        """A convolution, a ReLU and the maximum of each 2×2 square, which comes first: it is equal
        and leaves a quarter of the work to the others.
        """  # noqa: D205
        kernel = layer["w"].reshape(side, side, x.shape[-1], -1)
        return jax.nn.relu(max_pool(convolution(x, kernel)) + layer["b"])

    def features(params: Any, images: Any) -> Any:
        x = convolved(params["conv1"], images[..., None])
        x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))) if small else x
        x = convolved(params["conv2"], x)
        return x.reshape(len(x), -1) @ params["dense1"]["w"] + params["dense1"]["b"]

    def head(params: Any, x: Any, mean: Any, variance: Any) -> Any:
        x = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
        x = jax.nn.relu(x * params["norm"]["scale"] + params["norm"]["shift"])
        return x @ params["dense2"]["w"] + params["dense2"]["b"]

    def loss(params: Any, batch: Any) -> Any:
        x = features(params, batch[0])
        return cross_entropy(head(params, x, x.mean(axis=0), x.var(axis=0)), batch[1])

    def measure(params: Any, rows: Any, part: str) -> tuple[Any, Any]:
        del part
        seen = jax.lax.map(lambda some: features(params, train_x[some]), rows[:CALIBRATION])
        seen = seen.reshape(-1, 50)
        part = min(TESTED_AT_ONCE, len(test_x))
        parts = test_x[: len(test_x) // part * part].reshape(-1, part, *test_x.shape[1:])
        x = jax.lax.map(lambda images: features(params, images), parts).reshape(-1, 50)
        logits = head(params, x, seen.mean(axis=0), seen.var(axis=0))
        labels = test_y[: len(logits)]
        return (logits.argmax(-1) == labels).mean(), cross_entropy(logits, labels)

    return Functions(
        init=init,
        draw=lambda key, steps: shuffled(key, len(train_y), batch, steps),
        batch=lambda rows: (train_x[rows], train_y[rows]),
        loss=loss,
        measure=measure,
    )
