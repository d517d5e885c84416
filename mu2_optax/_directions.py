"""Directions whose size is about one, so that the learning rate alone is the length of a step."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from mu2_optax._masks import Mask, marks_of
from mu2_optax._sharding import left_to_partitioner
from mu2_optax._trees import inverse_or_zero

_DECAY = 0.999
_TINY = 1e-17  # below about this, the square of a gradient is zero in float32
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # of Jordan et al.: five rounds bring 0.01 … 1 to 0.7 … 1.2
_ROUNDS = 5


def unit_directions(spectral: Mask = False) -> optax.GradientTransformation:
    r"""Gradients scaled to a typical size of one in each coordinate.

    .. math::
      u_t = \frac{g_t}{\sqrt{\hat v_t}}, \quad v_t = 0.999\,v_{t-1} + 0.001\,g_t^2
      \qquad\text{or}\qquad
      u_t = \sqrt{\max(m, n)}\,\frac{\|g_t\|}{\sqrt{\sum \hat v_t}}\,U W^\top, \quad
      g_t = U \Sigma W^\top \in \mathbb R^{m \times n}

    The first is the scaling of RMSProp and Adam, coordinate by coordinate. The second is for the
    matrices that ``spectral`` marks: all their singular values become equal (to within about a
    third, by five Newton–Schulz iterations), as in Muon, but without its momentum: the averaging of
    an optimizer around it takes that place. Its root mean square is about one as well, so that one
    learning rate fits both, and it shrinks with the gradient near a minimum.

    Args:
      spectral: Which leaves are such matrices: a tree of booleans like params (or like an upper
        part of it), or a function from params to one. The matrices of a leaf are its last two axes.

    Returns:
      A transform; what it gives has the sign of the gradient. Use it inside :func:`grown_rate`.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> tx = mu2_optax.unit_directions(spectral={"w": True, "b": False})
      >>> params = {"w": jnp.eye(2), "b": jnp.zeros(2)}
      >>> grads = {"w": jnp.array([[0.0, 2.0], [-0.5, 0.0]]), "b": jnp.array([3.0, -4.0])}
      >>> updates, _ = tx.update(grads, tx.init(params), params)
      >>> updates["b"].round(3)
      Array([ 1., -1.], dtype=float32)
      >>> float(jnp.abs(jnp.linalg.det(updates["w"]))) > 1
      True

    References:
      Jordan et al., `Muon: An optimizer for hidden layers in neural networks
      <https://kellerjordan.github.io/posts/muon/>`_, 2024; Pethick et al., `Training Deep Learning
      Models with Norm-Constrained LMOs <https://arxiv.org/abs/2502.07529>`_, ICML 2025
    """
    by_coordinate = optax.scale_by_rms(_DECAY, _TINY, eps_in_sqrt=False, bias_correction=True)
    if spectral is False:
        return by_coordinate

    def init(params: Any) -> Any:
        _check_matrices(params, marks_of("spectral", spectral, params))
        return by_coordinate.init(params)

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        directions, state = by_coordinate.update(updates, state, params)
        so_far = 1 - jnp.asarray(_DECAY) ** state.count
        leaves, structure = jax.tree.flatten(directions)
        marks = marks_of("spectral", spectral, updates)
        each = zip(marks, leaves, jax.tree.leaves(updates), jax.tree.leaves(state.nu), strict=True)
        chosen = [_orthogonal(g, v, so_far.astype(v.dtype)) if m else u for m, u, g, v in each]
        return jax.tree.unflatten(structure, chosen), state

    return optax.GradientTransformation(init, update)


def _check_matrices(params: Any, marks: list[bool]) -> None:
    for leaf, mark in zip(jax.tree.leaves(params), marks, strict=True):
        if mark and jnp.ndim(leaf) < 2:
            raise ValueError(
                f"`spectral` must mark matrices, got True for a leaf of shape {jnp.shape(leaf)}; "
                "mark it False, for instance with `lambda params: jax.tree.map(lambda p: p.ndim > "
                "1, params)`."
            )


def _orthogonal(g: jax.Array, v: jax.Array, so_far: jax.Array) -> jax.Array:
    """The direction of the matrices g with the moments v, of which a share is known so far."""
    typical = jnp.sqrt(jnp.sum(v, axis=(-2, -1), keepdims=True) / so_far)
    largest = jnp.max(jnp.abs(g), axis=(-2, -1), keepdims=True, initial=0)
    x = g * inverse_or_zero(largest)  # its norm neither over- nor underflows
    norm = jnp.linalg.norm(x, axis=(-2, -1), keepdims=True)
    size = largest * norm * inverse_or_zero(typical)
    factor = left_to_partitioner(_orthogonal_factor)(x * inverse_or_zero(norm))
    return max(g.shape[-2:]) ** 0.5 * size * factor


def _orthogonal_factor(x: jax.Array) -> jax.Array:
    """U Wᵀ of matrices with a Frobenius norm of one, nearly; zero for zero."""
    tall = x.shape[-2] > x.shape[-1]
    x = jnp.swapaxes(x, -1, -2) if tall else x  # the smaller Gram matrix
    a, b, c = _POLYNOMIAL
    for _ in range(_ROUNDS):
        gram = x @ jnp.conj(jnp.swapaxes(x, -1, -2))
        x = a * x + (b * gram + c * gram @ gram) @ x
    return jnp.swapaxes(x, -1, -2) if tall else x
