r"""Corrected estimates of anything along the trajectory, not only of the gradient.

Corrected momentum works for every operator that is smooth in the params: the loss itself, gradients
of another loss, Hessian-vector products (``jax.jvp`` of a gradient), statistics of activations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.means import wide_zeros
from mu2_optax._internal.tree_checks import (
    check_like,
    check_params,
    check_state,
    check_stored,
)
from mu2_optax._internal.trees import cast_like, copied_like, stored_copy
from mu2_optax._internal.types import Batch, Params, ScalarOrSchedule, Tree, Updates
from mu2_optax._paper.estimate import CorrectedMomentumState, corrected
from mu2_optax._paper.weights import AdaptiveBeta, StepGradients, as_adaptive, check_beta

__all__ = [
    "corrected_estimate",
]

Operator: TypeAlias = Callable[[Params, Batch], Tree]
"""A function of (params, batch) whose result is a tree of floating-point arrays."""


class CorrectedEstimate(NamedTuple):
    """What :func:`corrected_estimate` returns.

    Attributes:
      init: A function of (params, batch) that returns a state. It reads only the shapes of the
        batch.
      update: A function of (state, params, batch) that returns (estimate, state).
    """

    init: Callable[[Params, Batch], CorrectedMomentumState]
    update: Callable[[CorrectedMomentumState, Params, Batch], tuple[Tree, CorrectedMomentumState]]


def corrected_estimate(
    operator: Operator, beta: ScalarOrSchedule | AdaptiveBeta
) -> CorrectedEstimate:
    r"""Tracks the mean of an operator along a trajectory with corrected momentum.

    .. math::
      e_t = A(x_t; z_t) + (1 - \beta_t)\,(e_{t-1} - A(x_{t-1}; z_t)), \qquad e_1 = A(x_1; z_1)

    Here A is ``operator``, :math:`x_t` is the ``params`` and :math:`z_t` the ``batch`` of an
    ``update``, and :math:`e_t` estimates :math:`E_z A(x_t; z)`. With :math:`\beta_t = 1/t`, and
    where the steps :math:`\|x_t - x_{t-1}\|` shrink like 1/t, as they do under anytime averaging,
    its expected squared error shrinks like 1/t. Without the correction it would be either as noisy
    as one batch (:math:`\beta_t = 1`), or out of date: a plain average of old values estimates the
    mean at old params. Under an optimizer whose steps do not shrink, the estimate has no such
    guarantee; a larger β then forgets faster.

    Both evaluations see the same ``batch``; whatever is random in the operator must be a part of
    it. Use it next to any optimizer, inside jit and scan.

    Args:
      operator: A function of (params, batch) that returns a tree of floating-point arrays.
      beta: β in [0, 1], a number or a schedule such as ``polynomial_momentum(0).beta``, which is
        1/t.

    Returns:
      A pair of functions: ``init``, from (params, batch) to a state, which reads only the shapes of
      the batch, and ``update``, from (state, params, batch) to (estimate, state). The state is a
      :class:`CorrectedMomentumState`; :func:`mu2_optax.error_bar` reads it.

    Examples:
      The training loss without another pass over the data:

      >>> import jax, jax.numpy as jnp, mu2_optax
      >>> from mu2_optax import estimates
      >>> loss = lambda x, z: jnp.mean((x - z) ** 2)  # its mean over z is x**2 + 1
      >>> tracked = estimates.corrected_estimate(loss, mu2_optax.polynomial_momentum(0).beta)
      >>> batches = jax.random.normal(jax.random.key(0), (1000, 4))
      >>> state = tracked.init(0.0, batches[0])
      >>> def update(state, inputs):
      ...     x, batch = inputs
      ...     value, state = tracked.update(state, x, batch)
      ...     return state, value
      >>> trajectory = 1 / jnp.arange(1.0, 1001.0)
      >>> state, values = jax.lax.scan(update, state, (trajectory, batches))
      >>> bool(abs(values[-1] - 1) < 0.05)
      True

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR
      2025, section on general operators
    """
    check_callable("operator", operator, "a loss of (params, batch)")
    check_beta("beta", beta)
    beta = as_adaptive(beta)

    def init(params: Params, batch: Batch) -> CorrectedMomentumState:
        check_params(params)
        shapes = _checked_shapes(operator, params, batch)
        x = stored_copy(params, None, exact=True)
        d = wide_zeros(shapes)
        return CorrectedMomentumState(jnp.zeros([], jnp.int32), x, d, beta.first(d))

    def update(
        state: CorrectedMomentumState, params: Params, batch: Batch
    ) -> tuple[Updates, CorrectedMomentumState]:
        check_state(state, CorrectedMomentumState)
        check_params(params)
        check_stored(params, state.x)
        now = operator(params, batch)
        check_like(
            "operator(params, batch)", now, state.d, "Call `init` with a batch of that kind."
        )
        before = operator(cast_like(state.x, params), batch)
        seen = StepGradients(now, before, state.d)
        beta_t, memory = beta.step(state.beta_memory, state.t, seen)
        d = cast_like(corrected(state.t, beta_t, now, state.d, before), state.d)
        x = copied_like(params, state.x)
        return d, CorrectedMomentumState(optax.safe_increment(state.t), x, d, memory)

    return CorrectedEstimate(init, update)


def _checked_shapes(operator: Operator, params: Params, batch: Batch) -> Any:
    shapes = jax.eval_shape(operator, params, batch)
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            place = jax.tree_util.keystr(path) or "the root"
            raise TypeError(
                f"`operator` must return floating-point arrays, got {leaf.dtype} at {place}; an "
                "estimate of a mean is not an integer: cast it (a 0/1 accuracy, say) to float."
            )
    return shapes
