"""A state without the last point: the average and the iterate tell where it was."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mu2_optax._momentum import DoubleMomentum
from mu2_optax._trees import gathered, refined, rounded, widened
from mu2_optax._weights import Weight

_FINEST = 2.0**-18  # of the largest number of a tensor: less than that is rounding


class Footprint(NamedTuple):
    """What an update leaves behind to know its params again: two numbers for each tensor.

    Attributes:
      unit: The largest magnitude times 2⁻¹⁸, or times the precision of narrower params.
      total: The sum of all magnitudes in whole units, modulo 2³². A sum of integers does not
        depend on its order, and rounding moves it by little.
    """

    unit: jax.Array
    total: jax.Array


def footprint(params: Any) -> Footprint:
    """The footprint of params."""
    dtypes = [jnp.result_type(p) for p in jax.tree.leaves(params)]
    if not dtypes:  # the placeholder of `optax.tree.map_params`
        return Footprint(jnp.zeros(0, float), jnp.zeros(0, jnp.int32))
    # The compiler may leave out the rounding of numbers that it has at hand in more precision.
    wide = jax.tree.leaves(widened(params))
    leaves = [rounded(a, dtype) for a, dtype in zip(wide, dtypes, strict=True)]
    finest = np.array([max(_FINEST, float(jnp.finfo(dtype).eps)) for dtype in dtypes])
    unit = gathered([jnp.max(jnp.abs(a), initial=0) for a in leaves]).astype(float) * finest
    return Footprint(unit, _total(leaves, unit))


def were_moved(params: Any, left: Footprint) -> jax.Array:
    """Whether these are other params than those of the footprint.

    Rounding, such as that of a step that is fused otherwise, is no move.
    """
    leaves = jax.tree.leaves(widened(params))
    allowed = np.array([4 + np.sqrt(a.size) / 2 for a in leaves])
    return jnp.any(jnp.abs(_total(leaves, left.unit) - left.total) > allowed)


def last_point(params: Any, stored: Any, w: Any, gamma: jax.Array) -> Any:
    r"""The point before the last step of an average.

    .. math:: x_{t-1} = \frac{x_t - \gamma_t w_t}{1 - \gamma_t}
      = x_t + \frac{\gamma_t}{1 - \gamma_t}\,(x_t - w_t)

    Where :math:`\gamma_t = 1` nothing is left of it, and the result is :math:`x_t`.
    """
    known = gamma < 1
    further = jnp.where(known, gamma / jnp.where(known, 1 - gamma, 1), 0)
    x = widened(refined(params, stored))
    return jax.tree.map(lambda x, w: x + further.astype(x.dtype) * (x - w), x, widened(w))


def check_lean(momentum: DoubleMomentum) -> None:
    """Requires γ below 1 from the second step on, as far as a number can be seen."""
    if isinstance(momentum.gamma, Weight):
        return
    gamma = momentum.gamma(1) if callable(momentum.gamma) else momentum.gamma
    if not isinstance(gamma, jax.core.Tracer) and not float(gamma) < 1:
        raise ValueError(
            f"`lean=True` recovers the last point from the average, which needs γ below 1 from the "
            f"second step on, got {float(gamma):g}; use another momentum, or `lean=False`."
        )


def _total(leaves: list[Any], unit: jax.Array) -> jax.Array:
    def whole_units(a: jax.Array, unit: jax.Array) -> jax.Array:
        unit = jnp.where(unit > 0, unit, 1).astype(jnp.abs(a).dtype)
        return jnp.sum(jnp.round(jnp.abs(a) / unit).astype(jnp.int32), dtype=jnp.int32)

    return gathered([whole_units(a, u) for a, u in zip(leaves, unit, strict=True)])
