"""Directions whose size is about one, so that the learning rate alone sets the length of a step."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.masks import Mask
from mu2_optax._internal.sample import Sample
from mu2_optax._internal.sharding import varying_like
from mu2_optax._internal.tree_checks import check_state
from mu2_optax._internal.trees import (
    gathered,
    inverse_or_zero,
    leaves_like,
    norm,
)
from mu2_optax._internal.types import Params, Updates
from mu2_optax._rate.coordinates import bound, by_coordinate
from mu2_optax._rate.matrices import check_setting, matrices, never, zeros
from mu2_optax._rate.orthogonal import orthogonal
from mu2_optax._rate.turning import Turning, explosion, turned


class UnitDirectionsState(NamedTuple):
    """State of :func:`unit_directions`.

    Attributes:
      t: The number of steps taken.
      inverse: One over the root mean square of each coordinate of the gradient, 0 where it has been
        zero so far; one number for each matrix whose steps are orthogonal, and one for everything
        if it is scaled together.
      momentum: m for the matrices whose steps are orthogonal, and a zero for other leaves; None
        where ``spectral`` is False.
      square: The mean square of the last direction, from a sample of the coordinates.
      orthogonal: That of the matrices whose steps are orthogonal; a low rank counts for more. It is
        not in ``square``.
      exploded: The energy of a gradient that is large in most coordinates.
      turning: How successive directions hang together.
    """

    t: jax.Array
    inverse: Any
    momentum: Any
    square: jax.Array
    orthogonal: jax.Array
    exploded: jax.Array
    turning: Turning


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
    :math:`a_t = 3/(t + 2)`, so that the gradients count like t²; with two differences:

    - **A gradient of zero is not counted.** The row of an embedding that is seen for the first time
      in step 1000 moves by one learning rate, and not by 25, as in Adam.
    - **A gradient of more than ten times** :math:`s_{t-1}` **counts as ten times that**, so that
      one bad batch neither makes a long step nor hides the gradients of the next thousand.

    The second is for the matrices that ``spectral`` marks: all their singular values become equal
    (to within about a third, by three Newton–Schulz iterations; those below a fiftieth of the norm
    stay smaller), as in Muon. They are those of m, the gradient with a momentum, because an
    orthogonal step trusts every direction equally, and the noise of a single batch would count too
    much. s is then one number for each matrix, the root mean square of the norm of m.

    The state tells :func:`distance_rate` what limits the run, from a sample of the coordinates:

    - **How successive directions hang together**, their correlation φ. Without noise they turn
      back, because the rate is as long as the curvature allows.
    - **How far noise walks along them.** Steps with a correlation of φ walk :math:`(1 +
      \varphi)/(1 - \varphi)` times as far as independent ones, in squares. And a step of less than
      0.1 of the full rank counts as one of 0.1: few samples give gradients of a low rank, and such
      steps are long in a few directions, but over all coordinates they look short, so that the rate
      would grow until they wreck a network.
    - **Whether the loss explodes.** A gradient that is much longer than usual in *most* coordinates
      at once counts as :math:`v^3`, where v is the mean over the coordinates of :math:`|g|/\sqrt{(1
      - a)\,s^2 + a\,g^2}`, which is less than one otherwise.

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
      such directions, and how much they turn back.

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
        last = jnp.zeros_like(Sample(params)(params))
        numbers = [jnp.zeros([], float) for _ in range(5)]  # each has a buffer of its own
        turning = Turning(last, *numbers[:2])
        scales, numbers, turning = varying_like((scales, numbers, turning), params)
        square, orthogonally, exploded = numbers[2:]
        return UnitDirectionsState(
            t=jnp.zeros([], jnp.int32),
            inverse=scales[0] if together else jax.tree.unflatten(structure, scales),
            momentum=None
            if never(spectral)
            else jax.tree.unflatten(
                structure, [jnp.zeros_like(p) if mark else jnp.zeros([]) for p, mark in each]
            ),
            square=square,
            orthogonal=orthogonally,
            exploded=exploded,
            turning=turning,
        )

    def update(
        updates: Updates, state: UnitDirectionsState, params: Params = None
    ) -> tuple[Updates, UnitDirectionsState]:
        del params
        check_state(state, UnitDirectionsState)
        t = optax.safe_increment(state.t)
        weight = jnp.where(t > 1, 3 / (t.astype(float) + 2), 0)  # a_1 is 1, but there is no s_0
        marks = matrices(spectral, updates)
        check_setting(state.inverse, state.momentum, updates, marks, together)
        sample = Sample(updates)
        if together:
            scale, inverse, square = _scaled_together(updates, state.inverse, weight)
            turning = turned(state.turning, sample, scale * sample(updates), False, weight)
            directions = jax.tree.map(lambda g: scale.astype(g.dtype) * g, updates)
            zero = varying_like(jnp.zeros([], float), updates)
            return directions, UnitDirectionsState(
                t, inverse, state.momentum, square, zero, zero, turning
            )
        leaves, structure = jax.tree.flatten(updates)
        kept = (leaves_like(updates, tree) for tree in (state.inverse, state.momentum))
        each = list(zip(leaves, *kept, marks, strict=True))
        g, r = sample(leaves), sample([_of_coordinates(g, r, mark) for g, r, _, mark in each])
        u, _ = by_coordinate(g, r, weight, bound(weight))
        exploded = explosion(sample, g, r, weight)
        # XLA on a CPU then knows that r is read by the sample before it is overwritten.
        weight = jax.lax.select(t < 0, jax.lax.stop_gradient(exploded), weight)
        longest = bound(weight)
        found = [
            orthogonal(g, r, m, weight, longest)
            if mark
            else (*by_coordinate(g, r, weight, longest), m, None)
            for g, r, m, mark in each
        ]
        directions, scales, moments, squares = ([leaf[i] for leaf in found] for i in range(4))
        rows = sample.rows(marks)
        if any(marks):
            mixed = zip(directions, leaves, marks, strict=True)
            u = jnp.where(rows, sample([u if mark else g for u, g, mark in mixed]), u)
        turning = turned(state.turning, sample, u, rows, weight)
        size = max(sum(float(leaf.size) for leaf in leaves), 1.0)
        of_matrices = [square / size for square in squares if square is not None]
        zero = varying_like(jnp.zeros([], float), updates)
        tree = functools.partial(jax.tree.unflatten, structure)
        return tree(directions), UnitDirectionsState(
            t=t,
            inverse=tree(scales),
            momentum=None if state.momentum is None else tree(moments),
            square=sample.mean(jnp.where(rows, 0, jnp.square(jnp.abs(u)))).astype(float),
            orthogonal=jnp.sum(gathered([zero, *of_matrices])),
            exploded=exploded,
            turning=turning,
        )

    return optax.GradientTransformation(init, update)


def _of_coordinates(g: jax.Array, r: jax.Array, matrix: bool) -> jax.Array:
    """Inverse root mean squares for each coordinate, from those of whole matrices."""
    if not matrix:
        return r
    return jnp.broadcast_to((float(g.shape[-2]) * g.shape[-1]) ** 0.5 * r, g.shape)


def _scaled_together(
    updates: Updates, r: jax.Array, weight: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What makes the gradient a direction, its inverse root mean square, and the square of that."""
    size = max(sum(float(jnp.size(leaf)) for leaf in jax.tree.leaves(updates)), 1.0)
    whole = (norm(updates) / size**0.5).astype(float)
    length, r = by_coordinate(whole, r, weight, bound(weight))
    return length * inverse_or_zero(whole), r, jnp.square(length)
