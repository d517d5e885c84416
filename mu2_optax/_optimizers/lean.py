"""Double momentum without the last point, which the average and the iterate determine."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.tree_checks import check_params, check_update
from mu2_optax._internal.trees import refined, widened
from mu2_optax._internal.types import Memory, Params, Tree, Updates
from mu2_optax._paper.averaging import AnytimeState
from mu2_optax._paper.estimate import CorrectedMomentumState
from mu2_optax._paper.momenta import DoubleMomentum
from mu2_optax._paper.weights import weight_at


class LeanMu2State(NamedTuple):
    """State of :func:`mu2` with ``lean=True``.

    Attributes:
      d: The estimate of the gradient at the point of the last gradient.
      gamma: The last γ, which tells that point from params and w.
      averaged: The state of the averaging.
      beta_memory: What β remembers; None for a number or a schedule.
    """

    d: Tree
    gamma: jax.Array
    averaged: AnytimeState
    beta_memory: Memory = None

    @property
    def t(self) -> jax.Array:
        """The number of steps taken."""
        return self.averaged.t

    @property
    def w(self) -> Tree:
        """The iterate that the inner optimizer moves."""
        return self.averaged.w


def lean_double_momentum(
    estimate: optax.GradientTransformationExtraArgs,
    average: optax.GradientTransformationExtraArgs,
    momentum: DoubleMomentum,
) -> optax.GradientTransformationExtraArgs:
    """The estimate and the averaging, with x recovered in every step instead of stored."""
    _check_gamma(momentum)

    def init(params: Params) -> LeanMu2State:
        check_params(params)
        corrected = estimate.init(params)
        one = jnp.ones([], float)
        return LeanMu2State(corrected.d, one, average.init(params), corrected.beta_memory)

    def update(
        updates: Updates, state: LeanMu2State, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, LeanMu2State]:
        check_update(updates, state, params, LeanMu2State, like="w")
        # If the last point is unknown, d starts again from this gradient, as in the first step.
        t = jnp.where(state.gamma < 1, state.t, 0)
        x = _last_point(params, state.averaged.x, state.w, state.gamma)
        corrected = CorrectedMomentumState(t, x, state.d, state.beta_memory)
        d, corrected = estimate.update(updates, corrected, params, **extra_args)
        move, averaged = average.update(d, state.averaged, params, **extra_args)
        gamma = weight_at(momentum.gamma, averaged.t)
        return move, LeanMu2State(corrected.d, gamma, averaged, corrected.beta_memory)

    return optax.GradientTransformationExtraArgs(init, update)


def _last_point(params: Params, stored: Any, w: Any, gamma: jax.Array) -> Any:
    r"""The point before the last step of an average.

    .. math:: x_{t-1} = \frac{x_t - \gamma_t w_t}{1 - \gamma_t}
      = x_t + \frac{\gamma_t}{1 - \gamma_t}\,(x_t - w_t)

    If :math:`\gamma_t = 1`, nothing of it is left in the average, and the result is :math:`x_t`. If
    something else moves the params by :math:`\delta`, the result moves by
    :math:`\delta/(1 - \gamma_t)`.
    """
    known = gamma < 1
    further = jnp.where(known, gamma / jnp.where(known, 1 - gamma, 1), 0)
    x = widened(refined(params, stored))
    return jax.tree.map(lambda x, w: x + further.astype(x.dtype) * (x - w), x, widened(w))


def _check_gamma(momentum: DoubleMomentum) -> None:
    """Requires γ below 1 in the second step, if it is a concrete number."""
    gamma = momentum.gamma(1)
    if not isinstance(gamma, jax.core.Tracer) and not float(gamma) < 1:
        raise ValueError(
            f"`lean=True` recovers the last point from the average, which needs γ below 1 from the "
            f"second step on, got {float(gamma):g}; use another momentum, or `lean=False`."
        )
