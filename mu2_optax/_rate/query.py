"""Where gradients are taken: near the average without noise, further ahead of it with noise."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from mu2_optax._internal.checks import check_steps
from mu2_optax._rate.directions import UnitDirectionsState
from mu2_optax._rate.distance import DistanceRateState
from mu2_optax._rate.turning import turning_back

_AHEAD = 0.3  # under noise
_SOON = 50.0  # steps, until a run without noise can tell
_POWER = 1.5  # of these steps, where directions turn back entirely


def query_point(steps: int | None = None) -> Callable[[DistanceRateState], jax.Array]:
    r"""λ for :func:`anytime`, from the state of a :func:`distance_rate` of ``unit_directions``.

    .. math:: \lambda_t = \max\Bigl(0.3\,(1 + t/50)^{-1.5\,q_t},\; \frac{1}{t + 3}\Bigr)

    The limit is a third of γ, so that whatever else the loop does to the params moves the average
    by at most three times as much in a step.

    Here :math:`q_t` says how much successive directions turn back (see :func:`mu2_auto`).

    Args:
      steps: T; after so many steps λ is 0, so that the params are the average. In the next step it
        is what it is without, and the iterate begins again at the average.

    Returns:
      A function of the state of a :func:`distance_rate`, for ``ahead``.

    Examples:
      >>> import mu2_optax
      >>> rate = mu2_optax.distance_rate(mu2_optax.unit_directions())
      >>> gamma = mu2_optax.polynomial_momentum(2.0).gamma
      >>> tx = mu2_optax.anytime(rate, gamma, ahead=mu2_optax.query_point(steps=1000))
    """
    if steps is not None:
        check_steps("steps", steps)

    def ahead(state: DistanceRateState) -> jax.Array:
        inner = getattr(state, "inner_state", None)
        if not isinstance(inner, UnitDirectionsState):
            raise TypeError(
                "`query_point` must be the `ahead` of an `anytime` around `distance_rate("
                f"unit_directions(...))`, got one around a {type(state).__name__}; only such "
                "directions tell how much they turn back, so give a number such as 0.3."
            )
        t = state.t.astype(float)
        back = turning_back(inner.turning)
        point = jnp.maximum(_AHEAD * (1 + t / _SOON) ** (-_POWER * back), 1 / (t + 3))
        return point if steps is None else jnp.where(state.t == steps, 0, point)

    return ahead
