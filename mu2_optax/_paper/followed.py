"""Where the average and the iterate are, given what the params are now, and where they go."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mu2_optax._internal.sample import Sample
from mu2_optax._internal.trees import held, inverse_or_zero, leaves_like, refined, rounded, widened
from mu2_optax._internal.types import Params, Tree

_JUMP = 3.0  # how many times as far from the average as the last step left them


class Followed(NamedTuple):
    """Where the params are beside the average.

    Attributes:
      y: The params in full precision.
      apart: y − x, and 0 where it is not finite. Here x is the average that the state holds.
      jumped: Whether something else than the last step has moved the params by a jump.
      kept: 1 − j: the share of y − x that remains after the average has moved.
      lead: 1/λ, how many times as far from the average w is; 1 if λ was 0.
    """

    y: Any
    apart: Any
    jumped: jax.Array
    kept: jax.Array
    lead: jax.Array


def followed(params: Params, state: Any, gamma: jax.Array) -> tuple[Followed, jax.Array]:
    r"""Where the params are, and a sample of the average after its own move towards them.

    .. math:: x \leftarrow x + j\,(y - x)

    Before the first step, and after one that led to the average itself (λ = 0), j is 1. Otherwise
    it is 0, unless the params have jumped, to more than three times :math:`\ell`, which is how far
    from the average the last step left them, and what rounding makes of it. Then it is
    :math:`1 - \ell/\|y - x\|`.

    .. math:: \ell = \|y' - x'\| = \lambda\,\frac{1 - \gamma}{\gamma}\,\|x' - x\|

    Args:
      params: The params y.
      state: That of ``anytime``.
      gamma: γ of the last step.
    """
    y, apart = _each(_followed_leaf, 2, params, state.x, state.y)
    sample = Sample(params)
    x = sample(state.x)
    now = sample.size(_finite(_sampled(params, state, sample) - x))
    further = state.ahead * (1 - gamma) * inverse_or_zero(gamma)
    rounding = (1 + further) * jnp.finfo(x.dtype).eps * sample.size(x)
    left = further * sample.size(x - state.before) + rounding
    at_average = (state.t == 0) | (state.ahead == 0)
    jumped = (gamma > 0) & ((left > 0) | at_average) & (now > _JUMP * left)
    kept = jnp.where(jumped, left * inverse_or_zero(now), 1)
    kept = jnp.where(at_average, 0, kept).astype(float)
    lead = jnp.where(state.ahead > 0, inverse_or_zero(state.ahead), 1)
    found = Followed(y, apart, jumped, kept, lead)
    return found, average_on(params, state, found, sample)


def average_on(params: Params, state: Any, place: Followed, sample: Sample) -> jax.Array:
    """A sample of the average.

    It is made of samples of what is stored: an array that is computed first and sliced then would
    be written as a whole.
    """
    y = _sampled(params, state, sample)
    return y - place.kept.astype(y.dtype) * _finite(y - sample(state.x))


def _sampled(params: Params, state: Any, sample: Sample) -> jax.Array:
    """A sample of the params in full precision."""
    y = sample(params)
    if state.y is None:
        return y
    pairs = zip(jax.tree.leaves(params), leaves_like(params, state.y), strict=True)
    wide = sample.taken([p if y is None else y for p, y in pairs])
    return y + sample.stacked(list(map(_low, sample.taken(params), wide)))


@functools.partial(jax.jit, inline=True)
def _followed_leaf(p: Any, x: jax.Array, kept: Any) -> tuple[jax.Array, jax.Array]:
    y = jnp.asarray(p).astype(x.dtype)
    if kept is not None:
        y = y + _low(p, kept)
    return y, _finite(y - x)


def _low(p: Any, y: jax.Array) -> jax.Array:
    """What rounding y to the dtype of p takes from it."""
    return _difference(y, rounded(y, jnp.result_type(p)))


def iterate(place: Followed) -> Any:
    r"""w, after the average has moved.

    .. math:: w = x + j\,(y - x) + \frac{1 - j}{\lambda}\,(y - x)
    """
    (lead,) = held(place.kept * (place.lead - 1))
    return jax.tree.map(lambda y, e: y + lead.astype(e.dtype) * e, place.y, place.apart)


def moved(
    params: Params,
    place: Followed,
    step: Any,
    gamma: jax.Array,
    ahead: jax.Array,
    x: Any,
    y: Any,
) -> tuple[Any, Any, Any]:
    r"""The update of the params, the new x, and the new y where params are narrower.

    .. math::
      y' &= x + \kappa\,(w' - x) = y + (1 - j)\,(\kappa/\lambda - 1)\,(y - x)
        + \kappa \cdot \text{step}, \qquad \kappa = \gamma + \lambda'\,(1 - \gamma) \\
      x' &= x + \gamma\,(w' - x) = y' - q\,(1 - \gamma/\kappa)\,(y' - x), \qquad
      q = \frac{(1 - j)\,\kappa}{j\,\lambda + (1 - j)\,\kappa}

    Here w' is w and its step, and q is 1 without a jump. (With a jump, x' is nearer to y' than it
    would have to be, by less than the step.) The new x is computed from the new y and the old x
    alone, so that each can overwrite the old one. Where params are narrower than the state, y' is
    stored, and the update leads to the rounded y'. A coordinate that is not finite stays.

    Args:
      params: The params.
      place: Where they are.
      step: The step of w.
      gamma: γ.
      ahead: λ', how far ahead of the average the new params are.
      x: The average that the state holds.
      y: The params in full precision, as the last step left them, where they are narrower.
    """
    further = gamma + ahead * (1 - gamma)
    ratio = further * place.lead
    q = jnp.where(place.jumped, place.kept * ratio / (1 - place.kept + place.kept * ratio), 1)
    wide = held(place.kept * (ratio - 1), further, q * (1 - gamma / further))
    narrow = held(place.kept, place.kept * place.lead, gamma, ahead)
    return _each(_moved_leaf, 3, params, x, place.y, place.apart, step, y, wide=wide, narrow=narrow)


@functools.partial(jax.jit, inline=True)
def _moved_leaf(
    p: Any, x: Any, y: Any, apart: Any, step: Any, kept_y: Any, wide: Any, narrow: Any
) -> tuple[jax.Array, jax.Array, Any]:
    dtype, step = jnp.result_type(p), step.astype(y.dtype)
    if kept_y is None:
        back, further, behind = (s.astype(y.dtype) for s in wide)
        move = back * apart + further * step
        new = y + move
        return move.astype(dtype), new - behind * _finite(new - x), None
    kept, lead, gamma, ahead = (s.astype(y.dtype) for s in narrow)
    before, step = y - kept * apart, lead * apart + step
    x = before + gamma * step
    y = x + ahead * (step - gamma * step)
    change = _difference(rounded(y, dtype), jnp.asarray(p).astype(y.dtype))
    return change.astype(dtype), x, y


def from_params_at_first(params: Params, stored: Tree, t: jax.Array) -> Any:
    """A stored iterate, or the params before the first step, which may have been loaded since."""
    first = lambda p, w: jax.lax.select(t == 0, jnp.asarray(p).astype(w.dtype), w)
    return jax.tree.map(first, params, stored)


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


def _difference(a: jax.Array, b: jax.Array) -> jax.Array:
    """How far a is beyond b; 0 where both are the same infinity."""
    return jnp.where(a == b, 0, a - b)
