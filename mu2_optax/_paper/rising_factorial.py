"""The rising factorial: weights that grow like a power of time, with a closed form of the sum."""

import math

import jax
import jax.numpy as jnp

from mu2_optax._internal.types import Scalar


def rising_factorial(t: jax.Array, p: Scalar) -> jax.Array:
    """Γ(t + p) / (Γ(t) Γ(1 + p)) to about 1e-6 in float32, for every t ≥ 1.

    The whole part of p becomes a product, and the rest is f; if p is a tracer, its whole part is
    not known, and f is all of p. For f, a difference of log-gammas would lose all digits at
    t = 10⁷. Instead, t is shifted to s = t + 16 by the recurrence of Γ, where Stirling's series
    gives Γ(s + f)/Γ(s) as s^f times a factor close to one.
    """
    whole = 0 if isinstance(p, jax.core.Tracer) else int(p)
    f = p - whole
    s = t + 16
    up = (s + f - 0.5) * jnp.log1p(f / s) - f + _stirling(s + f) - _stirling(s)
    down = jnp.sum(jnp.log1p(f / (t + jnp.arange(16, dtype=t.dtype))))
    fractional = s**f * jnp.exp(up - down) / jax.scipy.special.gamma(1.0 + f)
    return fractional * math.prod((t + f + k) / (f + k + 1) for k in range(whole))


def _stirling(z: jax.Array) -> jax.Array:
    """The remainder of Stirling's formula for log Γ(z), to 1e-16 for z ≥ 17."""
    u = 1 / z**2
    return (1 / 12 - u * (1 / 360 - u * (1 / 1260 - u * (1 / 1680 - u / 1188)))) / z
