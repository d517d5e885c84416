"""What limits a run, noise or curvature: successive directions that turn back tell."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from mu2_optax._internal.sample import Sample
from mu2_optax._internal.trees import inverse_or_zero

_OF_NOISE = 0.6  # the correlation of successive orthogonal steps where all gradients are noise
_LEAST = 0.3  # of their correlation, what counts at least
_MOST = 0.7  # of any correlation, what counts at most
_HUGE = 1e18  # its square is finite


class Turning(NamedTuple):
    r"""How successive directions hang together, from a sample.

    Attributes:
      last: A sample of the last direction.
      product: The mean of :math:`u_t \cdot u_{t-1}`, with weights that grow like t². Of orthogonal
        steps, which noise does not leave uncorrelated, it is what exceeds that of noise, in units
        of it.
      square: The mean of :math:`u_t \cdot u_t`, with the same weights.
    """

    last: jax.Array
    product: jax.Array
    square: jax.Array


def turned(
    turning: Turning, sample: Sample, u: jax.Array, orthogonal: jax.Array | bool, weight: jax.Array
) -> Turning:
    """After another direction.

    Args:
      turning: So far.
      sample: Where directions are looked at.
      u: The direction there.
      orthogonal: For each row of the sample, whether it is of an orthogonal step.
      weight: That of this direction in the mean of all; 0 for the first.
    """
    square = jnp.square(jnp.abs(u))
    product = jnp.real(u * jnp.conj(turning.last))
    product = jnp.where(orthogonal, product / _OF_NOISE - square, product)
    now = jnp.stack([sample.mean(product), sample.mean(square)]).astype(float)
    before = jnp.stack([turning.product, turning.square])
    return Turning(u, *(before + weight * (now - before)))


def turning_back(turning: Turning) -> jax.Array:
    """q: how much successive directions turn back, from 0 (noise, or agreement) to 1."""
    return jnp.clip(-_correlation(turning), 0, 1)


def walk(turning: Turning, reach: jax.Array) -> tuple[jax.Array, jax.Array]:
    r"""How much further than independent ones steps walk, in squares: by coordinate, orthogonal.

    .. math:: (1 + \varphi)/(1 - \varphi)

    φ is the measured correlation, at most 0.7. By coordinate it counts from 0, and while the run
    has not come as far as the params are large, at most to 0.7 ρ², so that steps that agree make a
    quick start. Orthogonal steps count from 0.3, so that turning back does not make their rate much
    longer.
    """
    found = _correlation(turning)
    plain = jnp.clip(found, 0, _MOST * jnp.square(jnp.minimum(reach, 1)))
    orthogonal = jnp.clip(_OF_NOISE * (1 + found), _LEAST, _MOST)
    return (1 + plain) / (1 - plain), (1 + orthogonal) / (1 - orthogonal)


def explosion(sample: Sample, g: jax.Array, r: jax.Array, weight: jax.Array) -> jax.Array:
    r"""The energy of a gradient that is large in most coordinates at once; below 1 usually.

    .. math::
      p\,v^3, \qquad v = \text{mean of } \frac{|g|}{\sqrt{(1 - a)\,s^2 + a\,g^2}} \le a^{-1/2}

    The mean is over the coordinates that have had a gradient before; p is their share. A heavy tail
    is large in few coordinates, or in few steps; where the loss itself explodes, it is large in
    nearly all of them, for many steps.
    """
    ratio = jnp.minimum(jnp.abs(g) * r, _HUGE)
    ratio = ratio * jax.lax.rsqrt(1 - weight + weight * jnp.square(ratio))
    seen = sample.mean((r > 0).astype(ratio.dtype))
    return (seen * (sample.mean(ratio) * inverse_or_zero(seen)) ** 3).astype(float)


def _correlation(turning: Turning) -> jax.Array:
    return turning.product * inverse_or_zero(turning.square)
