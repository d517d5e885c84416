"""Images: softmax regression, dense networks, and networks of convolutions with BatchNorm."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.self_tuning.task import apply_layers, classifier, layers, on_rows, split
from benchmarks.training import Functions, cross_entropy, dense
from examples import data as datasets
from examples.cpu_layers import convolution, max_pool

HELD_OUT, TESTED = 2000, 5000  # images to validate with, from the training set, and to test with
HELD_OUT_CONV, TESTED_CONV = 500, 3000  # the same for convolutions, which take longer
CALIBRATION = 4  # batches whose statistics BatchNorm is evaluated with
GAIN = 2**0.5  # keeps the size of what passes through a ReLU


def load(
    name: str, data_dir: str | None, held_out: int = HELD_OUT, tested: int = TESTED
) -> dict[str, Any]:
    """The images of a data set; those to test with are from its own test set.

    In a random order, because the images of MNIST are not: the first ones to test with are harder.
    """
    data = datasets.load(name, data_dir)
    rng = np.random.default_rng(0)
    order, test_order = rng.permutation(len(data.train_y)), rng.permutation(len(data.test_y))
    parts = split((data.train_x[order], data.train_y[order]), held_out, 0)
    return parts | {"test": tuple(a[test_order[:tested]] for a in data[2:])}


def dense_network(data: Any, hidden: Sequence[int], batch: int, gain: float = GAIN) -> Functions:
    """Dense layers with ReLUs between them; softmax regression where none is hidden."""
    sizes = (int(np.prod(data["train"][0].shape[1:])), *hidden, 10)
    init = lambda key: layers(key, sizes, gain) if hidden else [dense(key, *sizes)]

    def logits_of(params: Any, images: Any) -> Any:
        return apply_layers(params, images.reshape(len(images), -1), jax.nn.relu)

    return classifier(data, init, logits_of, batch)


def batch_norm(params: Any, x: Any, statistics: Any) -> tuple[Any, Any]:
    """Normalizes with the statistics of this batch, or, if given, with these; and gives them."""
    axes = tuple(range(x.ndim - 1))
    mean, variance = (x.mean(axes), x.var(axes)) if statistics is None else statistics
    x = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
    return x * params["scale"] + params["shift"], (mean, variance)


def norm(size: int) -> dict[str, Any]:
    """The first params of a normalization."""
    return {"scale": jnp.ones(size), "shift": jnp.zeros(size)}


def _cnn(batch_shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The paper's CNN: conv 20 – pool – conv 50 – pool – dense 50 – BatchNorm – dense 10."""
    after = lambda n: ((n - 4) // 2 - 4) // 2
    flat = after(batch_shape[1]) * after(batch_shape[2]) * 50

    def init(key: Any) -> Any:
        keys = jax.random.split(key, 4)
        sizes = {"conv1": (25, 20), "conv2": (500, 50), "dense1": (flat, 50), "dense2": (50, 10)}
        return {
            name: dense(k, *size) for k, (name, size) in zip(keys, sizes.items(), strict=True)
        } | {"norm": norm(50)}

    def apply(params: Any, images: Any, statistics: Any = None) -> tuple[Any, Any]:
        x = images[..., None]
        for name in ("conv1", "conv2"):  # the maximum first is equal, and leaves less to the others
            kernel = params[name]["w"].reshape(5, 5, x.shape[-1], -1)
            x = jax.nn.relu(max_pool(convolution(x, kernel)) + params[name]["b"])
        x = x.reshape(len(x), -1) @ params["dense1"]["w"] + params["dense1"]["b"]
        x, statistics = batch_norm(params["norm"], x, statistics)
        return jax.nn.relu(x) @ params["dense2"]["w"] + params["dense2"]["b"], statistics

    return init, apply


def _resnet(batch_shape: tuple[int, ...], width: int = 8) -> tuple[Any, Any]:
    """Three residual blocks with BatchNorm, at a half, a quarter and an eighth of the size."""
    channels = 4 * (batch_shape[3] if len(batch_shape) == 4 else 1)
    widths = (width, 2 * width, 4 * width)

    def init(key: Any) -> Any:
        keys = iter(jax.random.split(key, 11))
        kernel = lambda m, n, side=3: (
            (2 / (m * side**2)) ** 0.5 * jax.random.normal(next(keys), (side, side, m, n))
        )
        params: dict[str, Any] = {"first": kernel(channels, width), "norm": norm(width)}
        for number, (m, n) in enumerate(zip((width, *widths[:-1]), widths, strict=True)):
            params[f"block{number}"] = {
                "conv1": kernel(m, n),
                "norm1": norm(n),
                "conv2": kernel(n, n),
                "norm2": norm(n),
            }
            if m != n:
                params[f"block{number}"]["skip"] = kernel(m, n, 1)
        return params | {"out": dense(next(keys), widths[-1], 10)}

    def apply(params: Any, images: Any, statistics: Any = None) -> tuple[Any, Any]:
        given = iter(statistics or ())
        seen = []

        def normalized(name: str, of: Any, x: Any) -> Any:
            x, found = batch_norm(of[name], x, next(given, None))
            seen.append(found)
            return x

        same = lambda x, kernel: convolution(jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), kernel)
        x = images if images.ndim == 4 else images[..., None]
        count, height, wide, _ = x.shape
        x = x.reshape(count, height // 2, 2, wide // 2, 2, -1).transpose(0, 1, 3, 2, 4, 5)
        x = same(x.reshape(count, height // 2, wide // 2, -1), params["first"])
        x = jax.nn.relu(normalized("norm", params, x))
        for number in range(3):
            block = params[f"block{number}"]
            if number:
                x = max_pool(x)
            h = jax.nn.relu(normalized("norm1", block, same(x, block["conv1"])))
            h = normalized("norm2", block, same(h, block["conv2"]))
            x = jax.nn.relu(h + (x @ block["skip"][0, 0] if "skip" in block else x))
        return x.mean((1, 2)) @ params["out"]["w"] + params["out"]["b"], seen

    return init, apply


NETWORKS = {"cnn": _cnn, "resnet": _resnet}


def convolutional_network(data: Any, network: str, batch: int, at_once: int = 100) -> Functions:
    """A network with BatchNorm.

    It is evaluated, for every optimizer alike, with the statistics of some training batches at the
    evaluated params.
    """
    x, _ = data["train"]
    init, apply = NETWORKS[network](x.shape)

    def measure(params: Any, rows: Any, part: str) -> Any:
        _, statistics = apply(params, x[rows[:CALIBRATION].reshape(-1)])
        images, labels = (a.reshape(-1, at_once, *a.shape[1:]) for a in data[part])
        right = lambda some: (apply(params, some[0], statistics)[0].argmax(-1) == some[1]).mean()
        return jax.lax.map(right, (images, labels)).mean()

    loss = lambda params, some: cross_entropy(apply(params, some[0])[0], some[1])
    return on_rows(data, init, loss, batch)._replace(measure=measure)
