"""What an oracle must be: a function from a direction to a point of the set, checked."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from mu2_optax._internal.checks import check_iterations
from mu2_optax._internal.tree_checks import check_like, check_params
from mu2_optax._internal.trees import widened
from mu2_optax._internal.types import Params, Tree
from mu2_optax._paper.projections import Projection

Oracle: TypeAlias = Callable[[Tree], Tree]
"""A function from a direction to a point of K."""


def check_oracle(
    lmo: Oracle,
    params: Params,
    key: jax.Array,
    *,
    projection: Projection | None = None,
    trials: int = 8,
    tolerance: float = 1e-4,
) -> None:
    r"""Tries your own oracle on random directions, and raises an error if it cannot be one.

    With :math:`v_i = \text{lmo}(d_i)`, it requires that every :math:`v_i` is finite and like the
    params, that :math:`\langle d_i, v_i \rangle \le \langle d_i, v_j \rangle` for all i and j, and,
    if the projection Π onto K is given, that :math:`\Pi(v_i) = v_i`, so that no point leaves K. It
    reads concrete values: call it once, outside jit.

    Args:
      lmo: A function from tree to tree.
      params: A tree like the ones that will be optimized.
      key: A key for the random directions.
      projection: The projection onto K, such as ``mu2_optax.onto_l2_ball(1.0)``.
      trials: The number of directions.
      tolerance: The allowed error, relative to the size of the points.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax
      >>> from mu2_optax import lmo
      >>> key, params = jax.random.key(0), jnp.zeros(3)
      >>> lmo.check_oracle(lmo.l2_ball(1.0), params, key, projection=mu2_optax.onto_l2_ball(1.0))
      >>> lmo.check_oracle(lmo.l2_ball(3.0), params, key, projection=mu2_optax.onto_l2_ball(1.0))
      ... # doctest: +ELLIPSIS
      Traceback (most recent call last):
      ValueError: `lmo` must return points of K, but its point for direction 1 is 2 away from K; ...
    """
    check_params(params)
    check_iterations("trials", trials)

    flat, unravel = ravel_pytree(widened(params))
    d = jax.random.normal(key, (trials, flat.size), flat.dtype)

    def try_one(direction: jax.Array) -> tuple[jax.Array, jax.Array]:
        v = widened(checked_oracle(lmo)(unravel(direction)))
        inside = v if projection is None else projection(v)
        return ravel_pytree(v)[0], optax.tree.norm(optax.tree.sub(inside, v))

    v, away = jax.jit(jax.vmap(try_one))(d)
    products, d_norms, v_norms = d @ v.T, jnp.linalg.norm(d, axis=1), jnp.linalg.norm(v, axis=1)
    for i in range(trials):
        allowed = tolerance * max(float(v_norms[i]), 1.0)
        if not bool(jnp.isfinite(v_norms[i])):
            raise ValueError(
                f"`lmo` must return finite points, but its point for direction {i + 1} is not; K "
                "must be compact, and the oracle must not divide by a zero norm."
            )
        if float(away[i]) > allowed:
            raise ValueError(
                f"`lmo` must return points of K, but its point for direction {i + 1} is "
                f"{float(away[i]):.3g} away from K; check its radius and centre, or the projection "
                "given here."
            )
        excess = float(products[i, i] - jnp.nanmin(products[i]))
        if excess > allowed * float(d_norms[i]):
            raise ValueError(
                f"`lmo` must return argmin <d, v> over K, but for direction {i + 1} another of its "
                f"own points is better by {excess:.3g}; check its sign: it minimizes, so for a "
                "ball it points against d."
            )


def checked_oracle(lmo: Oracle) -> Oracle:
    """The oracle, with a check that its output has the structure and shapes of its input."""

    def checked(direction: Any) -> Any:
        vertex = lmo(direction)
        check_like(
            "lmo(d)", vertex, direction, "A linear minimization oracle returns a point like params."
        )
        return vertex

    return checked
