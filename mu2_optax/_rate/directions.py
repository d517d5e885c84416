"""Directions whose size is about one, so that the learning rate alone sets the length of a step."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.masks import Mask
from mu2_optax._internal.newton_schulz import newton_schulz
from mu2_optax._internal.sample import Sample
from mu2_optax._internal.sharding import left_to_partitioner, varying_like
from mu2_optax._internal.tree_checks import check_state
from mu2_optax._internal.trees import (
    gathered,
    inverse_or_zero,
    leaves_like,
    norm,
    root,
)
from mu2_optax._internal.types import Params, Updates
from mu2_optax._rate.matrices import check_setting, matrices, never, zeros

_DECAY = 0.999
_OUTLIER = 10.0  # how many times its root mean square a gradient may be
_MOMENTUM = 0.7  # under orthogonal steps
_WALK = (1 + _MOMENTUM) / (1 - _MOMENTUM)  # how much further, in squares, it makes noise walk
_LEAST_RANK = 0.1  # a step of a lower rank counts as if it had this share of the full one
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # Jordan et al.: three rounds bring 0.02 … 1 to 0.7 … 1.2
_ROUNDS = 3


class UnitDirectionsState(NamedTuple):
    """State of :func:`unit_directions`.

    Attributes:
      t: The number of steps taken.
      inverse: One over the root mean square of each coordinate of the gradient, 0 where it has been
        zero so far; one number for each matrix whose steps are orthogonal, and one for everything
        if it is scaled together.
      momentum: m for the matrices whose steps are orthogonal, and a zero for other leaves; None
        where ``spectral`` is False.
      spread: The mean square of the last direction as noise would make it walk, from a sample of
        the coordinates that are scaled by themselves: it counts momentum and low ranks.
    """

    t: jax.Array
    inverse: Any
    momentum: Any
    spread: jax.Array


def unit_directions(
    spectral: Mask = False, *, together: bool = False
) -> optax.GradientTransformation:
    r"""Gradients scaled to a typical size of one in each coordinate.

    .. math::
      u_t = g_t / s_t, \quad s_t^2 = s_{t-1}^2 + a_t\,(g_t^2 - s_{t-1}^2)
      \qquad\text{or}\qquad
      u_t = \sqrt{\max(a, b)}\,\frac{\|m_t\|}{s_t}\,U W^\top, \quad
      m_t = g_t + 0.7\,m_{t-1} = U \Sigma W^\top \in \mathbb R^{a \times b}

    The first is the scaling of RMSProp and Adam, coordinate by coordinate, with
    :math:`a_t = 0.001/(1 - 0.999^t)`, which is about 1/t until it is 0.001; with two differences:

    - **A gradient of zero is not counted.** The row of an embedding that is seen for the first time
      in step 1000 moves by one learning rate, and not by 25, as in Adam.
    - **A gradient of more than ten times** :math:`s_{t-1}` **counts as ten times that**, so that
      one bad batch neither makes a long step nor hides the gradients of the next thousand.

    The second is for the matrices that ``spectral`` marks: all their singular values become equal
    (to within about a third, by three Newton–Schulz iterations; those below a fiftieth of the norm
    stay smaller), as in Muon. They are those of m, the gradient with a momentum, because an
    orthogonal step trusts every direction equally, and the noise of a single batch would count too
    much. s is then one number for each matrix, the root mean square of the norm of m.

    ``spread`` tells how far noise would walk along such directions: momentum makes it walk 1.7/0.3
    times as far, in squares, and a step of less than 0.1 of the full rank counts as one of 0.1. Few
    samples give gradients of a low rank: such steps are long in a few directions, but over all
    coordinates they look short, so that the rate would grow until they wreck a network.

    Args:
      spectral: Which leaves are such matrices: True for all whose last two axes are both longer
        than one, or a tree of booleans like params (or a prefix of such a tree), or a function
        from params to one.
      together: Divides the whole gradient by one number, its root mean square over steps and
        coordinates, instead of each coordinate by its own. That keeps its direction, as a
        projection onto a set needs.

    Returns:
      A transform whose updates have the sign of the gradient. Its state is a
      :class:`UnitDirectionsState`, which tells :func:`distance_rate` how far noise would walk along
      such directions.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> tx = mu2_optax.unit_directions(spectral=True)
      >>> params = {"w": jnp.eye(2), "b": jnp.zeros(2)}
      >>> grads = {"w": jnp.array([[0.0, 2.0], [-0.5, 0.0]]), "b": jnp.array([3.0, -4.0])}
      >>> updates, _ = tx.update(grads, tx.init(params), params)
      >>> updates["b"].round(3)
      Array([ 1., -1.], dtype=float32)
      >>> jnp.abs(updates["w"]).round(1).tolist()  # 2 and 0.5 have become alike
      [[0.0, 1.0], [1.0, 0.0]]

    References:
      Kingma and Ba, `Adam <https://arxiv.org/abs/1412.6980>`_, ICLR 2015; Jordan et al., `Muon: An
      optimizer for hidden layers in neural networks
      <https://kellerjordan.github.io/posts/muon/>`_, 2024; Pethick et al., `Training Deep Learning
      Models with Norm-Constrained LMOs <https://arxiv.org/abs/2502.07529>`_, ICML 2025
    """
    if together and not never(spectral):
        raise ValueError(
            "`spectral` must be False with `together=True`, which a `projection` needs, got "
            f"{spectral!r}: orthogonal steps do not keep the direction of the gradient; leave one "
            "of them out."
        )

    def init(params: Params) -> UnitDirectionsState:
        leaves, structure = jax.tree.flatten(params)
        marks = matrices(spectral, params)
        each = list(zip(leaves, marks, strict=True))
        scales = [jnp.zeros([], float)] if together else [zeros(p, mark) for p, mark in each]
        scales, spread = varying_like((scales, jnp.zeros([], float)), params)
        return UnitDirectionsState(
            t=jnp.zeros([], jnp.int32),
            inverse=scales[0] if together else jax.tree.unflatten(structure, scales),
            momentum=None
            if never(spectral)
            else jax.tree.unflatten(
                structure, [jnp.zeros_like(p) if mark else jnp.zeros([]) for p, mark in each]
            ),
            spread=spread,
        )

    def update(
        updates: Updates, state: UnitDirectionsState, params: Params = None
    ) -> tuple[Updates, UnitDirectionsState]:
        del params
        check_state(state, UnitDirectionsState)
        t = optax.safe_increment(state.t)
        weight = (1 - _DECAY) / (1 - jnp.asarray(_DECAY, float) ** t.astype(float))
        weight = jnp.where(t > 1, weight, 0)  # a_1 is 1, but there is no s_0
        marks = matrices(spectral, updates)
        moments = leaves_like(updates, state.momentum)
        check_setting(state.inverse, state.momentum, updates, marks, together)
        if together:
            u, inverse, spread = _scaled_together(updates, state.inverse, weight)
            return u, UnitDirectionsState(t, inverse, state.momentum, spread)
        leaves, structure = jax.tree.flatten(updates)
        inverses = leaves_like(updates, state.inverse)
        each = list(zip(leaves, inverses, moments, marks, strict=True))
        alone = [(g, r) for g, r, _, mark in each if not mark]
        square = _sampled_square(alone, weight)
        # XLA on a CPU then knows that r is read by the sample before it is overwritten.
        weight = jax.lax.select(t < 0, jax.lax.stop_gradient(square), weight)
        bound = _bound(weight)
        found = [
            _orthogonal(g, r, m, weight, bound)
            if mark
            else (*_by_coordinate(g, r, weight, bound), m, None)
            for g, r, m, mark in each
        ]
        directions, inverse = (
            jax.tree.unflatten(structure, [leaf[i] for leaf in found]) for i in range(2)
        )
        squares = gathered([square, *(leaf[3] for leaf in found if leaf[3] is not None)])
        spread = jnp.sum(squares) / max(sum(float(g.size) for g in leaves), 1.0)
        momentum = None
        if state.momentum is not None:
            momentum = jax.tree.unflatten(structure, [leaf[2] for leaf in found])
        return directions, UnitDirectionsState(t, inverse, momentum, spread)

    return optax.GradientTransformation(init, update)


def _bound(weight: jax.Array) -> jax.Array:
    """The longest direction: what a gradient of ten times its root mean square gives."""
    return _OUTLIER * jax.lax.rsqrt(1 + weight * (_OUTLIER**2 - 1))


@functools.partial(jax.jit, inline=True)
def _by_coordinate(
    g: jax.Array, r: jax.Array, weight: jax.Array, bound: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The directions of one tensor, and its new inverse root mean squares.

    A gradient of more than ten times its root mean square counts as ten times that.
    """
    weight, bound = weight.astype(r.dtype), bound.astype(r.dtype)
    size = jnp.abs(g)
    some = size > 0
    square = jnp.square(jnp.minimum(size * r, _OUTLIER))
    mean = r * jax.lax.rsqrt(1 - weight + weight * square)
    r = jnp.where(some, jnp.where(r > 0, mean, 1 / jnp.where(some, size, 1)), r)
    u = g * r
    if jnp.iscomplexobj(u):
        return u * jnp.minimum(1, bound * inverse_or_zero(jnp.abs(u))), r
    return jax.lax.clamp(-bound, u, bound), r


