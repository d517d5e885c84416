"""The average as the params, for loops that return params and not the optimizer's state."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import check_integer, check_transform
from mu2_optax._internal.tree_checks import check_gradient, check_params, check_state
from mu2_optax._internal.trees import cast_like
from mu2_optax._internal.types import OptState, Params, Transform, Tree, Updates
from mu2_optax._reading.find import eval_params


class ShowAverageState(NamedTuple):
    """State of :func:`show_average`.

    Attributes:
      t: The number of steps taken.
      params: The params that ``inner`` moves, in their own dtype.
      inner_state: The state of ``inner``.
    """

    t: jax.Array
    params: Tree
    inner_state: OptState


def show_average(inner: optax.GradientTransformation, every: int) -> Transform[ShowAverageState]:
    r"""Moves the params to the average after each ``every`` steps, and back in the next one.

    .. math:: p_t = x_t \text{ for } t = n, 2n, 3n, \dots \qquad p_t = y_t \text{ otherwise}

    Here n is ``every``, :math:`p` are the params of the loop, :math:`y` those of ``inner``, which
    the state keeps, and :math:`x` is ``eval_params(inner_state, y)``. It is for a loop inside a
    library that validates, keeps or returns its params and hands out no state: let ``every`` be the
    number of steps after which it looks at them, such as those of an epoch or of the whole run. The
    price is a copy of the params, and that one gradient in n is taken at x instead of y.

    ``update(grads, state)`` works without params as well. If they are given, a change that the loop
    makes to them between two steps is made to :math:`y` too.

    Args:
      inner: An optimizer that averages, such as :func:`mu2_auto`, by itself or in a chain.
      every: A number of steps.

    Returns:
      A transform; extra args are passed to ``inner``. Its state is a :class:`ShowAverageState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> def fit(tx, params):  # as in a library
      ...     state = tx.init(params)
      ...     for _ in range(10):
      ...         updates, state = jax.jit(tx.update)(2 * params, state)
      ...         params = optax.apply_updates(params, updates)
      ...     return params
      >>> average = fit(mu2_optax.show_average(mu2_optax.mu2_auto(), 10), jnp.array([1.0, 2.0]))
    """
    check_transform("inner", inner)
    check_integer("every", every, 1, "it is a number of steps, such as those of an epoch.")
    inner = optax.with_extra_args_support(inner)

    def init(params: Params) -> ShowAverageState:
        check_params(params)
        inner_state = inner.init(params)
        jax.eval_shape(eval_params, inner_state, params)  # which says if there is no average
        return ShowAverageState(
            jnp.zeros([], jnp.int32), jax.tree.map(jnp.copy, params), inner_state
        )

    def update(
        updates: Updates, state: ShowAverageState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, ShowAverageState]:
        check_state(state, ShowAverageState)
        before = shown(state)
        y = state.params
        if params is not None:
            check_params(params)
            check_gradient("grads", updates, params)
            y = jax.tree.map(lambda y, p, before: p + (y - before), y, params, before)
            before = params
        moves, inner_state = inner.update(updates, state.inner_state, y, **extra_args)
        y = optax.apply_updates(y, moves)
        state = ShowAverageState(optax.safe_increment(state.t), y, inner_state)
        return cast_like(optax.tree.sub(shown(state), before), y), state

    def shown(state: ShowAverageState) -> Tree:
        """What the loop has for params after a step."""
        at_average = jnp.logical_and(state.t > 0, state.t % every == 0)
        average = eval_params(state.inner_state, state.params)
        choose = lambda x, y: jnp.where(at_average, x, y)
        return jax.tree.map(choose, average, state.params)

    return optax.GradientTransformationExtraArgs(init, update)
