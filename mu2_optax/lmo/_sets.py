r"""The oracles of the usual sets."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from mu2_optax._internal.checks import (
    check_iterations,
    check_nonnegative,
    check_single,
)
from mu2_optax._internal.newton_schulz import newton_schulz
from mu2_optax._internal.sharding import left_to_partitioner
from mu2_optax._internal.tree_checks import check_like, check_params
from mu2_optax._internal.trees import (
    add,
    cast_like,
    gathered,
    inverse_or_zero,
    rescaled,
    scaled,
    widened,
)
from mu2_optax._internal.types import Scalar, Tree

Oracle: TypeAlias = Callable[[Tree], Tree]
"""A function from a direction to a point of K."""

_NEVER_ABOVE_ONE = (1.5, -0.5, 0.0)  # Newton–Schulz whose singular values grow towards 1


def l2_ball(radius: Scalar, center: Tree = None) -> Oracle:
    r"""The oracle of an L2 ball, over the whole tree as one vector.

    .. math:: \arg\min_{\|v - c\|_2 \le r} \langle d, v \rangle = c - r\,d / \|d\|_2

    Args:
      radius: r ≥ 0.
      center: c, a tree like the params, such as the initial ones; the origin if it is not given.

    Returns:
      A function from tree to tree.

    Examples:
      >>> import jax.numpy as jnp
      >>> from mu2_optax import lmo
      >>> lmo.l2_ball(5.0)({"a": jnp.array([3.0, 0.0]), "b": jnp.array(-4.0)})
      {'a': Array([-3., -0.], dtype=float32), 'b': Array(4., dtype=float32)}
    """

    def direction(d: Any) -> Any:
        norms = gathered(jax.tree.map(optax.tree.norm, d))
        return scaled(inverse_or_zero(jnp.linalg.norm(norms)), d)

    return _oracle(direction, radius, center)


def linf_ball(radius: Scalar, center: Tree = None) -> Oracle:
    r"""The oracle of an L∞ ball: the signs. It is the direction of signSGD.

    .. math:: \arg\min_{\|v - c\|_\infty \le r} \langle d, v \rangle = c - r\,\text{sign}(d)

    Args:
      radius: r ≥ 0.
      center: c, a tree like the params; the origin if it is not given.

    Returns:
      A function from tree to tree.

    Examples:
      >>> import jax.numpy as jnp
      >>> from mu2_optax import lmo
      >>> lmo.linf_ball(0.5)(jnp.array([3.0, -0.1, 0.0]))
      Array([-0.5,  0.5, -0. ], dtype=float32)
    """
    return _oracle(lambda d: jax.tree.map(jnp.sign, d), radius, center)


def l1_ball(radius: Scalar, center: Tree = None) -> Oracle:
    r"""The oracle of an L1 ball over the whole tree: one coordinate moves, so averages are sparse.

    .. math::
      \arg\min_{\|v - c\|_1 \le r} \langle d, v \rangle = c - r\,\text{sign}(d_i)\,e_i, \qquad
      i = \arg\max_j |d_j|

    Args:
      radius: r ≥ 0.
      center: c, a tree like the params; the origin if it is not given.

    Returns:
      A function from tree to tree.

    Examples:
      >>> import jax.numpy as jnp
      >>> from mu2_optax import lmo
      >>> lmo.l1_ball(1.0)({"a": jnp.array([3.0, 0.0]), "b": jnp.array(-4.0)})
      {'a': Array([-0., -0.], dtype=float32), 'b': Array(1., dtype=float32)}
    """

    def direction(d: Any) -> Any:
        flat, unravel = ravel_pytree(d)
        place = jnp.argmax(jnp.abs(flat))
        return unravel(jnp.zeros_like(flat).at[place].set(jnp.sign(flat[place])))

    return _oracle(direction, radius, center)


def simplex(scale: Scalar = 1.0) -> Oracle:
    r"""The oracle of the simplex over the whole tree: all weight on the smallest coordinate.

    .. math::
      \arg\min_{v \ge 0,\ \sum_j v_j = s} \langle d, v \rangle = s\,e_i, \qquad
      i = \arg\min_j d_j

    For one distribution per tensor, use ``per_tensor(simplex())``. A zero direction gives the
    uniform distribution.

    Args:
      scale: s ≥ 0, the sum of the weights.

    Returns:
      A function from tree to tree.

    Examples:
      >>> import jax.numpy as jnp
      >>> from mu2_optax import lmo
      >>> lmo.simplex()(jnp.array([3.0, -1.0, 2.0]))
      Array([0., 1., 0.], dtype=float32)
    """

    def opposite(d: Any) -> Any:  # `_oracle` changes the sign back
        flat, unravel = ravel_pytree(d)
        vertex = jnp.zeros_like(flat).at[jnp.argmin(flat)].set(1)
        uniform = jnp.full_like(flat, 1 / flat.size)
        return unravel(-jnp.where(jnp.any(flat != 0), vertex, uniform))

    return _oracle(opposite, scale, None)


def spectral_ball(
    radius: Scalar,
    center: Tree = None,
    *,
    iterations: int | None = None,
) -> Oracle:
    r"""The oracle of a spectral-norm ball for every matrix: its orthogonal factor, as in Muon.

    .. math::
      \arg\min_{\|V - C\|_{op} \le r} \langle D, V \rangle = C - r\,U W^H, \qquad
      D = U \Sigma W^H

    The matrices are the last two axes of a leaf. Vectors and scalars are matrices of one column,
    whose spectral norm is the L2 norm.

    Args:
      radius: r ≥ 0, the same for every matrix.
      center: C, a tree like the params; the origin if it is not given.
      iterations: None for the exact factor, by a singular value decomposition. With a number such
        as 30, by so many Newton–Schulz iterations, which are matrix products alone and suit
        accelerators: :math:`X \leftarrow \frac32 X - \frac12 X X^H X`, started at
        :math:`D/\|D\|_F`. Its singular values grow towards 1 and never pass it, so that its points
        stay in the set however few iterations are made; those that start below about
        :math:`1.5^{-\text{iterations}}` of the Frobenius norm do not reach 1.

    Returns:
      A function from tree to tree.

    Examples:
      >>> import jax.numpy as jnp
      >>> from mu2_optax import lmo
      >>> lmo.spectral_ball(1.0, iterations=30)(jnp.array([[0.0, 2.0], [-0.5, 0.0]])).round(4)
      Array([[-0., -1.],
             [ 1., -0.]], dtype=float32)

    References:
      Jordan et al., `Muon: An optimizer for hidden layers in neural networks
      <https://kellerjordan.github.io/posts/muon/>`_, 2024
    """
    if iterations is not None:
        check_iterations("iterations", iterations)

    def factor(leaf: jax.Array) -> jax.Array:
        matrix = leaf if leaf.ndim >= 2 else leaf.reshape(-1, 1)
        if iterations is None:
            return _orthogonal_factor(matrix).reshape(leaf.shape)
        norm = jnp.linalg.norm(matrix, axis=(-2, -1), keepdims=True)
        unit = matrix * inverse_or_zero(norm)
        return newton_schulz(unit, _NEVER_ABOVE_ONE, iterations).reshape(leaf.shape)

    return _oracle(lambda d: jax.tree.map(factor, d), radius, center)


def _oracle(direction_of: Oracle, radius: Scalar, center: Tree) -> Oracle:
    """The oracle that maps d to c - r u(d), for a ``direction_of`` u that ignores scale."""
    check_single("radius", radius)
    check_nonnegative("radius", radius, "pass a number such as 1.0.")
    if center is not None:
        check_params(center)

    def oracle(direction: Any) -> Any:
        d = widened(direction)
        if not any(leaf.size for leaf in jax.tree.leaves(d)):
            return direction  # the set has only one point, the tree without numbers
        size, d = rescaled(d)  # no norm below can over- or underflow
        unit = left_to_partitioner(direction_of)(d)
        vertex = scaled(jnp.where(jnp.isfinite(size), -radius, jnp.nan), unit)
        if center is not None:
            check_like("center", center, direction, "It is a tree like the params.")
            vertex = add(cast_like(center, vertex), vertex)
        return cast_like(vertex, direction)

    return oracle


def _orthogonal_factor(matrix: jax.Array) -> jax.Array:
    u, s, vh = jnp.linalg.svd(matrix, full_matrices=False)
    rank = s > jnp.finfo(s.dtype).eps * max(matrix.shape[-2:]) * s[..., :1]
    return (u * rank[..., None, :].astype(u.dtype)) @ vh
