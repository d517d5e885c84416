"""A state without the last point, which the average and the iterate determine."""

from typing import Any

import jax
import jax.numpy as jnp

from mu2_optax._internal.trees import refined, widened
from mu2_optax._internal.types import Params
from mu2_optax._paper.momenta import DoubleMomentum


def last_point(params: Params, stored: Any, w: Any, gamma: jax.Array) -> Any:
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


def check_lean(momentum: DoubleMomentum) -> None:
    """Requires γ below 1 in the second step, if it is a concrete number."""
    gamma = momentum.gamma(1)
    if not isinstance(gamma, jax.core.Tracer) and not float(gamma) < 1:
        raise ValueError(
            f"`lean=True` recovers the last point from the average, which needs γ below 1 from the "
            f"second step on, got {float(gamma):g}; use another momentum, or `lean=False`."
        )


def check_lean_state(lean: bool, gamma: Any) -> None:
    """Requires a lean state for ``lean``, and a full one otherwise; only a lean one holds a γ."""
    if lean != (gamma is not None):
        raise ValueError(
            f"the state must be that of an optimizer with `lean={lean}`, got one of "
            f"`lean={not lean}`. Call `init` again, or build the optimizer that made it."
        )
