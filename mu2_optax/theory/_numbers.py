"""The arithmetic of the theorems: in float64 with known numbers, whatever JAX's precision is."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mu2_optax._internal.types import Numbers


def numbers(*values: Numbers) -> tuple[Any, ...]:
    """NumPy, then the values in float64; ``jax.numpy`` and arrays if one of them is a tracer.

    Squares and powers of ordinary numbers leave the range of float32 though the result does not.
    """
    if any(isinstance(value, jax.core.Tracer) for value in values):
        return jnp, *(jnp.asarray(value, float) for value in values)
    return np, *(np.asarray(value, np.float64) for value in values)


def rounded(value: Any) -> jax.Array:
    """A result in JAX's default precision."""
    with np.errstate(over="ignore", under="ignore"):  # beyond its range: infinity or 0
        return jnp.asarray(value, float)
