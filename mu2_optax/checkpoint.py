"""Checkpoints: refuses Flax's bytes of another optimizer or model, and detects damage."""

import math
import zlib
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from mu2_optax._internal.types import Leaf

try:
    from flax import serialization
except ImportError as error:
    raise ImportError("`mu2_optax.checkpoint` needs Flax: `pip install flax`") from error

__all__ = [
    "Sealed",
    "from_bytes",
    "seal",
    "unseal",
]

Tree = TypeVar("Tree")

_OF_64_BITS = ("float64", "int64", "uint64", "complex128")


class Sealed(NamedTuple, Generic[Tree]):
    """A tree to be stored, with the checksums that :func:`unseal` compares.

    Attributes:
      tree: The tree.
      sums: A checksum for each of its leaves, in their order (uint32).
    """

    tree: Tree
    sums: jax.Array


def seal(tree: Tree) -> Sealed[Tree]:
    r"""Adds checksums to a tree before it is stored, with whichever library stores it.

    .. math:: s = \sum_i h(b_i + i\varphi) + c \bmod 2^{32}

    Here :math:`b_i` are the bits of the numbers of a leaf, in words of at most 32, h mixes the bits
    of a word, and c is the CRC-32 of the shape. A change within one word always changes the sum; of
    other changes, one in four billion goes undetected. Plain arrays in a file have no checksum:
    neither Flax's bytes nor Orbax notice a bit that has flipped there. The sums are computed where
    the arrays are, even if they are sharded.

    Args:
      tree: Arrays, such as a train state.

    Returns:
      The tree and its sums: a tree too, to be saved in its place.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax.checkpoint
      >>> sealed = mu2_optax.checkpoint.seal({"w": jnp.ones(3)})
      >>> mu2_optax.checkpoint.unseal(sealed)["w"].tolist()
      [1.0, 1.0, 1.0]

    References:
      Appleby, `MurmurHash3 <https://github.com/aappleby/smhasher>`_, 2011, for h
    """
    sums = [_checksum(_in_words(leaf)) + _of_shape(leaf) for leaf in jax.tree.leaves(tree)]
    return Sealed(tree, jnp.stack(sums) if sums else jnp.zeros(0, jnp.uint32))


def unseal(sealed: Sealed[Tree], source: object = "the checkpoint") -> Tree:
    """Requires a restored tree to be the one that was saved, to the last bit.

    Args:
      sealed: The restored result of :func:`seal`.
      source: The file or folder that it came from, for the error.

    Returns:
      The tree.

    Raises:
      ValueError: If a leaf has changed since; the error names it.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax.checkpoint
      >>> damaged = mu2_optax.checkpoint.seal(jnp.ones(3))._replace(tree=jnp.zeros(3))
      >>> mu2_optax.checkpoint.unseal(damaged, "run/7")  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      ValueError: run/7 is damaged: the first leaf that has changed since it was saved is at ...
    """
    expected, found = np.asarray(sealed.sums), np.asarray(seal(sealed.tree).sums)
    if expected.shape != found.shape:
        raise ValueError(
            f"{source} has {expected.size} checksums for {found.size} leaves; restore what `seal` "
            "returned, into a tree of the same structure."
        )
    places = [path for path, _ in jax.tree_util.tree_leaves_with_path(sealed.tree)]
    for place, ours, theirs in zip(places, found, expected, strict=True):
        if ours != theirs:
            raise ValueError(
                f"{source} is damaged: the first leaf that has changed since it was saved is at "
                f"{jax.tree_util.keystr(place) or 'the root'}; go back to an earlier checkpoint."
            )
    return sealed.tree


