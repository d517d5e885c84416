"""The averaging weight γ: a schedule, or the ratio of arbitrary step weights to their sum."""

import dataclasses

import jax
import jax.numpy as jnp
import optax

from mu2_optax._checks import check_unit_interval
from mu2_optax.schedules import ScalarOrSchedule, Schedule, as_schedule, weight_at


@dataclasses.dataclass(frozen=True)
class WeightRatio:
    r"""The averaging weight of arbitrary step weights: :math:`\gamma_t = \alpha_t/\alpha_{1:t}`.

    The sum :math:`\alpha_{1:t}` may overflow, and it swallows small terms; the ratio
    :math:`r_t = \alpha_{1:t}/\alpha_t` does neither and has a recursion of its own,

    .. math:: r_1 = 1, \qquad r_{t+1} = 1 + r_t\,\alpha_t/\alpha_{t+1}, \qquad \gamma_t = 1/r_t .

    This is what :func:`weighted_momentum` gives as ``gamma``; :func:`anytime` keeps r in its state.

    Attributes:
      alpha: A schedule of positive weights (:math:`\alpha_1` may be 0).
    """

    alpha: Schedule


def as_gamma(gamma: ScalarOrSchedule | WeightRatio) -> Schedule | WeightRatio:
    """γ, checked: a schedule, or the ratio of arbitrary weights."""
    if isinstance(gamma, WeightRatio):
        return gamma
    check_unit_interval("gamma", gamma)
    return as_schedule(gamma)


def first_ratio(gamma: Schedule | WeightRatio) -> jax.Array | None:
    """The first r, which a state must carry if ``gamma`` is a ratio; otherwise nothing."""
    return jnp.ones([], float) if isinstance(gamma, WeightRatio) else None


def next_ratio(
    gamma: Schedule | WeightRatio, ratio: jax.Array | None, count: jax.Array
) -> jax.Array | None:
    """The r of the next count, from r at ``count``."""
    if not isinstance(gamma, WeightRatio) or ratio is None:
        return None
    now, later = (weight_at(gamma.alpha, c) for c in (count, optax.safe_increment(count)))
    return 1 + ratio * now / later


def gamma_at(gamma: Schedule | WeightRatio, ratio: jax.Array | None, count: jax.Array) -> jax.Array:
    """γ at ``count``, given r at ``count``."""
    if not isinstance(gamma, WeightRatio):
        return weight_at(gamma, count)
    if ratio is None:
        raise ValueError(
            "the state must hold the `ratio` of a weighted momentum, got None: it was made by an "
            "optimizer with another momentum. Call `init` again, or restore the right checkpoint."
        )
    return 1 / ratio
