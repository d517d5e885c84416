"""What the rate needs to know of the whole tree, from a sample of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from mu2_optax._internal.sample import Sample
from mu2_optax._internal.trees import inverse_or_zero, root
from mu2_optax._internal.types import Tree

_ALL_ZERO = 1e-2  # the size to assume for params that are all zero


class Measured(NamedTuple):
    """What counts of a tree: the coordinates that have had a gradient.

    Attributes:
      share: Their share of all.
      size: Their typical size at the start.
      distance: The root mean square of how far their average has come.
      known: Whether one of the sample is among them.
    """

    share: jax.Array
    size: jax.Array
    distance: jax.Array
    known: jax.Array | bool


def mean_square(sample: Sample, u: Tree) -> jax.Array:
    """That of the whole tree, estimated on a sample."""
    return sample.mean(jnp.square(jnp.abs(_finite(sample(u))))).astype(float)


def measured(sample: Sample, counts: jax.Array, start: jax.Array, x: jax.Array) -> Measured:
    """From a sample of the average, and of how much each of its numbers counts.

    Until one of them counts, although there may be gradients elsewhere, all do. The distance is not
    known then.
    """
    known = sample.whole or jnp.any(counts > 0)
    counts = jnp.where(known, counts, sample.shares(counts.dtype))
    sizes = _root_mean_square(_finite(start), counts, 1)
    return Measured(
        share=jnp.sum(counts).astype(float),
        size=_typical(sizes, jnp.sum(counts, axis=1)).astype(float),
        distance=_root_mean_square(_finite(x - start), counts, None).astype(float),
        known=known,
    )


def _root_mean_square(a: jax.Array, counts: jax.Array, axis: int | None) -> jax.Array:
    """Over the coordinates that count, of numbers whose squares may over- or underflow."""
    a = jnp.where(counts > 0, jnp.abs(a), 0)
    largest = jnp.max(a, axis=axis, keepdims=True, initial=0)
    square = jnp.sum(counts * jnp.square(a * inverse_or_zero(largest)), axis=axis)
    mean = square * inverse_or_zero(jnp.sum(counts, axis=axis))
    return largest.reshape(mean.shape) * root(mean)


def _typical(sizes: jax.Array, counts: jax.Array) -> jax.Array:
    """The geometric mean over all coordinates of the root mean square of their tensor.

    Tensors that are zero do not count, and one very large tensor does not make the others seem
    large. Without any coordinate it is 0.
    """
    found = jnp.where(sizes > 0, counts, 0)
    logs = jnp.sum(found * jnp.log(jnp.where(sizes > 0, sizes, 1)))
    mean = jnp.exp(logs * inverse_or_zero(jnp.sum(found)))
    size = jnp.where(jnp.sum(found) > 0, mean, _ALL_ZERO)
    return jnp.where(jnp.sum(counts) > 0, size, 0)


def _finite(a: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(a), a, 0)