def _sampled_square(pairs: list[tuple[jax.Array, jax.Array]], weight: jax.Array) -> jax.Array:
    """The sum of the squares of what :func:`_by_coordinate` gives, from a sample of g and r.

    It is known before the pass over the params that computes u, and needs no second one.
    """
    grads, inverses = [g for g, _ in pairs], [r for _, r in pairs]
    sample = Sample(grads)
    u, _ = _by_coordinate(sample(grads), sample(inverses), weight, _bound(weight))
    return sample.mean(jnp.square(jnp.abs(u))).astype(float) * sum(float(g.size) for g in grads)


def _scaled_together(
    updates: Updates, r: jax.Array, weight: jax.Array
) -> tuple[Updates, jax.Array, jax.Array]:
    """The directions of the gradient as one vector, its inverse root mean square and its square."""
    size = max(sum(float(jnp.size(leaf)) for leaf in jax.tree.leaves(updates)), 1.0)
    whole = (norm(updates) / size**0.5).astype(float)
    length, r = _by_coordinate(whole, r, weight, _bound(weight))
    scale = length * inverse_or_zero(whole)
    return jax.tree.map(lambda g: scale.astype(g.dtype) * g, updates), r, jnp.square(length)


def _orthogonal(
    g: jax.Array, r: jax.Array, m: jax.Array, weight: jax.Array, bound: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The directions of matrices, their inverse root mean squares, momentum and sum of squares."""
    m = g + _MOMENTUM * m
    largest = jnp.max(jnp.abs(m), axis=(-2, -1), keepdims=True, initial=0)
    x = m * inverse_or_zero(largest).astype(m.dtype)  # its norm neither over- nor underflows
    length = root(jnp.sum(jnp.square(jnp.abs(x)), axis=(-2, -1), keepdims=True))
    size, r = _by_coordinate(largest * length, r, weight, bound)
    factor = left_to_partitioner(_orthogonal_factor)(x * inverse_or_zero(length).astype(g.dtype))
    longer = max(g.shape[-2:])
    rank = longer * jnp.mean(jnp.square(jnp.abs(factor)), axis=(-2, -1), keepdims=True)
    squares = float(g.shape[-2]) * g.shape[-1] * jnp.square(size) * jnp.maximum(rank, _LEAST_RANK)
    u = longer**0.5 * size.astype(g.dtype) * factor
    return u, r, m, _WALK * jnp.sum(squares).astype(float)


def _orthogonal_factor(x: jax.Array) -> jax.Array:
    """U Wᵀ of matrices with a Frobenius norm of one, nearly; zero for zero."""
    return newton_schulz(x, _POLYNOMIAL, _ROUNDS)
