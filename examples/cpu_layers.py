"""Convolution and pooling in the forms that are fast on a CPU, also inside ``lax.scan``.

Images are of shape (count, height, width, channels), as in Flax. Inside, channels come first and
the images of a batch last: then the patches of a convolution are copies of long runs, the product
with the kernel has many columns, and pooling is arithmetic on vectors. Between two of these layers
XLA drops the transposes, also across a bias and a ReLU. Its own convolution is slower, and many
times slower in a loop; the gradient of ``reduce_max`` counts the maxima where the first one will
do. `keep_freed_memory` is for the loop around them.
"""

import ctypes
from typing import Any

import jax
import jax.numpy as jnp

_MMAP_THRESHOLD, _TRIM_THRESHOLD, _ARENA_MAX = -3, -1, -8  # glibc's numbers for these settings


def keep_freed_memory() -> bool:
    """Keeps large blocks of freed memory in the process, so that the next step finds them there.

    A compiled step takes its temporary memory as one block. Above 32 MB, glibc gives such a block
    back to the system each time, which clears every page of the next one: nearly half of the time
    of a step of the paper's CNN that is called from Python. Other threads than the first, and large
    programs run in one, have heaps of 64 MB unless all threads share the first's. Call it before
    the first computation: a thread keeps the heap that it began with. The same without code:
    ``MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=10000000000 MALLOC_TRIM_THRESHOLD_=1000000000000``.

    Returns:
      Whether the settings were taken; they exist on Linux with glibc.
    """
    setting = getattr(ctypes.CDLL(None), "mallopt", None)
    wanted = {_MMAP_THRESHOLD: 2**31 - 1, _TRIM_THRESHOLD: -1, _ARENA_MAX: 1}  # -1: never
    return setting is not None and all(setting(which, value) for which, value in wanted.items())


def convolution(images: Any, kernel: Any) -> Any:
    """The convolution without padding, as one product of a matrix with patches.

    Args:
      images: Of shape (count, height, width, channels).
      kernel: Of shape (rows, columns, channels, features), as in Flax.

    Returns:
      Of shape (count, height − rows + 1, width − columns + 1, features).
    """
    rows, columns, channels, features = kernel.shape
    count, height, width = len(images), images.shape[1] - rows + 1, images.shape[2] - columns + 1
    x = _swapped(images)
    x = jnp.stack([x[:, :, j : j + width] for j in range(columns)])
    x = jnp.stack([x[:, :, i : i + height] for i in range(rows)])
    matrix = kernel.reshape(rows * columns * channels, features).T
    y = matrix @ x.reshape(rows * columns * channels, height * width * count)
    return _swapped(y.reshape(features, height, width, count))


def conv_general_dilated(images, kernel, strides, padding, **options):
    """`convolution` in the place that ``nnx.Conv`` has for it; only what `convolution` can do."""
    plain = all(of in (None, 1) or set(of) == {1} for of in (strides, options["rhs_dilation"]))
    if not plain or options["feature_group_count"] != 1:
        raise ValueError("convolution has no strides, dilation or groups: use lax's for them.")
    if padding == "SAME":
        padding = [((size - 1) // 2, size // 2) for size in kernel.shape[:2]]
    if padding != "VALID":
        images = jnp.pad(images, [(0, 0), *padding, (0, 0)])
    return convolution(images, kernel)


def max_pool(x: Any) -> Any:
    """The maximum of each 2×2 square; an odd last row or column is left out.

    Where several are equal, the first has the gradient, as in PyTorch.
    """
    return _swapped(_largest(_swapped(x)))


@jax.custom_vjp
def _largest(x: Any) -> Any:
    a, b, c, d = _corners(x)
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


def _corners(x: Any) -> list[Any]:
    """The four numbers of each square, row by row, of x with channels first."""
    _, height, width, _ = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]


def _largest_forward(x: Any) -> Any:
    largest = _largest(x)
    return largest, (x, largest)


def _largest_backward(saved: Any, cotangent: Any) -> Any:
    x, largest = saved
    a, b, c, _ = (corner == largest for corner in _corners(x))
    to = lambda first: jnp.where(first, cotangent, 0)
    upper = jnp.stack([to(a), to(~a & b)], axis=3)
    lower = jnp.stack([to(~a & ~b & c), to(~a & ~b & ~c)], axis=3)
    back = jnp.stack([upper, lower], axis=2)
    channels, rows, _, columns, _, count = back.shape
    back = back.reshape(channels, 2 * rows, 2 * columns, count)
    left_out = [(0, whole - part) for whole, part in zip(x.shape, back.shape, strict=True)]
    return (jnp.pad(back, left_out),)


_largest.defvjp(_largest_forward, _largest_backward)


def _swapped(x: Any) -> Any:
    """The first and the last axis in each other's place."""
    return x.transpose(3, 1, 2, 0)
