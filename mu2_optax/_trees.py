"""Trees and their dtypes: what a state stores, and what goes back to the params.

States are never narrower than float32 unless the user says so, arithmetic is never narrower than
float32 at all, and updates come back in the dtype of the params.
"""

from typing import Any

import jax
import jax.numpy as jnp

from mu2_optax._sharding import explicit_sharding, varying_along, varying_axes


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
    """Zeros to sum arrays of these shapes in, at least in float32, and placed as they are."""

    def zeros(s: Any) -> jax.Array:
        dtype = _promoted(s.dtype, jnp.float32)
        total = jnp.zeros(s.shape, dtype, device=explicit_sharding(s))
        return varying_along(total, varying_axes(s))

    return jax.tree.map(zeros, shapes)


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

    Params that are not the rounded average were moved by something else (weight decay after the
    optimizer, a restored checkpoint), and then the params win.
    """
    if stored is None:
        return params

    def refine(p: jax.Array, x: jax.Array) -> jax.Array:
        p_wide = jnp.asarray(p).astype(x.dtype)
        return jnp.where(p_wide == rounded(x, jnp.result_type(p)), x, p_wide)

    return jax.tree.map(refine, params, stored)


def rounded(x: jax.Array, dtype: Any) -> jax.Array:
    """``x`` in its own dtype, rounded to a narrower one.

    XLA may drop two conversions that undo each other, and with them the rounding.
    """
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return x.astype(dtype).astype(x.dtype)
    narrow = jnp.finfo(dtype)
    return jax.lax.reduce_precision(x, narrow.nexp, narrow.nmant)


def widened(tree: Any) -> Any:
    """``tree`` with every leaf at least in float32."""
    return jax.tree.map(lambda a: jnp.asarray(a).astype(_wide(a)), tree)


def cast_like(tree: Any, reference: Any) -> Any:
    """``tree`` in the dtypes of ``reference``."""
    return jax.tree.map(lambda a, r: jnp.asarray(a).astype(jnp.result_type(r)), tree, reference)


def copied_like(tree: Any, reference: Any) -> Any:
    """``tree`` in the dtypes of ``reference``, in buffers of its own."""
    return jax.tree.map(
        lambda a, r: jnp.array(a, dtype=jnp.result_type(r), copy=True), tree, reference
    )


def after(other: Any, tree: Any, never: jax.Array) -> Any:
    """``tree``, to be computed or stored when ``other`` and ``never`` are known.

    It is ``other`` where ``never`` is true, which never is. A copy into a state that is donated has
    no order for XLA beside those who still read what was there, nor has an update of params beside
    those who copy them: on a CPU it then makes copies of both, and a step takes up to twice the
    time where the state's traffic decides. A choice is computed in order.
    """
    return jax.tree.map(lambda a, o: jax.lax.select(never, o.astype(a.dtype), a), tree, other)


def scaled(weight: jax.Array, tree: Any) -> Any:
    """``weight`` times each leaf, in the leaf's own dtype; a vector has a number for each leaf."""
    leaves, structure = jax.tree.flatten(tree)
    each = [weight] * len(leaves) if weight.ndim == 0 else list(weight)
    products = [w.astype(a.dtype) * a for w, a in zip(each, leaves, strict=True)]
    return jax.tree.unflatten(structure, products)


def mean_of_two(share: float, first: Any, second: Any) -> Any:
    """``share`` of the first tree and the rest of the second, summed in float32 at least."""
    mix = lambda a, b: share * a + (1 - share) * b
    return cast_like(jax.tree.map(mix, widened(first), widened(second)), first)


def concatenated(a: Any, b: Any) -> Any:
    """Each leaf of ``a`` with that of ``b`` after it, along their leading axes."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), a, b)


def squared_norms(tree: Any) -> jax.Array:
    """The squared L2 norm of each leaf, as a vector in the order of the leaves."""
    return gathered([jnp.sum(jnp.real(a * jnp.conj(a))) for a in jax.tree.leaves(tree)])


def inner_product(a: Any, b: Any) -> jax.Array:
    """The real inner product of two trees, at least in float32.

    Leaf by leaf and without a reshape, which a leaf that is sharded on an explicit mesh has not.
    """
    product = lambda a, b: jnp.sum(jnp.real(jnp.conj(a) * b)).astype(float)
    return jnp.sum(gathered(jax.tree.map(product, widened(a), widened(b))))


def inverse_or_zero(norm: jax.Array) -> jax.Array:
    """1/norm, and 0 for a norm of zero."""
    return jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 0)


def gathered(scalars: Any) -> jax.Array:
    """The leaves of a tree of scalars as one vector, to be reduced to what every leaf then reads.

    Without the barrier, XLA writes the reduction of n scalars as a chain of n operations, and on a
    CPU it repeats such a chain in each of the n leaves that read the result: the time to compile
    grows with the square of n. A reduction of one vector is computed once.
    """
    leaves = jax.tree.leaves(scalars)
    return jax.lax.optimization_barrier(jnp.stack(leaves) if leaves else jnp.zeros(0))


def add(a: Any, b: Any) -> Any:
    """``a + b``, leaf by leaf."""
    return jax.tree.map(jnp.add, a, b)


def subtract(a: Any, b: Any) -> Any:
    """``a - b``, leaf by leaf."""
    return jax.tree.map(jnp.subtract, a, b)


def _wide(leaf: Any) -> Any:
    return _promoted(jnp.result_type(leaf), jnp.float32)


def _stored_dtype(leaf: Any, state_dtype: Any, exact: bool) -> Any:
    """The dtype of a leaf's state; complex leaves have complex states."""
    if state_dtype is None:
        return _wide(leaf)
    if isinstance(state_dtype, jax.Array):
        raise TypeError(
            f"`state_dtype` must be a dtype such as jnp.float32, got {state_dtype!r}; with "
            '`optax.inject_hyperparams`, say `static_args=("state_dtype",)`.'
        )
    if not jnp.issubdtype(state_dtype, jnp.floating):
        raise ValueError(
            f"`state_dtype` must be a real floating-point dtype, got {jnp.dtype(state_dtype)}; "
            "pass one such as jnp.bfloat16 or jnp.float32 (complex params get a complex state of "
            "that precision)."
        )
    dtype = jnp.result_type(leaf)
    if jnp.issubdtype(dtype, jnp.complexfloating):
        state_dtype = _promoted(state_dtype, jnp.complex64)
    return _promoted(dtype, state_dtype) if exact else state_dtype


def _promoted(a: Any, b: Any) -> Any:
    """The dtype that holds both, also where JAX is told to promote nothing by itself."""
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(a, b)
