"""Means over batches: summed at least in float32, returned in the dtypes of what is averaged."""

from typing import Any

import jax
import jax.numpy as jnp

from mu2_optax._internal.sharding import explicit_sharding, varying_along, varying_axes
from mu2_optax._internal.trees import cast_like, wide_dtype, widened
from mu2_optax._internal.types import Tree


def wide_zeros(shapes: Tree) -> Tree:
    """Zeros in which to sum arrays of these shapes and shardings, at least in float32."""

    def zeros(s: Any) -> jax.Array:
        total = jnp.zeros(s.shape, wide_dtype(s.dtype), device=explicit_sharding(s))
        return varying_along(total, varying_axes(s))

    return jax.tree.map(zeros, shapes)


def mean_like(reference: Tree, total: Tree, count: Any) -> Tree:
    """The mean of ``count`` trees whose sum is ``total``, in the dtypes of ``reference``."""
    return cast_like(jax.tree.map(lambda s: s / count, total), reference)


def mean_of_two(share: float, first: Tree, second: Tree) -> Tree:
    """``share`` · first + (1 − ``share``) · second, summed at least in float32."""
    mix = lambda a, b: share * a + (1 - share) * b
    return cast_like(jax.tree.map(mix, widened(first), widened(second)), first)


def concatenated(a: Tree, b: Tree) -> Tree:
    """Each leaf of ``a`` followed by that of ``b``, along the leading axis."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), a, b)
