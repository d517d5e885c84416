"""Orthogonal directions: matrices whose singular values are all the same."""

import jax
import jax.numpy as jnp

from mu2_optax._internal.newton_schulz import newton_schulz
from mu2_optax._internal.sharding import left_to_partitioner
from mu2_optax._internal.trees import inverse_or_zero, root
from mu2_optax._rate.coordinates import by_coordinate

_MOMENTUM = 0.7
_LEAST_RANK = 0.1  # a step of a lower rank counts as if it had this share of the full one
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # Jordan et al.: three rounds bring 0.02 … 1 to 0.7 … 1.2
_ROUNDS = 3


def orthogonal(
    g: jax.Array, r: jax.Array, m: jax.Array, weight: jax.Array, bound: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The directions of matrices, their inverse root mean squares, momentum and sum of squares.

    A step of less than 0.1 of the full rank counts as one of 0.1.
    """
    m = g + _MOMENTUM * m
    largest = jnp.max(jnp.abs(m), axis=(-2, -1), keepdims=True, initial=0)
    x = m * inverse_or_zero(largest).astype(m.dtype)  # its norm neither over- nor underflows
    length = root(jnp.sum(jnp.square(jnp.abs(x)), axis=(-2, -1), keepdims=True))
    size, r = by_coordinate(largest * length, r, weight, bound)
    factor = left_to_partitioner(_orthogonal_factor)(x * inverse_or_zero(length).astype(g.dtype))
    longer = max(g.shape[-2:])
    rank = longer * jnp.mean(jnp.square(jnp.abs(factor)), axis=(-2, -1), keepdims=True)
    squares = float(g.shape[-2]) * g.shape[-1] * jnp.square(size) * jnp.maximum(rank, _LEAST_RANK)
    u = longer**0.5 * size.astype(g.dtype) * factor
    return u, r, m, jnp.sum(squares).astype(float)


def _orthogonal_factor(x: jax.Array) -> jax.Array:
    """U Wᵀ of matrices with a Frobenius norm of one, nearly; zero for zero."""
    return newton_schulz(x, _POLYNOMIAL, _ROUNDS)
