"""Anytime averaging: gradients are taken at the running average of the iterates."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._checks import (
    check_gradient,
    check_inner_state,
    check_like,
    check_params,
    check_state,
    check_stored,
    check_transform,
)
from mu2_optax._projections import Projection, as_projection
from mu2_optax._trees import (
    add,
    cast_like,
    refined,
    rounded,
    scaled,
    stored_average,
    stored_copy,
    subtract,
    widened,
)
from mu2_optax._types import Transform, Tree
from mu2_optax._weights import ScalarOrSchedule, Weight, as_weight, check_weight


class AnytimeState(NamedTuple):
    """State of :func:`anytime`.

    Attributes:
      t: The number of steps taken.
      w: The iterate that ``inner`` moves.
      inner_state: The state of ``inner``.
      x: The average in the precision of the state, where params are narrower than that; otherwise
        None, because params are the average.
      gamma_memory: What ``gamma`` remembers; None for a number or a schedule.
    """

    t: jax.Array
    w: Tree
    inner_state: Any
    x: Tree = None
    gamma_memory: Any = None


def anytime(
    inner: optax.GradientTransformation,
    gamma: ScalarOrSchedule | Weight,
    *,
    projection: Projection | None = None,
    state_dtype: Any = None,
) -> Transform[AnytimeState]:
    r"""Moves an iterate w with ``inner``, and the params to the running average x of the iterates.

    .. math::
      w_{t+1} &= \Pi(w_t + \text{inner}(g_t, w_t)) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Here :math:`x` is ``params``, :math:`w` is ``state.w`` and :math:`\Pi` is ``projection``.
    ``inner`` sees w as its params, because w is what it moves: weight decay and trust ratios mean
    what they say. With :math:`\gamma_t = \alpha_t/\alpha_{1:t}`, x is the α-weighted mean of the
    iterates.

    Args:
      inner: Any Optax optimizer.
      gamma: γ in [0, 1]: a number, a schedule, or the ``gamma`` of a :class:`DoubleMomentum`. 1 is
        no averaging. As everywhere, ``gamma(count)`` is :math:`\gamma_{count+1}`, so the first
        step uses ``gamma(1)``.
      projection: A function from tree to tree that projects w onto the set.
      state_dtype: The dtype of w. By default that of the params, but at least float32.

    Returns:
      A transform; extra args are passed to ``inner``.

    Examples:
      >>> import jax.numpy as jnp, optax, mu2_optax
      >>> tx = mu2_optax.anytime(optax.adam(0.1), mu2_optax.uniform_momentum().gamma)
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> for _ in range(3):
      ...     updates, state = tx.update(2 * params, state, params)
      ...     params = optax.apply_updates(params, updates)
      >>> [round(float(p), 2) for p in params]  # the mean of 1, 0.9, 0.8, 0.7; and one more
      [0.85, 1.85]

    References:
      Cutkosky, `Anytime Online-to-Batch, Optimism and Acceleration
      <https://arxiv.org/abs/1903.00974>`_, ICML 2019
    """
    check_transform("inner", inner)
    inner = optax.with_extra_args_support(inner)
    check_weight("gamma", gamma)
    gamma = as_weight(gamma)
    project = as_projection(projection)

    def init(params: Any) -> AnytimeState:
        check_params(params)
        t = jnp.zeros([], jnp.int32)
        w = stored_copy(params, state_dtype)
        _, memory = gamma.step(gamma.first(params), t)  # the weight of x_1 = w_1 itself
        return AnytimeState(t, w, inner.init(w), stored_average(params, state_dtype), memory)

    def update(
        updates: Any, state: AnytimeState, params: Any = None, **extra_args: Any
    ) -> tuple[Any, AnytimeState]:
        check_params(params)
        check_state(state, AnytimeState)
        check_stored(params, state.w)
        check_gradient("grads", updates, params)
        try:
            step, inner_state = inner.update(
                cast_like(updates, state.w), state.inner_state, state.w, **extra_args
            )
        except (AttributeError, TypeError, ValueError):
            check_inner_state(inner, state.w, state.inner_state)
            raise
        check_like("the step of `inner`", step, state.w, "A learning rate is a single number.")
        w = project(add(state.w, step))
        t = optax.safe_increment(state.t)
        share, memory = gamma.step(state.gamma_memory, t)
        move, x = averaged(params, state.x, w, share)
        return move, AnytimeState(t, cast_like(w, state.w), inner_state, x, memory)

    return optax.GradientTransformationExtraArgs(init, update)


def averaged(params: Any, stored: Any, w: Any, gamma: jax.Array) -> tuple[Any, Any]:
    r"""The update of params from x to :math:`x + \gamma (w - x)`, and the new x if it is stored.

    The update leads to the rounded x, which is how the next step knows that nothing else has moved
    the params. Only a coordinate that shrinks to a fraction of itself in one step may miss it by
    rounding; there the average goes on from where the params are.
    """
    x = widened(refined(params, stored))
    move = scaled(gamma, subtract(cast_like(w, x), x))
    if stored is None:
        return cast_like(move, params), None
    x = cast_like(add(x, move), stored)
    target = jax.tree.map(lambda p, x: rounded(x, jnp.result_type(p)), params, x)
    return cast_like(subtract(target, cast_like(params, target)), params), x
