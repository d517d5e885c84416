"""Projections: functions from tree to tree. ``optax.projections`` has most of them."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import optax

from mu2_optax._internal.checks import check_callable, check_positive, check_single, check_transform
from mu2_optax._internal.tree_checks import check_like, check_params
from mu2_optax._internal.trees import add, cast_like, widened
from mu2_optax._internal.types import OptState, Params, Scalar, Tree, Updates

Projection: TypeAlias = Callable[[Tree], Tree]


def per_tensor(projection: Projection) -> Projection:
    r"""Projects each tensor of a tree by itself, instead of the tree as one vector.

    .. math:: \Pi(w_1, \dots, w_k) = (\Pi(w_1), \dots, \Pi(w_k))

    Args:
      projection: A function from tree to tree.

    Returns:
      A function from tree to tree.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> project = mu2_optax.per_tensor(mu2_optax.onto_l2_ball(1.0))
      >>> project({"a": jnp.array([3.0, 4.0]), "b": jnp.array(0.5)})
      {'a': Array([0.6, 0.8], dtype=float32), 'b': Array(0.5, dtype=float32)}
    """
    check_callable("projection", projection, "mu2_optax.onto_l2_ball(1.0)")
    return lambda tree: jax.tree.map(projection, tree)


def onto_l2_ball(radius: Scalar, center: Tree = None) -> Projection:
    r"""Projects a whole tree, as one vector, onto an L2 ball.

    .. math:: \Pi(w) = c + (w - c)\,\min(1, r / \|w - c\|)

    Args:
      radius: r > 0.
      center: c, a tree like the one that is projected, such as the initial params; the origin if
        it is not given.

    Returns:
      A function from tree to tree.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> params = {"w": jnp.array([3.0, 0.0]), "b": jnp.array(4.0)}
      >>> mu2_optax.onto_l2_ball(1.0)(params)["w"]
      Array([0.6, 0. ], dtype=float32)
      >>> near_start = mu2_optax.onto_l2_ball(0.1, center=params)

    References:
      Parikh and Boyd, `Proximal Algorithms
      <https://stanford.edu/~boyd/papers/prox_algs.html>`_, 2014, section 6.5
    """
    check_single("radius", radius)
    check_positive("radius", radius, "a ball of radius 0 is a point.")
    if center is None:
        return lambda tree: optax.projections.projection_l2_ball(tree, radius)
    check_params(center)

    def project(tree: Tree) -> Any:
        c = cast_like(center, tree)
        return add(c, optax.projections.projection_l2_ball(optax.tree.sub(tree, c), radius))

    return project


def projected(
    inner: optax.GradientTransformation, projection: Projection
) -> optax.GradientTransformationExtraArgs:
    r"""Follows every step of an optimizer with a projection of the params.

    .. math:: x_{t+1} = \Pi(x_t + \text{inner}(g_t, x_t))

    Args:
      inner: Any Optax optimizer.
      projection: A function from tree to tree.

    Returns:
      A transform with the state of ``inner``; extra args are passed on.

    Examples:
      >>> import jax.numpy as jnp, optax, mu2_optax
      >>> tx = mu2_optax.projected(optax.sgd(1.0), mu2_optax.onto_l2_ball(1.0))
      >>> params = jnp.array([0.0, 0.0])
      >>> updates, state = tx.update(jnp.array([-3.0, 4.0]), tx.init(params), params)
      >>> optax.apply_updates(params, updates)
      Array([ 0.6, -0.8], dtype=float32)
    """
    check_transform("inner", inner)
    inner = optax.with_extra_args_support(inner)
    project = as_projection(projection)

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        check_params(params)
        step, state = inner.update(updates, state, params, **extra_args)
        check_like("the step of `inner`", step, params, "A learning rate is a single number.")
        x = widened(params)
        return cast_like(optax.tree.sub(project(add(x, widened(step))), x), params), state

    return optax.GradientTransformationExtraArgs(inner.init, update)


def as_projection(projection: Projection | None) -> Projection:
    """The projection, checked; the identity if there is none."""
    if projection is None:
        return lambda tree: tree
    check_callable("projection", projection, "mu2_optax.onto_l2_ball(1.0)")

    def project(tree: Tree) -> Any:
        inside = projection(tree)
        check_like("projection(w)", inside, tree, "A projection maps a tree to a tree like it.")
        return inside

    return project
