"""STORM: the corrected momentum alone."""

import optax
from jax.typing import DTypeLike

from mu2_optax._internal.checks import check_rate
from mu2_optax._internal.types import ScalarOrSchedule
from mu2_optax._paper.estimate import checked_estimate
from mu2_optax._paper.projections import Projection, projected
from mu2_optax._paper.weights import AdaptiveBeta


def storm(
    learning_rate: ScalarOrSchedule,
    beta: ScalarOrSchedule | AdaptiveBeta,
    *,
    projection: Projection | None = None,
    state_dtype: DTypeLike | None = None,
) -> optax.GradientTransformationExtraArgs:
    r"""STORM: SGD along the corrected momentum, without averaging; two gradients a step.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      x_{t+1} &= \Pi(x_t - \eta\,d_t)

    Args:
      learning_rate: η, a number or a schedule.
      beta: β in [0, 1], a number or a schedule.
      projection: A function from tree to tree that projects params onto the set.
      state_dtype: The dtype of d; see :func:`corrected_momentum`.

    Returns:
      A transform whose ``update`` also takes ``grad_fn`` and ``batch``, or ``prev_grads``.

    Examples:
      >>> import mu2_optax
      >>> tx = mu2_optax.storm(0.1, beta=lambda count: 1 / (count + 1))

    References:
      Cutkosky and Orabona, `Momentum-Based Variance Reduction in Non-Convex SGD
      <https://arxiv.org/abs/1905.10018>`_, NeurIPS 2019
    """
    check_rate("learning_rate", learning_rate)
    estimate = checked_estimate("storm", beta, state_dtype)
    tx = optax.chain(estimate, optax.sgd(learning_rate))
    return projected(tx, projection or (lambda tree: tree))
