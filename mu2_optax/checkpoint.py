"""Flax's bytes, read back into the very optimizer and model that wrote them, and damage found."""

import math
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

try:
    from flax import serialization
except ImportError as error:
    raise ImportError("`mu2_optax.checkpoint` needs Flax: install the extra `flax`") from error

__all__ = [
    "Sealed",
    "from_bytes",
    "seal",
    "unseal",
]

Tree = TypeVar("Tree")


class Sealed(NamedTuple, Generic[Tree]):
    """A tree to be stored, and what :func:`unseal` knows it by.

    Attributes:
      tree: The tree.
      sums: A checksum for each of its leaves, in their order (uint32).
    """

    tree: Tree
    sums: jax.Array


def seal(tree: Tree) -> Sealed[Tree]:
    r"""Adds checksums to a tree before it is stored, with whichever library stores it.

    .. math:: s = \sum_i (2 i + 1)\, b_i \bmod 2^{32}

    Here :math:`b_i` are the bits of the numbers of a leaf, in words of at most 32. A bit that flips
    always changes the sum. Plain arrays in a file have no checksum: neither Flax's bytes nor
    Orbax notice a bit that has flipped there. The sums are computed where the arrays are, also if
    they are sharded.

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
      J. G. Fletcher, `An arithmetic checksum for serial transmissions
      <https://doi.org/10.1109/TCOM.1982.1095369>`_, 1982
    """
    leaves = jax.tree.leaves(tree)
    return Sealed(tree, jnp.stack([_checksum(leaf) for leaf in leaves]))


def unseal(sealed: Sealed[Tree], source: Any = "the checkpoint") -> Tree:
    """Requires a restored tree to be the one that was saved, to the last bit.

    Args:
      sealed: What was restored in the place of what :func:`seal` gave.
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
      ValueError: run/7 is damaged: its first leaf that is not what was saved is at the root; ...

    References:
      :func:`seal`
    """
    expected, found = np.asarray(sealed.sums), np.asarray(seal(sealed.tree).sums)
    if expected.shape != found.shape:
        raise ValueError(
            f"{source} has {expected.size} checksums for {found.size} leaves; restore what `seal` "
            "gave, into a tree of the same structure."
        )
    places = [path for path, _ in jax.tree_util.tree_leaves_with_path(sealed.tree)]
    for place, ours, theirs in zip(places, found, expected, strict=True):
        if ours != theirs:
            raise ValueError(
                f"{source} is damaged: its first leaf that is not what was saved is at "
                f"{jax.tree_util.keystr(place) or 'the root'}; go back to an earlier checkpoint."
            )
    return sealed.tree


def from_bytes(target: Tree, encoded: bytes, source: Any = "`encoded`") -> Tree:
    """``flax.serialization.from_bytes``, refusing bytes of another optimizer or another model.

    Flax's own compares names and not shapes or dtypes, and fills a field that is None in
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
      ValueError: If the bytes are cut off, or do not hold such a tree. A number in them that has
        changed is not seen, unless the tree was sealed: :func:`seal`.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax, mu2_optax.checkpoint
      >>> from flax import serialization
      >>> state = mu2_optax.mu2_sgd(0.1).init(jnp.ones(3))
      >>> encoded = serialization.to_bytes(state)
      >>> state = mu2_optax.checkpoint.from_bytes(state, encoded)

    References:
      Flax, `serialization
      <https://flax.readthedocs.io/en/latest/api_reference/flax.serialization.html>`_
    """
    try:
        stored = serialization.msgpack_restore(encoded)
    except Exception as error:  # whichever of msgpack's, of NumPy's and of Flax's own
        raise ValueError(
            f"{source} must be what `flax.serialization.to_bytes` gave ({error}); it is cut off, "
            "damaged or something else."
        ) from error
    expected = serialization.to_state_dict(target)
    difference = _difference(_leaves(stored), _leaves(expected))
    if difference:
        raise ValueError(
            f"{source} must hold the structure of `target`: {difference}. It was written by "
            "another optimizer or for another model; build `target` with the ones that wrote it."
        )
    return serialization.from_state_dict(target, stored)


def _leaves(tree: Any) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda leaf: leaf is None)
    return {jax.tree_util.keystr(path): _describe(leaf) for path, leaf in leaves}


def _describe(leaf: Any) -> str:
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


@jax.jit
def _checksum(leaf: Any) -> jax.Array:
    """The sum of a leaf's words, each times an odd number of its own, modulo 2³²."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if jnp.iscomplexobj(leaf):
        return _checksum(leaf.real) + 3 * _checksum(leaf.imag)
    if leaf.dtype == bool:
        leaf = leaf.astype(jnp.uint8)
    width = min(leaf.dtype.itemsize, 4)  # of numbers of 8 bytes the last axis has both halves
    words = jax.lax.bitcast_convert_type(leaf, jnp.dtype(f"uint{8 * width}")).astype(jnp.uint32)
    index = jnp.zeros([], jnp.uint32)
    for axis, size in enumerate(words.shape):  # counted without a reshape, which would gather
        step = math.prod(words.shape[axis + 1 :]) % 2**32
        counted = jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)
        index = index + jnp.uint32(step) * counted if size else index
    return jnp.sum((2 * index + 1) * words, dtype=jnp.uint32)
