"""Directions whose size is about one, so that the learning rate alone sets the length of a step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mu2_optax._internal.masks import Mask, marks_of
from mu2_optax._internal.newton_schulz import newton_schulz
from mu2_optax._internal.sharding import left_to_partitioner
from mu2_optax._internal.trees import inverse_or_zero, leaves_like
from mu2_optax._internal.types import Params, Updates

_DECAY = 0.999
_LEAST = 1e-36  # the least square of a gradient that is not zero
_OUTLIER = 10.0  # how many times its root mean square a gradient may be
MOMENTUM = 0.7  # under orthogonal steps
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # Jordan et al.: three rounds bring 0.02 … 1 to 0.7 … 1.2
_ROUNDS = 3


class UnitDirectionsState(NamedTuple):
    """State of :func:`unit_directions`.

    Attributes:
      t: The number of steps taken.
      inverse: One over the root mean square of each coordinate of the gradient, 0 where it has been
        zero so far; one number for each matrix whose steps are orthogonal, and one for everything
        if it is scaled together.
      momentum: m for the matrices whose steps are orthogonal; None for other leaves, and where
        there are no such matrices.
      rank: For the same matrices, the rank of the last step as a share of the full one: the sum of
        its squared singular values, over their number.
    """

    t: jax.Array
    inverse: Any
    momentum: Any = None
    rank: Any = None


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

    Args:
      spectral: Which leaves are such matrices: True for all whose last two axes are both longer
        than one, or a tree of booleans like params (or a prefix of such a tree), or a function
        from params to one.
      together: Divides the whole gradient by one number, its root mean square over steps and
        coordinates, instead of each coordinate by its own. That keeps its direction, as a
        projection onto a set needs.

    Returns:
      A transform whose updates have the sign of the gradient. Its state is a
      :class:`UnitDirectionsState`. Use it inside :func:`distance_rate`, with ``momentum=0.7`` and
      ``ranks=lambda state: state.rank`` there if the steps of matrices are orthogonal.

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
    if together and spectral is not False:
        raise ValueError(
            "`spectral` must be False with `together=True`, got orthogonal steps for some "
            "matrices, which do not keep the direction of the gradient; leave one of them out."
        )

    def init(params: Params) -> UnitDirectionsState:
        marks = _matrices(spectral, params)
        t = jnp.zeros([], jnp.int32)
        if together:
            return UnitDirectionsState(t, jnp.zeros([], float))
        leaves, structure = jax.tree.flatten(params)
        zeros = [_zeros(p, mark) for p, mark in zip(leaves, marks, strict=True)]
        inverse = jax.tree.unflatten(structure, zeros)
        if not any(marks):
            return UnitDirectionsState(t, inverse)
        moments = [
            jnp.zeros_like(p) if mark else None for p, mark in zip(leaves, marks, strict=True)
        ]
        ranks = [zero if mark else None for zero, mark in zip(zeros, marks, strict=True)]
        momentum, rank = (jax.tree.unflatten(structure, each) for each in (moments, ranks))
        return UnitDirectionsState(t, inverse, momentum, rank)

    def update(
        updates: Updates, state: UnitDirectionsState, params: Params = None
    ) -> tuple[Updates, UnitDirectionsState]:
        del params
        t = optax.safe_increment(state.t)
        weight = (1 - _DECAY) / (1 - jnp.asarray(_DECAY, float) ** t)
        if together:
            return _scaled_together(updates, t, state.inverse, weight)
        leaves, structure = jax.tree.flatten(updates)
        inverses = leaves_like(updates, state.inverse)
        nothing = state.momentum is None
        moments = [None] * len(leaves) if nothing else leaves_like(updates, state.momentum)
        found = [
            (*_by_coordinate(g, r, weight.astype(r.dtype)), None, None)
            if m is None
            else _orthogonal(g, r, m, weight.astype(r.dtype))
            for g, r, m in zip(leaves, inverses, moments, strict=True)
        ]
        directions, inverse, momentum, rank = (
            jax.tree.unflatten(structure, list(each)) for each in zip(*found, strict=True)
        )
        if nothing:
            return directions, UnitDirectionsState(t, inverse)
        return directions, UnitDirectionsState(t, inverse, momentum, rank)

    return optax.GradientTransformation(init, update)


def _by_coordinate(g: jax.Array, r: jax.Array, weight: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The directions of one tensor, and its new inverse root mean squares.

    A gradient of more than ten times its root mean square counts as ten times that.
    """
    size = jnp.abs(g)
    seen = r > 0
    excess = jnp.square(jnp.minimum(size * r, _OUTLIER)) - 1
    square = jnp.where(seen, 1 + weight * excess, jnp.maximum(jnp.square(size), _LEAST))
    r = jnp.where(size > 0, jnp.where(seen, r, 1) * jax.lax.rsqrt(square), r)
    bound = _OUTLIER * jax.lax.rsqrt(1 + weight * (_OUTLIER**2 - 1))
    u = g * r
    if jnp.iscomplexobj(u):
        return u * jnp.minimum(1, bound * inverse_or_zero(jnp.abs(u))), r
    return jnp.clip(u, -bound, bound), r


