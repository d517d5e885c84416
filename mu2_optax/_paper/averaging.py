"""Anytime averaging: gradients are taken at the running average of the iterates, or near it."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from mu2_optax._internal.checks import check_below_one, check_transform, check_unit_interval
from mu2_optax._internal.tree_checks import (
    check_inner_state,
    check_like,
    check_params,
    check_update,
)
from mu2_optax._internal.trees import (
    add,
    cast_like,
    leaves_like,
    refined,
    rounded,
    stored_average,
    stored_copy,
    widened,
)
from mu2_optax._internal.types import (
    OptState,
    Params,
    Scalar,
    ScalarOrSchedule,
    Transform,
    Tree,
    Updates,
)
from mu2_optax._paper.projections import Projection, as_projection
from mu2_optax._paper.weights import as_schedule, weight_at


class AnytimeState(NamedTuple):
    """State of :func:`anytime`.

    Attributes:
      t: The number of steps taken.
      w: The iterate that ``inner`` moves.
      inner_state: The state of ``inner``.
      x: The average in the precision of the state, for the leaves whose params are narrower than
        that; None for the other leaves, whose average follows from the params. If no params are
        narrower, the whole tree is None.
      ahead: λ; None if it is 0, because params are then the average.
    """

    t: jax.Array
    w: Tree
    inner_state: OptState
    x: Tree = None
    ahead: jax.Array | None = None


def anytime(
    inner: optax.GradientTransformation,
    gamma: ScalarOrSchedule,
    *,
    ahead: Scalar = 0.0,
    projection: Projection | None = None,
    state_dtype: DTypeLike | None = None,
) -> Transform[AnytimeState]:
    r"""Moves an iterate w with ``inner``, and the params to the running average x of the iterates.

    .. math::
      w_{t+1} &= \Pi(w_t + \text{inner}(g_t, w_t)) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t) \\
      y_{t+1} &= x_{t+1} + \lambda\,(w_{t+1} - x_{t+1})

    Here :math:`y` is ``params``, where gradients are taken, :math:`w` is ``state.w``, :math:`\Pi`
    is ``projection`` and :math:`\lambda` is ``ahead``. With :math:`\lambda = 0` the params are the
    average x; otherwise ``eval_params(state, params)`` is. ``inner`` gets w as its params, because
    w is what it moves: weight decay and trust ratios are those of w. With :math:`\gamma_t =
    \alpha_t/\alpha_{1:t}`, x is the α-weighted mean of the iterates.

    Args:
      inner: Any Optax optimizer.
      gamma: γ in [0, 1]: a number, a schedule, or the ``gamma`` of a :class:`DoubleMomentum`. 1
        means no averaging. As everywhere, ``gamma(count)`` is :math:`\gamma_{count+1}`, so the
        first step uses ``gamma(1)``.
      ahead: λ in [0, 1): how far ahead of the average, towards the iterate, gradients are taken.
      projection: A function from tree to tree that projects w onto the set.
      state_dtype: The dtype of w; see :func:`corrected_momentum`.

    Returns:
      A transform; extra args are passed to ``inner``.

    Examples:
      >>> import jax.numpy as jnp, optax, mu2_optax
      >>> tx = mu2_optax.anytime(optax.adam(0.1), mu2_optax.polynomial_momentum(0).gamma)
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> for _ in range(3):
      ...     updates, state = tx.update(2 * params, state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> [round(float(p), 2) for p in params]  # the mean of 1, 0.9, 0.8, 0.7; and of one more each
      [0.85, 1.85]

    References:
      Cutkosky, `Anytime Online-to-Batch, Optimism and Acceleration
      <https://arxiv.org/abs/1903.00974>`_, ICML 2019; Defazio et al., `The Road Less Scheduled
      <https://arxiv.org/abs/2405.15682>`_, NeurIPS 2024, for points ahead of the average
    """
    check_transform("inner", inner)
    check_below_one(
        "ahead",
        ahead,
        "at 1 the params would be the iterate, and the average could not be recovered from them.",
    )
    inner = optax.with_extra_args_support(inner)
    check_unit_interval("gamma", gamma)
    gamma = as_schedule(gamma)
    project = as_projection(projection)

    def init(params: Params) -> AnytimeState:
        check_params(params)
        w = stored_copy(params, state_dtype)
        x = stored_average(params, state_dtype)
        share = None if _is_zero(ahead) else jnp.asarray(ahead, float)
        return AnytimeState(jnp.zeros([], jnp.int32), w, inner.init(w), x, share)

    def update(
        updates: Updates, state: AnytimeState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, AnytimeState]:
        check_update(updates, state, params, AnytimeState, like="w")
        try:
            step, inner_state = inner.update(
                cast_like(updates, state.w), state.inner_state, state.w, **extra_args
            )
        except (AttributeError, TypeError, ValueError):
            check_inner_state(inner, state.w, state.inner_state)
            raise
        check_like("the step of `inner`", step, state.w, "A learning rate is a single number.")
        w = cast_like(project(add(state.w, step)), state.w)
        t = optax.safe_increment(state.t)
        change = step if projection is None else optax.tree.sub(w, state.w)
        move, x = averaged(params, state.x, w, weight_at(gamma, t), change, state.ahead)
        return move, AnytimeState(t, w, inner_state, x, state.ahead)

    return optax.GradientTransformationExtraArgs(init, update)


def averaged(
    params: Params,
    stored: Any,
    w: Any,
    gamma: jax.Array,
    change: Any = None,
    ahead: jax.Array | None = None,
) -> tuple[Any, Any]:
    r"""The update of params for :math:`x + \gamma (w - x)`, and the new x where it is stored.

    Args:
      params: y, which is x without ``ahead``.
      stored: What :func:`stored_average`, or the last call, returned.
      w: The new iterate.
      gamma: γ.
      change: How far w has moved; only needed with ``ahead``.
      ahead: λ, or None for 0.

    Returns:
      The update, in the dtypes of params. Where x is stored, it leads to the rounded y, so that
      the next step can tell whether something else has moved the params. Elsewhere, x is not
      needed:

      .. math:: y_{t+1} - y_t = \gamma (w_{t+1} - y_t) + \lambda (1 - \gamma)(w_{t+1} - w_t)

      With ``ahead``, a coordinate that is not finite stays as it is.
    """
    leaves, structure = jax.tree.flatten(params)
    none = [None] * len(leaves)
    each = zip(
        leaves,
        none if stored is None else leaves_like(params, stored),
        leaves_like(params, w),
        none if change is None else leaves_like(params, change),
        strict=True,
    )
    moved = [_averaged_leaf(*leaf, gamma, ahead) for leaf in each]
    moves = jax.tree.unflatten(structure, [move for move, _ in moved])
    xs = None if stored is None else jax.tree.unflatten(structure, [x for _, x in moved])
    return moves, xs


def _averaged_leaf(
    p: Any, stored: Any, w: Any, change: Any, gamma: jax.Array, ahead: jax.Array | None
) -> tuple[Any, Any]:
    dtype = jnp.result_type(p)
    if stored is None:
        y = widened(p)
        w = w.astype(y.dtype)
        move = gamma.astype(y.dtype) * (w - y)
        if ahead is not None:
            move = move + (ahead * (1 - gamma)).astype(y.dtype) * change.astype(y.dtype)
            move = jnp.where(jnp.isfinite(y), move, 0)
        return move.astype(dtype), None
    w = w.astype(stored.dtype)
    last_w = None if ahead is None else w - change.astype(stored.dtype)
    x = average_of(p, stored, last_w, ahead)
    x = x + gamma.astype(x.dtype) * (w - x)
    y = x if ahead is None else x + ahead.astype(x.dtype) * (w - x)
    target = rounded(y, dtype)
    return (target - jnp.asarray(p).astype(target.dtype)).astype(dtype), x.astype(stored.dtype)


def average_of(p: Any, stored: Any, w: Any, ahead: jax.Array | None) -> jax.Array:
    r"""The average x of a leaf of params in full precision.

    It is the stored one; where none is stored, or something else has moved the params, it is
    :math:`(y - \lambda w)/(1 - \lambda)`.
    """
    if ahead is None:
        return widened(refined(p, stored))
    y = widened(p) if stored is None else jnp.asarray(p).astype(stored.dtype)
    share = ahead.reshape(ahead.shape + (1,) * (y.ndim - ahead.ndim)).astype(y.dtype)
    w = w.astype(y.dtype)
    x = (y - share * w) / (1 - share)
    if stored is not None:
        known = rounded(stored + share * (w - stored), jnp.result_type(p))
        x = jnp.where(y == known, stored, x)
    return jnp.where(jnp.isfinite(w), x, y)


def _is_zero(ahead: Any) -> bool:
    return not isinstance(ahead, jax.core.Tracer) and float(ahead) == 0
