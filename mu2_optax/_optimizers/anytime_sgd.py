"""Anytime-SGD: the averaging alone."""

import optax
from jax.typing import DTypeLike

from mu2_optax._internal.checks import check_rate
from mu2_optax._internal.types import ScalarOrSchedule, Transform
from mu2_optax._paper.averaging import AnytimeState, anytime
from mu2_optax._paper.momenta import (
    DoubleMomentum,
    check_momentum,
    fixed_momentum,
    with_weighted_steps,
)
from mu2_optax._paper.projections import Projection


def anytime_sgd(
    learning_rate: ScalarOrSchedule,
    momentum: DoubleMomentum = fixed_momentum(),
    *,
    projection: Projection | None = None,
    weighted_steps: bool = False,
    state_dtype: DTypeLike | None = None,
) -> Transform[AnytimeState]:
    r"""Anytime-SGD: SGD whose gradients are taken at the average; one gradient a step.

    .. math::
      w_{t+1} &= \Pi(w_t - \eta\,[\alpha_t]\,g_t) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Args:
      learning_rate: η, a number or a schedule.
      momentum: α and γ; β is not used.
      projection: A function from tree to tree that projects w onto the set.
      weighted_steps: Whether the step is multiplied by :math:`\alpha_t`.
      state_dtype: The dtype of w; see :func:`corrected_momentum`.

    Returns:
      A transform with an :class:`AnytimeState`; it needs no extra args and ignores them.

    Examples:
      >>> import mu2_optax
      >>> tx = mu2_optax.anytime_sgd(0.1, mu2_optax.linear_momentum())

    References:
      Cutkosky, `Anytime Online-to-Batch, Optimism and Acceleration
      <https://arxiv.org/abs/1903.00974>`_, ICML 2019
    """
    check_rate("learning_rate", learning_rate)
    check_momentum(momentum)
    inner = with_weighted_steps(optax.sgd(learning_rate), momentum, weighted_steps)
    return anytime(inner, momentum.gamma, projection=projection, state_dtype=state_dtype)
