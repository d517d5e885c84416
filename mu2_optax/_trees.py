"""Trees and their dtypes: what a state stores, and what goes back to the params.

States are never narrower than float32 unless the user says so, arithmetic is never narrower than
float32 at all, and updates come back in the dtype of the params.
"""

from typing import Any

import jax
import jax.numpy as jnp


def stored_copy(params: Any, state_dtype: Any, *, exact: bool = False) -> Any:
    """Copies ``params`` into the dtypes of a state; ``exact`` keeps every bit of wider params.

    It is a copy, not an alias: a state that shares a buffer with params cannot be donated.
    """
    return jax.tree.map(
        lambda p: jnp.array(p, _stored_dtype(p, state_dtype, exact), copy=True), params
    )


def stored_zeros(params: Any, state_dtype: Any) -> Any:
    """Zeros in the shapes of ``params`` and the dtypes of a state."""
    return jax.tree.map(
        lambda p: jnp.zeros_like(p, dtype=_stored_dtype(p, state_dtype, False)), params
    )


def wide_zeros(shapes: Any) -> Any:
    """Zeros to sum arrays of these shapes in, at least in float32."""
    return jax.tree.map(
        lambda s: jnp.zeros(s.shape, jnp.promote_types(s.dtype, jnp.float32)), shapes
    )


def stored_average(params: Any, state_dtype: Any) -> Any:
    """A copy of ``params`` if some leaf is narrower than its state, otherwise ``None``.

    An average moves by about 2/t of its distance at step t; after a few hundred steps that is below
    the last place of a bfloat16 number, and an average kept in params alone would stall.
    """
    leaves = jax.tree.leaves(params)
    narrow = any(_stored_dtype(p, state_dtype, True) != jnp.result_type(p) for p in leaves)
    return stored_copy(params, state_dtype, exact=True) if narrow else None


def refined(params: Any, stored: Any) -> Any:
    """``params`` in full precision, with the bits that ``stored`` remembers below their last place.

    Where the two are further apart than rounding explains, something else has moved the params
    (weight decay after the optimizer, a restored checkpoint), and the params win.
    """
    if stored is None:
        return params

    def refine(p: jax.Array, x: jax.Array) -> jax.Array:
        p_wide = jnp.asarray(p).astype(x.dtype)
        rounding = jnp.finfo(jnp.result_type(p)).eps * jnp.abs(x)
        return jnp.where(jnp.abs(x - p_wide) <= rounding, x, p_wide)

    return jax.tree.map(refine, params, stored)


def widened(tree: Any) -> Any:
    """``tree`` with every leaf at least in float32."""
    return jax.tree.map(lambda a: jnp.asarray(a).astype(_wide(a)), tree)


def cast_like(tree: Any, reference: Any) -> Any:
    """``tree`` in the dtypes of ``reference``."""
    return jax.tree.map(lambda a, r: jnp.asarray(a).astype(jnp.result_type(r)), tree, reference)


def scaled(weight: jax.Array, tree: Any) -> Any:
    """``weight`` times each leaf, in the leaf's own dtype; a vector has a number for each leaf."""
    leaves, structure = jax.tree.flatten(tree)
    each = [weight] * len(leaves) if weight.ndim == 0 else list(weight)
    products = [w.astype(a.dtype) * a for w, a in zip(each, leaves, strict=True)]
    return jax.tree.unflatten(structure, products)


def squared_norms(tree: Any) -> jax.Array:
    """The squared L2 norm of each leaf, as a vector in the order of the leaves."""
    return jnp.stack([jnp.sum(jnp.real(a * jnp.conj(a))) for a in jax.tree.leaves(tree)])


def inverse_or_zero(norm: jax.Array) -> jax.Array:
    """1/norm, and 0 for a norm of zero."""
    return jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 0)


def add(a: Any, b: Any) -> Any:
    """``a + b``, leaf by leaf."""
    return jax.tree.map(jnp.add, a, b)


def subtract(a: Any, b: Any) -> Any:
    """``a - b``, leaf by leaf."""
    return jax.tree.map(jnp.subtract, a, b)


def _wide(leaf: Any) -> Any:
    return jnp.promote_types(jnp.result_type(leaf), jnp.float32)


def _stored_dtype(leaf: Any, state_dtype: Any, exact: bool) -> Any:
    if state_dtype is None:
        return _wide(leaf)
    return jnp.promote_types(jnp.result_type(leaf), state_dtype) if exact else state_dtype
