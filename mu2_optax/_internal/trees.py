"""Trees, and the dtypes that states and updates have.

States are never narrower than float32 unless the user says so, arithmetic is never narrower than
float32 at all, and updates come back in the dtype of the params.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import DTypeLike

from mu2_optax._internal.types import Leaf, Params, Tree


def stored_copy(params: Params, state_dtype: DTypeLike | None, *, exact: bool = False) -> Tree:
    """Copies ``params`` into the dtypes of a state; ``exact`` keeps every bit of wider params.

    It is a copy, not an alias: a state that shares a buffer with params cannot be donated.
    """
    return jax.tree.map(
        lambda p: jnp.array(p, _stored_dtype(p, state_dtype, exact), copy=True), params
    )


def stored_zeros(params: Params, state_dtype: DTypeLike | None) -> Tree:
    """Zeros in the shapes of ``params`` and the dtypes of a state."""
    return jax.tree.map(
        lambda p: jnp.zeros_like(p, dtype=_stored_dtype(p, state_dtype, False)), params
    )


def stored_average(params: Params, state_dtype: DTypeLike | None) -> Tree:
    """Wide copies of the leaves that are narrower than their state; None for the other leaves.

    At step t, an average moves by about 2/t of its distance to the iterate. After a few hundred
    steps that is below the last place of a bfloat16 number, and an average kept only in the params
    would stall. If no leaf is narrower, the result is None.
    """

    def copied(p: Any) -> Any:
        dtype = _stored_dtype(p, state_dtype, True)
        return None if dtype == jnp.result_type(p) else jnp.array(p, dtype, copy=True)

    stored = [copied(p) for p in jax.tree.leaves(params)]
    if all(leaf is None for leaf in stored):
        return None
    return jax.tree.unflatten(jax.tree.structure(params), stored)


def leaves_like(params: Params, tree: Tree) -> list[Leaf]:
    """What ``tree`` holds at each leaf of ``params``: a leaf, None or a masked node.

    None in the place of the whole tree stands for None at each leaf.
    """
    structure: Any = jax.tree.structure(params)
    if tree is None:
        return [None] * structure.num_leaves
    return list(structure.flatten_up_to(tree))


def refined(params: Params, stored: Tree) -> Tree:
    """``params`` in full precision, with the lower bits that ``stored`` remembers.

    Where params are not the rounded average, something else has moved them (weight decay after the
    optimizer, a restored checkpoint), and the params are used as they are.
    """
    if stored is None:
        return params

    def refine(p: jax.Array, x: jax.Array | None) -> jax.Array:
        if x is None:
            return p
        p_wide = jnp.asarray(p).astype(x.dtype)
        return jnp.where(p_wide == rounded(x, jnp.result_type(p)), x, p_wide)

    return jax.tree.map(refine, params, stored)


def rounded(x: jax.Array, dtype: Any) -> jax.Array:
    """``x`` in its own dtype, rounded to a narrower one.

    A cast there and back will not do, because XLA may drop both casts. Its ``reduce_precision``
    flushes everything below the smallest normal number (6e-5 in float16) to zero, so such numbers
    are rounded separately.
    """
    if jnp.result_type(dtype) == x.dtype:
        return x
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return x.astype(dtype).astype(x.dtype)
    narrow = jnp.finfo(dtype)
    normal = jax.lax.reduce_precision(x, narrow.nexp, narrow.nmant)
    if narrow.nexp == jnp.finfo(x.dtype).nexp:
        return normal
    finest = jnp.asarray(float(narrow.smallest_subnormal), x.dtype)
    below = jnp.round(x / finest) * finest
    return jnp.where(jnp.abs(x) < float(narrow.smallest_normal), below, normal)


def widened(tree: Tree) -> Tree:
    """``tree`` with every leaf at least in float32."""
    return jax.tree.map(lambda a: jnp.asarray(a).astype(wide_dtype(a)), tree)


def cast_like(tree: Tree, reference: Tree) -> Tree:
    """``tree`` in the dtypes of ``reference``."""
    return jax.tree.map(lambda a, r: jnp.asarray(a).astype(jnp.result_type(r)), tree, reference)


def copied_like(tree: Tree, reference: Tree) -> Tree:
    """``tree`` in the dtypes of ``reference``, in buffers of its own."""
    return jax.tree.map(
        lambda a, r: jnp.array(a, dtype=jnp.result_type(r), copy=True), tree, reference
    )


def updated_in_place(d: Tree, x: Tree, t: jax.Array) -> tuple[Tree, Tree]:
    """``d`` and ``x`` as they are, in an order in which XLA need not copy a donated state.

    x is stored after d has been computed, which reads the last x, and d is handed on after x has
    been stored, a copy of the params that d will move. XLA on a CPU cannot tell that by itself: it
    would copy both, and a step that is bound by memory traffic takes up to twice as long.
    """
    never = t < 0  # which XLA does not know
    after = lambda a, o: jax.lax.select(never, o.astype(a.dtype), a)
    x = jax.tree.map(after, x, d)
    return jax.tree.map(after, d, x), x


def per_leaf(weight: jax.Array, tree: Tree) -> Tree:
    """``weight`` for each leaf, in the leaf's dtype; a vector holds one weight per leaf."""
    leaves, structure = jax.tree.flatten(tree)
    each = [weight] * len(leaves) if weight.ndim == 0 else list(weight)
    weights = [w.astype(a.dtype) for w, a in zip(each, leaves, strict=True)]
    return jax.tree.unflatten(structure, weights)