def from_bytes(target: Tree, encoded: bytes, source: object = "`encoded`") -> Tree:
    """``flax.serialization.from_bytes``, refusing bytes of another optimizer or another model.

    Flax's own function compares names, but not shapes or dtypes, and fills a field that is None in
    ``target`` with whatever was stored; a run would then go on from a state that is not its own.
    Orbax, restoring into an abstract target, compares structures and shapes itself.

    Args:
      target: A tree with the structure, shapes and dtypes that are expected, such as a new train
        state.
      encoded: What ``flax.serialization.to_bytes`` made of such a tree.
      source: The file that it came from, for errors.

    Returns:
      The stored tree, bit for bit.

    Raises:
      ValueError: If the bytes are cut off, or do not hold such a tree. A number that has changed
        goes unnoticed, unless the tree was sealed: see :func:`seal`.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax, mu2_optax.checkpoint
      >>> from flax import serialization
      >>> state = mu2_optax.mu2_sgd(0.1).init(jnp.ones(3))
      >>> encoded = serialization.to_bytes(state)
      >>> state = mu2_optax.checkpoint.from_bytes(state, encoded)
    """
    try:
        stored = serialization.msgpack_restore(encoded)
    except Exception as error:  # msgpack, NumPy and Flax each raise their own
        raise ValueError(
            f"{source} must be what `flax.serialization.to_bytes` returned ({error}); it is cut "
            "off, damaged or something else: go back to an earlier checkpoint."
        ) from error
    expected = serialization.to_state_dict(target)
    difference = _difference(_leaves(stored), _leaves(expected))
    if difference:
        raise ValueError(
            f"{source} must hold the structure of `target`: {difference}. It was written by "
            "another optimizer or for another model; build `target` with the ones that wrote it."
        )
    return serialization.from_state_dict(target, stored)


def _leaves(tree: Tree) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda leaf: leaf is None)
    return {jax.tree_util.keystr(path): _describe(leaf) for path, leaf in leaves}


def _describe(leaf: Leaf) -> str:
    if leaf is None:
        return "None"
    shape, dtype = np.shape(leaf), jnp.result_type(leaf)
    return f"an array of {dtype}{list(shape)}" if shape else f"a scalar of {dtype}"


def _difference(stored: dict[str, str], expected: dict[str, str]) -> str:
    for place in sorted(expected.keys() | stored.keys()):
        ours, theirs = stored.get(place, "nothing"), expected.get(place, "nothing")
        if ours != theirs:
            return f"there is {ours} at {place}, expected {theirs}"
    return ""


def _of_shape(leaf: Leaf) -> jax.Array:
    """The CRC-32 of a shape, written as text."""
    return jnp.uint32(zlib.crc32(repr(np.shape(leaf)).encode()))


def _in_words(leaf: Leaf) -> Any:
    """A leaf as it is; NumPy's 64-bit numbers, which JAX would round, become 32-bit words."""
    if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.name in _OF_64_BITS:
        return np.frombuffer(np.ascontiguousarray(leaf).tobytes(), np.uint32)
    return leaf


@jax.jit
def _checksum(leaf: Leaf) -> jax.Array:
    """The sum of a leaf's words, mixed with their places, modulo 2³²."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.iscomplexobj(leaf):  # as it lies in memory
        leaf = jnp.stack([leaf.real, leaf.imag], axis=-1)
    if leaf.dtype == bool:
        leaf = leaf.astype(jnp.uint8)
    kind = jnp.finfo if jnp.issubdtype(leaf.dtype, jnp.floating) else jnp.iinfo
    bits = min(kind(leaf.dtype).bits, 32)  # the halves of 64-bit numbers are a last axis
    words = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{bits}")).astype(jnp.uint32)
    index = jnp.zeros([], jnp.uint32)
    for axis, size in enumerate(words.shape):  # a reshape would gather the leaf
        step = math.prod(words.shape[axis + 1 :]) % 2**32
        counted = jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
        index = index + jnp.uint32(step) * counted if size else index
    mixed = words + jnp.uint32(0x9E3779B9) * index
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = (mixed ^ (mixed >> shift)) * jnp.uint32(factor)
    return jnp.sum(mixed, dtype=jnp.uint32)