def _scaled_together(
    updates: Updates, t: jax.Array, r: jax.Array, weight: jax.Array
) -> tuple[Updates, UnitDirectionsState]:
    """The directions of the gradient as one vector, with one inverse root mean square."""
    size = max(sum(jnp.size(leaf) for leaf in jax.tree.leaves(updates)), 1)
    norm = (optax.tree.norm(updates) / size**0.5).astype(float)
    length, r = _by_coordinate(norm, r, weight)
    scale = length * inverse_or_zero(norm)
    directions = jax.tree.map(lambda g: scale.astype(g.dtype) * g, updates)
    return directions, UnitDirectionsState(t, r)


def _orthogonal(
    g: jax.Array, r: jax.Array, m: jax.Array, weight: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """The directions of matrices, their inverse root mean squares, momentum and ranks."""
    m = g + MOMENTUM * m
    largest = jnp.max(jnp.abs(m), axis=(-2, -1), keepdims=True, initial=0)
    x = m * inverse_or_zero(largest).astype(m.dtype)  # its norm neither over- nor underflows
    norm = jnp.linalg.norm(x, axis=(-2, -1), keepdims=True)
    size, r = _by_coordinate(largest * norm, r, weight)
    factor = left_to_partitioner(_orthogonal_factor)(x * inverse_or_zero(norm).astype(g.dtype))
    longer = max(g.shape[-2:])
    rank = longer * jnp.mean(jnp.square(jnp.abs(factor)), axis=(-2, -1), keepdims=True)
    return longer**0.5 * size.astype(g.dtype) * factor, r, m, rank.astype(r.dtype)


def _orthogonal_factor(x: jax.Array) -> jax.Array:
    """U Wᵀ of matrices with a Frobenius norm of one, nearly; zero for zero."""
    return newton_schulz(x, _POLYNOMIAL, _ROUNDS)


def _matrices(spectral: Mask, params: Params) -> list[bool]:
    """For each leaf, whether its steps are orthogonal."""
    leaves = jax.tree.leaves(params)
    if isinstance(spectral, bool | np.bool_):
        return [
            bool(spectral) and min(jnp.shape(leaf)[-2:], default=1) > 1 and jnp.ndim(leaf) > 1
            for leaf in leaves
        ]
    marks = marks_of("spectral", spectral, params)
    for leaf, mark in zip(leaves, marks, strict=True):
        if mark and jnp.ndim(leaf) < 2:
            raise ValueError(
                f"`spectral` must mark matrices, got True for a leaf of shape {jnp.shape(leaf)}; "
                "mark it False, or pass True alone for every matrix there is."
            )
    return marks


def _zeros(p: Any, matrix: bool) -> jax.Array:
    """A real number for each coordinate, or for each matrix."""
    dtype = jnp.finfo(jnp.result_type(p)).dtype
    if matrix:
        return jnp.zeros((*jnp.shape(p)[:-2], 1, 1), dtype)
    return jnp.zeros_like(p, dtype=dtype)