def scaled(weight: jax.Array, tree: Tree) -> Tree:
    """``weight`` times each leaf; a vector holds one weight per leaf."""
    return jax.tree.map(jnp.multiply, per_leaf(weight, tree), tree)


def inner_product(a: Tree, b: Tree) -> jax.Array:
    """The real inner product of two trees, at least in float32.

    It goes leaf by leaf without reshaping, because leaves that are sharded on an explicit mesh
    cannot be reshaped.
    """
    product = lambda a, b: jnp.sum(jnp.real(jnp.conj(a) * b)).astype(float)
    return jnp.sum(gathered(jax.tree.map(product, widened(a), widened(b))))


def inverse_or_zero(norm: jax.Array) -> jax.Array:
    """1/norm, and 0 for a norm of zero."""
    return jnp.where(norm > 0, 1 / jnp.where(norm > 0, norm, 1), 0)


def root(square: jax.Array) -> jax.Array:
    """The square root, with a derivative of zero at zero."""
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)


def rescaled(tree: Tree) -> tuple[jax.Array, Any]:
    """A quarter of the largest absolute value in a tree, and the tree divided by it.

    The norm of such a tree neither over- nor underflows. It is a quarter because XLA multiplies by
    the inverse, and the inverse of the largest floats is flushed to 0. Without the barrier, XLA
    squares a constant tree and the inverse separately.
    """
    tree = jax.lax.optimization_barrier(tree)
    tiny = max((float(jnp.finfo(a.dtype).tiny) for a in jax.tree.leaves(tree)), default=1.0)
    of_leaf = lambda a: jnp.max(jnp.abs(a), initial=0).astype(float)
    largest = jnp.max(gathered(jax.tree.map(of_leaf, tree)), initial=0)
    size = jnp.where(largest == 0, 1, jnp.maximum(largest / 4, tiny))
    return size, scaled(1 / size, tree)


def norm(tree: Tree) -> jax.Array:
    """The L2 norm of a tree, at least in float32, even where its square over- or underflows."""
    size, units = rescaled(widened(tree))
    return size * root(jnp.asarray(optax.tree.norm(units, squared=True)).astype(size.dtype))


def held(*scalars: jax.Array) -> tuple[jax.Array, ...]:
    """The same scalars, computed once.

    XLA repeats whatever leads to a scalar in each kernel that reads it, but not a reduction. With
    hundreds of leaves, that takes most of the time to compile.
    """
    row = jnp.stack([*scalars, scalars[0]])  # XLA drops the reduction of a single number
    own = np.eye(len(scalars), len(row), dtype=bool)
    return tuple(jnp.sum(jnp.where(one, row, 0)) for one in own)


def gathered(scalars: Tree) -> jax.Array:
    """The leaves of a tree of scalars as one vector, for a reduction whose result many leaves read.

    Without the barrier, XLA writes the reduction of n scalars as a chain of n operations, and on a
    CPU it repeats such a chain in each of the n leaves that read the result: the time to compile
    grows with the square of n. A reduction of one vector is computed once.
    """
    leaves = jax.tree.leaves(scalars)
    return jax.lax.optimization_barrier(jnp.stack(leaves) if leaves else jnp.zeros(0))


def add(a: Tree, b: Tree) -> Tree:
    """``a + b``, leaf by leaf; ``optax.tree.add`` computes ``0 + a + b``, which loses −0."""
    return jax.tree.map(jnp.add, a, b)


def wide_dtype(leaf: Leaf) -> DTypeLike:
    return _promoted(jnp.result_type(leaf), jnp.float32)


def _stored_dtype(leaf: Leaf, state_dtype: DTypeLike | None, exact: bool) -> DTypeLike:
    """The dtype of a leaf's state; complex leaves have complex states."""
    if state_dtype is None:
        return wide_dtype(leaf)
    if isinstance(state_dtype, jax.Array):
        raise TypeError(
            f"`state_dtype` must be a dtype such as jnp.float32, got {state_dtype!r}; with "
            '`optax.inject_hyperparams`, pass `static_args=("state_dtype",)`.'
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


def _promoted(a: DTypeLike, b: DTypeLike) -> DTypeLike:
    """The dtype that holds both, even if JAX is set not to promote dtypes implicitly.

    Floats of 8 bits and less are promoted by nobody; ``b`` is wider than those.
    """
    if jnp.dtype(a).itemsize == 1:
        return b
    with jax.numpy_dtype_promotion("standard"):
        return jnp.promote_types(a, b)
