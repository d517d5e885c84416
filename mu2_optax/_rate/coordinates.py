"""Directions coordinate by coordinate, as in RMSProp and Adam."""

import functools

import jax
import jax.numpy as jnp

from mu2_optax._internal.trees import inverse_or_zero

_OUTLIER = 10.0  # how many times its root mean square a gradient may be


def bound(weight: jax.Array) -> jax.Array:
    """The longest direction: what a gradient of ten times its root mean square gives."""
    return _OUTLIER * jax.lax.rsqrt(1 + weight * (_OUTLIER**2 - 1))


@functools.partial(jax.jit, inline=True)
def by_coordinate(
    g: jax.Array, r: jax.Array, weight: jax.Array, longest: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The directions of one tensor, and its new inverse root mean squares.

    A gradient of more than ten times its root mean square counts as ten times that.
    """
    weight, longest = weight.astype(r.dtype), longest.astype(r.dtype)
    size = jnp.abs(g)
    some = size > 0
    square = jnp.square(jnp.minimum(size * r, _OUTLIER))
    mean = r * jax.lax.rsqrt(1 - weight + weight * square)
    r = jnp.where(some, jnp.where(r > 0, mean, 1 / jnp.where(some, size, 1)), r)
    u = g * r
    if jnp.iscomplexobj(u):
        return u * jnp.minimum(1, longest * inverse_or_zero(jnp.abs(u))), r
    return jax.lax.clamp(-longest, u, longest), r
