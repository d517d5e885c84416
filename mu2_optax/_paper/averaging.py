"""Anytime averaging: gradients are taken at the running average of the iterates, or near it."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from mu2_optax._internal.checks import check_below_one, check_transform, check_unit_interval
from mu2_optax._internal.sample import Sample
from mu2_optax._internal.sharding import varying_like
from mu2_optax._internal.tree_checks import (
    SettingError,
    check_inner_state,
    check_like,
    check_params,
    check_state,
    check_update,
)
from mu2_optax._internal.trees import (
    add,
    cast_like,
    refined,
    stored_average,
    stored_copy,
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
from mu2_optax._paper.followed import (
    average_on,
    averaged,
    followed,
    from_params_at_first,
    iterate,
    moved,
)
from mu2_optax._paper.projections import Projection, as_projection
from mu2_optax._paper.weights import as_schedule, weight_at


class AnytimeState(NamedTuple):
    """State of :func:`anytime`.

    What follows from the params is not in the state: x without ``ahead``, and w with it.

    Attributes:
      t: The number of steps taken.
      w: The iterate that ``inner`` moves; None with ``ahead``.
      inner_state: The state of ``inner``.
      x: The average; without ``ahead`` None where it is the params, for a leaf or for all of them.
      ahead: λ; None if it is 0, and so are the next two.
      before: A sample of the average before the last step.
      y: The params in full precision, where they are narrower than the state; None where they are
        not, for a leaf or for all of them.
    """

    t: jax.Array
    w: Tree
    inner_state: OptState
    x: Tree = None
    ahead: jax.Array | None = None
    before: jax.Array | None = None
    y: Tree = None


def anytime(
    inner: optax.GradientTransformation,
    gamma: ScalarOrSchedule,
    *,
    ahead: Scalar | Callable[[OptState], jax.Array] = 0.0,
    projection: Projection | None = None,
    state_dtype: DTypeLike | None = None,
) -> Transform[AnytimeState]:
    r"""Moves an iterate w with ``inner``, and the params to the running average x of the iterates.

    .. math::
      w_{t+1} &= \Pi(w_t + \text{inner}(g_t, w_t)) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t) \\
      y_{t+1} &= x_{t+1} + \lambda\,(w_{t+1} - x_{t+1})

    Here :math:`y` is ``params``, where gradients are taken, :math:`\Pi` is ``projection`` and
    :math:`\lambda` is ``ahead``. With :math:`\lambda = 0` the params are the average x, and w is
    ``state.w``; otherwise the average is ``state.x``, which ``eval_params(state)`` finds, and x and
    w follow from what the params are now:

    .. math::
      x_t \leftarrow x_t + j\,(y_t - x_t), \qquad
      w_t = x_t + (y_t - x_t)/\lambda, \qquad
      j = \begin{cases}
        1 & t = 0 \\
        1 - \ell_t/\|y_t - x_t\| & \|y_t - x_t\| > 3\,\ell_t \\
        0 & \text{otherwise}
      \end{cases}

    So whatever else the loop does to the params (clipping, masks, norms) reaches w in this step,
    and x stays an average of points that the loop allowed. Before the first step, all of them are
    what the params are then. :math:`\ell_t` is :math:`\|y_t - x_t\|` as the last step left it:
    params that are more than three times as far from the average now have jumped, at least in part
    (another checkpoint, another order of the units, a layer reset), and the average goes with
    them. Both lengths are root mean squares of a sample. In a step with a jump, and in the first
    one of params that were loaded after ``init``, the new x is the new y up to a part of the step.

    ``inner`` gets w as its params, because w is what it moves (weight decay and trust ratios are
    those of w), and it may take ``average``, a function from a function of trees, such as one that
    takes a sample, to its value at x. With :math:`\gamma_t = \alpha_t/\alpha_{1:t}`, x is the
    α-weighted mean of the iterates.

    Args:
      inner: Any Optax optimizer.
      gamma: γ in [0, 1]: a number, a schedule, or the ``gamma`` of a :class:`DoubleMomentum`. 1
        means no averaging. As everywhere, ``gamma(count)`` is :math:`\gamma_{count+1}`, so the
        first step uses ``gamma(1)``.
      ahead: λ in [0, 1): how far ahead of the average, towards the iterate, gradients are taken. A
        function from the new state of ``inner`` gives another λ in (0, 1) for each step.
      projection: A function from tree to tree that projects w onto the set.
      state_dtype: The dtype of w without ``ahead``; see :func:`corrected_momentum`.

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
    if callable(ahead):
        lead = ahead
    else:
        remedy = "at 1 the params would be the iterate, and gradients not near the average."
        check_below_one("ahead", ahead, remedy)
        lead = optax.constant_schedule(ahead)
    at_average = not (callable(ahead) or isinstance(ahead, jax.core.Tracer)) and float(ahead) == 0
    if state_dtype is not None and not at_average:
        raise ValueError(
            f"`state_dtype` must be None with `ahead`, got {state_dtype!r}: the state then holds "
            "the average, which would stall in a narrower dtype; leave one of them out."
        )
    inner = optax.with_extra_args_support(inner)
    check_unit_interval("gamma", gamma)
    gamma = as_schedule(gamma)
    project = as_projection(projection)

    def init(params: Params) -> AnytimeState:
        check_params(params)
        w, narrow = stored_copy(params, state_dtype), stored_average(params, state_dtype)
        t, inner_state = jnp.zeros([], jnp.int32), inner.init(w)
        if at_average:
            return AnytimeState(t, w, inner_state, narrow)
        first = jnp.asarray(lead(inner_state), float)
        before = varying_like(Sample(params)(w), params)
        return AnytimeState(t, None, inner_state, w, first, before, narrow)

    def update(
        updates: Updates, state: AnytimeState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, AnytimeState]:
        check_state(state, AnytimeState)
        _check_ahead(at_average, state)
        check_update(updates, state, params, AnytimeState, like="w" if at_average else "x")
        if at_average:
            w = from_params_at_first(params, state.w, state.t)
            extra_args["average"] = lambda sample: sample(refined(params, state.x))
        else:
            last = weight_at(gamma, jnp.maximum(state.t, 1))
            place, before = followed(params, state, last)
            w = iterate(place)
            extra_args["average"] = functools.partial(average_on, params, state, place)
        try:
            step, inner_state = inner.update(
                cast_like(updates, w), state.inner_state, w, **extra_args
            )
        except SettingError:
            raise
        except (AttributeError, TypeError, ValueError):
            check_inner_state(inner, w, state.inner_state)
            raise
        check_like("the step of `inner`", step, w, "A learning rate is a single number.")
        t = optax.safe_increment(state.t)
        share = weight_at(gamma, t)
        if at_average:
            w = cast_like(project(add(w, step)), w)
            move, x = averaged(params, state.x, w, share)
            return move, AnytimeState(t, w, inner_state, x)
        if projection is not None:
            step = jax.tree.map(_change, project(add(w, step)), w)
        new = jnp.asarray(lead(inner_state), float)
        move, x, y = moved(params, place, step, share, new, state.x, state.y)
        return move, AnytimeState(t, None, inner_state, x, new, before, y)

    return optax.GradientTransformationExtraArgs(init, update)


def _change(new: Any, old: Any) -> jax.Array:
    """How far a projected iterate has moved; not at all where it is not finite."""
    return jnp.where(jnp.isfinite(old), new - old, 0)


def _check_ahead(at_average: bool, state: AnytimeState) -> None:
    """Requires a state that was made with λ = 0 or without, as ``anytime`` is."""
    if at_average != (state.ahead is None):
        made = "0" if state.ahead is None else "another number"
        raise SettingError(
            f"`state` must be one that the same `ahead` made, got one of `ahead` = {made}; build "
            "the optimizer that made it, or call `init` again."
        )
