"""Convolution and pooling in the forms that are fast on a CPU, also inside ``lax.scan``.

XLA's own convolution is slower there, and many times slower in a loop; the gradient of
``reduce_max`` counts the maxima where the first one will do.
"""

from typing import Any

import jax
import jax.numpy as jnp


def convolution(images: Any, kernel: Any) -> Any:
    """The convolution without padding, as one product of patches with a matrix.

    Args:
      images: Of shape (count, height, width, channels).
      kernel: Of shape (rows, columns, channels, features), as in Flax.

    Returns:
      Of shape (count, height − rows + 1, width − columns + 1, features).
    """
    rows, columns, channels, features = kernel.shape
    height, width = images.shape[1] - rows + 1, images.shape[2] - columns + 1
    x = jnp.concatenate([images[:, :, j : j + width] for j in range(columns)], axis=-1)
    x = jnp.concatenate([x[:, i : i + height] for i in range(rows)], axis=-1)
    return x @ kernel.reshape(rows * columns * channels, features)


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


@jax.custom_vjp
def max_pool(x: Any) -> Any:
    """The maximum of each 2×2 square; an odd last row or column is left out.

    Where several are equal, the first has the gradient, as in PyTorch.
    """
    return _squares(x).max(axis=(2, 4))


def _squares(x: Any) -> Any:
    """A view with the two rows and the two columns of each square as axes of their own."""
    count, height, width, channels = x.shape
    x = x[:, : height // 2 * 2, : width // 2 * 2]
    return x.reshape(count, height // 2, 2, width // 2, 2, channels)


def _max_pool_forward(x: Any) -> Any:
    largest = max_pool(x)
    return largest, (x, largest)


def _max_pool_backward(saved: Any, cotangent: Any) -> Any:
    x, largest = saved
    squares = _squares(x)
    place = jnp.arange(4, dtype=jnp.int32).reshape(1, 1, 2, 1, 2, 1)
    equal = squares == largest[:, :, None, :, None]
    first = jnp.where(equal, place, 4).min(axis=(2, 4), keepdims=True)
    back = jnp.where(place == first, cotangent[:, :, None, :, None], 0)
    count, rows, _, columns, _, channels = squares.shape
    back = back.reshape(count, 2 * rows, 2 * columns, channels)
    left_out = [(0, whole - part) for whole, part in zip(x.shape, back.shape, strict=True)]
    return (jnp.pad(back, left_out),)


max_pool.defvjp(_max_pool_forward, _max_pool_backward)
