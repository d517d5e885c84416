"""Corrected momentum: STORM's estimate of the gradient."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from mu2_optax._gradients.part import GradOnPart
from mu2_optax._gradients.same_sample import gradient_at
from mu2_optax._internal.tree_checks import check_gradient, check_params, check_update
from mu2_optax._internal.trees import (
    cast_like,
    copied_like,
    per_leaf,
    stored_copy,
    stored_zeros,
    updated_in_place,
    widened,
)
from mu2_optax._internal.types import Batch, GradFn, Memory, Params, ScalarOrSchedule, Tree, Updates
from mu2_optax._paper.weights import AdaptiveBeta, StepGradients, as_adaptive, check_beta


class CorrectedMomentumState(NamedTuple):
    """State of :func:`corrected_momentum`.

    Attributes:
      t: The number of steps taken.
      x: The point of the last gradient: the params that were given to the last ``update``.
      d: The estimate of the gradient there.
      beta_memory: What ``beta`` remembers; None for a number or a schedule.
    """

    t: jax.Array
    x: Tree
    d: Tree
    beta_memory: Memory = None


def corrected_momentum(
    beta: ScalarOrSchedule | AdaptiveBeta, *, state_dtype: DTypeLike | None = None
) -> optax.GradientTransformationExtraArgs:
    r"""Turns gradients into STORM's estimate, whose error shrinks as the steps do.

    .. math:: d_t = g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}), \qquad d_1 = g_1

    Here :math:`g_t = \nabla f(x_t; z_t)` is ``updates``, :math:`x_t` is ``params``, and
    :math:`\tilde g_{t-1} = \nabla f(x_{t-1}; z_t)` is the gradient at the previous params on the
    *same* sample: ``grad_fn(state.x, batch)``, or ``prev_grads`` if that is given.

    It costs two gradients a step, or little more than one if the previous gradient is taken on a
    part of the batch: see the ``part`` of :func:`value_and_grad`.

    Whatever changes a gradient (clipping, weight decay) must come after this transform or be a part
    of ``grad_fn``; before it, the previous gradient would not get the same change, and the
    recursion would break silently.

    Args:
      beta: β in [0, 1], a number or a schedule. 1 is the plain gradient; the closer to 0, the more
        of the past is kept.
      state_dtype: The dtype of d, and of the iterate in optimizers that average. By default that of
        the params, but at least float32: in bfloat16 each step adds a rounding error of up to
        0.4%, which fades only at the rate β. x is never narrower than the params, because the
        correction is only as exact as the point it is taken at.

    Returns:
      A transform whose ``update`` also takes ``grad_fn`` and ``batch``, or ``prev_grads``.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: (x - z) ** 2)
      >>> tx = optax.chain(mu2_optax.corrected_momentum(0.1), optax.clip(1.0), optax.sgd(0.1))
      >>> params = jnp.array(1.0)
      >>> state = tx.init(params)
      >>> for batch in [3.0, 5.0]:
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     params = optax.apply_updates(params, updates)
      >>> round(float(params), 3)
      1.2

    References:
      Cutkosky and Orabona, `Momentum-Based Variance Reduction in Non-Convex SGD
      <https://arxiv.org/abs/1905.10018>`_, NeurIPS 2019
    """
    return checked_estimate("corrected_momentum", beta, state_dtype)


def checked_estimate(
    optimizer: str, beta: ScalarOrSchedule | AdaptiveBeta, state_dtype: DTypeLike | None
) -> optax.GradientTransformationExtraArgs:
    """:func:`corrected_momentum` under the name of an ``optimizer``, for errors."""
    estimate = estimate_of(optimizer, beta, state_dtype)

    def init(params: Params) -> CorrectedMomentumState:
        check_params(params)
        return estimate.init(params)

    def update(
        updates: Updates, state: CorrectedMomentumState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, CorrectedMomentumState]:
        check_update(updates, state, params, CorrectedMomentumState, like="x")
        d, state = estimate.update(updates, state, params, **extra_args)
        return cast_like(d, params), state

    return optax.GradientTransformationExtraArgs(init, update)


def estimate_of(
    optimizer: str, beta: ScalarOrSchedule | AdaptiveBeta, state_dtype: DTypeLike | None
) -> optax.GradientTransformationExtraArgs:
    """:func:`checked_estimate` inside an ``optimizer`` that has checked params and gradients.

    Its updates, d, are not rounded to the dtypes of params.
    """
    check_beta("beta", beta)
    beta = as_adaptive(beta)

    def init(params: Params) -> CorrectedMomentumState:
        return CorrectedMomentumState(
            t=jnp.zeros([], jnp.int32),
            x=stored_copy(params, state_dtype, exact=True),
            d=stored_zeros(params, state_dtype),
            beta_memory=beta.first(params),
        )

    def update(
        updates: Updates,
        state: CorrectedMomentumState,
        params: Params = None,
        *,
        grad_fn: GradFn | None = None,
        batch: Batch = None,
        prev_grads: Updates = None,
        **extra_args: Any,
    ) -> tuple[Updates, CorrectedMomentumState]:
        del extra_args
        if prev_grads is None:
            again = GradOnPart.of(grad_fn)
            there = gradient_at(state.x, params, updates, again.on_part, batch, optimizer)
            g, g_prev, share = again.change(updates, there)
            prev_grads = again.whole(there)
        else:
            check_gradient("prev_grads", prev_grads, params)
            g, g_prev, share = updates, prev_grads, 1.0
        seen = StepGradients(g, g_prev, state.d, share)
        beta_t, memory = beta.step(state.beta_memory, state.t, seen)
        d = corrected(state.t, beta_t, updates, state.d, prev_grads)
        move, x = updated_in_place(d, copied_like(params, state.x), state.t)
        return move, CorrectedMomentumState(
            t=optax.safe_increment(state.t),
            x=x,
            d=cast_like(d, state.d),
            beta_memory=memory,
        )

    return optax.GradientTransformationExtraArgs(init, update)


def corrected(t: jax.Array, beta: jax.Array, g: Updates, d: Tree, g_prev: Updates) -> Any:
    r"""The new estimate: :math:`d_t = g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1})`.

    In the first step, at count 0, it is :math:`g_t`. It is at least in float32.
    """

    def of_leaf(g: Any, d: Any, g_prev: Any, beta: Any) -> Any:
        return g + (1 - beta) * (d - g_prev)

    g = widened(g)
    betas = per_leaf(jnp.where(t == 0, 1, beta), g)
    return jax.tree.map(of_leaf, g, widened(d), widened(g_prev), betas)
