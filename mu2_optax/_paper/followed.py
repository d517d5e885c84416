"""Where the average and the iterate are, given what the params are now, and where they go."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from mu2_optax._internal.trees import leaves_like, refined, rounded, widened
from mu2_optax._internal.types import Params, Tree


def from_params_at_first(params: Params, stored: Tree, t: jax.Array) -> Any:
    """A stored iterate, or the params before the first step, which may have been loaded since."""
    first = lambda p, w: jax.lax.select(t == 0, jnp.asarray(p).astype(w.dtype), w)
    return jax.tree.map(first, params, stored)


def average_on(params: Params, state: Any, sample: Callable[[Tree], jax.Array]) -> jax.Array:
    """A sample of the average x.

    It is made of samples of what is stored: an array that is computed first and sliced then would
    be written as a whole.
    """
    y = jax.tree.leaves(params)
    stored = leaves_like(params, state.x)
    x = sample([p if kept is None else kept for p, kept in zip(y, stored, strict=True)])
    return jnp.where(state.t == 0, sample(y).astype(x.dtype), x)


def followed(params: Params, state: Any) -> tuple[Any, Any]:
    r"""The average x, and how far the iterate w is ahead of it, given what the params y are now.

    .. math:: w - x = (y - x)/\lambda

    Before the first step, x and w are y. Where w is stored, because params are narrower than the
    state, it moves by :math:`1/\lambda` times what y is beside the rounded :math:`x + \lambda
    (w - x)`.
    """
    first, ahead = state.t == 0, state.ahead
    return _each(_followed_leaf, 2, params, state.x, state.w, first=first, ahead=ahead)


@functools.partial(jax.jit, inline=True)
def _followed_leaf(
    p: Any, x: jax.Array, w: Any, first: jax.Array, ahead: jax.Array
) -> tuple[jax.Array, jax.Array]:
    y, ahead = jnp.asarray(p).astype(x.dtype), ahead.astype(x.dtype)
    if w is None:
        x = jnp.where(first, y, x)
        return x, _finite((y - x) / ahead)
    moved = y - rounded(x + ahead * (w - x), jnp.result_type(p))
    lead = jnp.where(first, 0, w - x + moved / ahead)
    return jnp.where(first, y, x), _finite(lead)


def moved(
    params: Params, x: Any, lead: Any, step: Any, gamma: jax.Array, state: Any
) -> tuple[Any, Any, Any]:
    r"""The update of the params, the new x, and the new w where it is stored.

    .. math::
      x' &= x + \gamma\,(w' - x) = x + \frac{\gamma}{\kappa}\,(y' - x), \qquad
      y' = x' + \lambda\,(w' - x') = x + \kappa\,(w' - x), \qquad
      \kappa = \gamma + \lambda\,(1 - \gamma)

    The new x is computed from the new y, so that each of the two can overwrite the old one. Where
    params are narrower than the state, the update leads to the rounded y', so that the next step
    can tell whether something else has moved them. A coordinate that is not finite stays.
    """
    further = gamma + state.ahead * (1 - gamma)
    scalars = (gamma, state.ahead, further, gamma / further)
    function = functools.partial(_moved_leaf, scalars=scalars)
    moves, x, w = _each(function, 3, params, x, lead, step, state.w)
    return moves, x, None if state.w is None else w


@functools.partial(jax.jit, inline=True)
def _moved_leaf(
    p: Any, x: Any, lead: Any, step: Any, stored: Any, scalars: tuple[jax.Array, ...]
) -> tuple[jax.Array, jax.Array, Any]:
    dtype, y = jnp.result_type(p), jnp.asarray(p).astype(x.dtype)
    step = step.astype(x.dtype)
    gamma, ahead, further, share = (s.astype(x.dtype) for s in scalars)
    if stored is None:
        move = (further - ahead) * lead + further * step
        return move.astype(dtype), x + share * _finite(y + move - x), None
    lead = lead + step
    change = gamma * lead
    new, lead = x + change, lead - change
    w = new + lead
    target = rounded(new + ahead * (w - new), dtype)
    move = jnp.where(jnp.isfinite(y), target - y, 0).astype(dtype)
    return move, new, w


def averaged(params: Params, stored: Any, w: Any, gamma: jax.Array) -> tuple[Any, Any]:
    r"""The update of the params, which are the average x, and the new x where it is stored.

    .. math:: x' = x + \gamma\,(w' - x)

    Args:
      params: The average, rounded where they are narrower than the state.
      stored: What :func:`stored_average`, or the last call, returned.
      w: The new iterate.
      gamma: γ.

    Returns:
      The update, in the dtypes of params. Where x is stored, it leads to the rounded x, so that the
      next step can tell whether something else has moved the params.
    """
    moves, x = _each(_averaged_leaf, 2, params, stored, w, gamma=gamma)
    return moves, None if stored is None else x


@functools.partial(jax.jit, inline=True)
def _averaged_leaf(p: Any, stored: Any, w: Any, gamma: jax.Array) -> tuple[jax.Array, Any]:
    dtype, x = jnp.result_type(p), widened(refined(p, stored))
    change = gamma.astype(x.dtype) * (w.astype(x.dtype) - x)
    if stored is None:
        return change.astype(dtype), None
    x = x + change
    move = rounded(x, dtype) - jnp.asarray(p).astype(x.dtype)
    return move.astype(dtype), x.astype(stored.dtype)


def _each(
    function: Callable[..., Any], results: int, params: Params, *trees: Any, **scalars: Any
) -> Any:
    """What ``function`` gives for each leaf of params and what the trees hold there, as trees."""
    leaves, structure = jax.tree.flatten(params)
    each = zip(leaves, *(leaves_like(params, tree) for tree in trees), strict=True)
    found = [function(*leaf, **scalars) for leaf in each]
    columns = [[leaf[i] for leaf in found] for i in range(results)]
    return tuple(_tree(structure, leaves) for leaves in columns)


def _tree(structure: Any, leaves: list[Any]) -> Any:
    """A tree, but None if it would hold nothing else: a node of a user may take only arrays."""
    nothing = leaves and all(leaf is None for leaf in leaves)
    return None if nothing else jax.tree.unflatten(structure, leaves)


def _finite(a: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(a), a, 0)
