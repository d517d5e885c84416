"""A sample of a tree of tensors, on which lengths of the whole tree are measured."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jax.typing import DTypeLike

from mu2_optax._internal.sharding import explicit_sharding
from mu2_optax._internal.trees import root, wide_dtype
from mu2_optax._internal.types import Tree

_SHARE, _LEAST, _MOST = 64, 1024, 4096  # of a tensor: one number in 64, but 1024 to 4096 of them
_ALL, _PLACES = 64, 16  # all of up to 64 tensors; of more, which compile for long, those at places
_NEIGHBOURS = 64  # along the last axis: a TPU reads whatever lies between numbers further apart
_STRIDE = 1023  # the longest that a TPU takes along the other axes
_SPAN = 2**14  # rows from the first to the last of a block: some TPUs load all that lie between
_BLOCK, _BLOCKS = 4096, 8  # one block for so many places of the longest axis, but not more than 8


class Sample:
    r"""Which numbers of trees of these shapes are looked at: the same ones in every step.

    Tensors of up to 1024 numbers are taken whole. Of a larger one a few blocks are taken, which lie
    along its diagonal; a block has neighbours along the last axis, and a regular grid along the
    others. Of more than 64 tensors, those are taken that hold one of 16 places at equal distances
    in the whole tree, so that a large tensor is nearly always among them.

    Args:
      tree: Arrays, or anything that has their shapes.

    Attributes:
      whole: Whether the sample is the whole tree.
    """

    def __init__(self, tree: Tree) -> None:
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
        sizes = np.array([math.prod(shape) for shape in shapes], dtype=float)
        held = _held(sizes)
        self._chosen = np.flatnonzero(held)
        self._blocks = [_blocks(shapes[i]) for i in self._chosen]
        self._taken = np.array([_count(shapes[i]) for i in self._chosen], dtype=int)
        self._shape = (len(self._taken), max(self._taken, default=0))
        self._share = held[self._chosen] / self._taken
        self.whole = bool(self._taken.sum() == sizes.sum())

    def __call__(self, tree: Tree) -> jax.Array:
        """The sample of each tensor as a row, filled up with zeros; at least in float32."""
        return self.stacked(self.taken(tree))

    def taken(self, tree: Tree) -> list[jax.Array]:
        """The sample of each tensor."""
        leaves = jax.tree.leaves(tree)
        chosen = [jnp.asarray(leaves[i]) for i in self._chosen]
        return [_replicated(*each) for each in zip(chosen, self._blocks, strict=True)]

    def stacked(self, taken: list[jax.Array]) -> jax.Array:
        """As rows that are filled up with zeros; at least in float32."""
        if not taken:
            return jnp.zeros((0, 0), jnp.float32)
        with jax.numpy_dtype_promotion("standard"):
            widest = jnp.result_type(*map(wide_dtype, taken))
        length = self._shape[1]
        return jnp.stack([jnp.pad(row.astype(widest), (0, length - row.size)) for row in taken])

    def shares(self, dtype: DTypeLike) -> jax.Array:
        """For each number of a sample, the share of all numbers of the tree that it stands for."""
        taken, share = jnp.asarray(self._taken, jnp.int32), jnp.asarray(self._share, dtype)
        taken = jax.lax.broadcast_in_dim(taken, self._shape, (0,))
        share = jax.lax.broadcast_in_dim(share, self._shape, (0,))
        return jnp.where(jax.lax.broadcasted_iota(jnp.int32, self._shape, 1) < taken, share, 0)

    def rows(self, of_tensors: Sequence[bool]) -> jax.Array:
        """What is said of each tensor of the tree, for the rows of a sample."""
        return jnp.asarray(np.array(of_tensors, bool)[self._chosen][:, None])

    def mean(self, numbers: jax.Array) -> jax.Array:
        """The mean over the whole tree, from what has been computed of each number of a sample."""
        return jnp.sum(jnp.asarray(self._share, numbers.dtype) * jnp.sum(numbers, axis=1))

    def size(self, numbers: jax.Array) -> jax.Array:
        """The root mean square of what is finite, whose squares may over- or underflow."""
        sizes = jnp.where(jnp.isfinite(numbers), jnp.abs(numbers), 0)
        largest = jnp.max(sizes, initial=0) / 4  # the inverse of the largest floats is flushed to 0
        largest = jax.lax.stop_gradient(jnp.maximum(largest, jnp.finfo(sizes.dtype).tiny))
        return largest * root(self.mean(jnp.square(sizes / largest)))


def _held(sizes: np.ndarray) -> np.ndarray:
    """The share of all numbers that each tensor stands for; 0 for those that are not taken."""
    total = max(sizes.sum(), 1)
    if np.count_nonzero(sizes) <= _ALL:
        return sizes / total
    places = (np.arange(_PLACES) + 0.5) * total / _PLACES
    tensors = np.searchsorted(np.cumsum(sizes), places, side="right")
    return np.bincount(tensors, minlength=sizes.size) / _PLACES


Block = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""The first place along each axis, the place after the last one, and the stride."""


def _count(shape: tuple[int, ...]) -> int:
    """How many numbers the blocks have."""
    count = 0
    for block in _blocks(shape):
        count += math.prod(len(range(*along)) for along in zip(*block, strict=True))
    return count


def _blocks(shape: tuple[int, ...]) -> list[Block]:
    """The blocks of a tensor: each in its own part of the last and of the longest other axis."""
    size, ndim = math.prod(shape), len(shape)
    if size <= _LEAST:
        return [((0,) * ndim, shape, (1,) * ndim)]
    blocks = min(max(max(shape) // _BLOCK, 1), _BLOCKS)
    most = min(max(size // _SHARE, _LEAST), _MOST) // blocks
    others = shape[:-1]
    split = {ndim - 1} | ({others.index(max(others))} if others else set())
    parts = [blocks if axis in split and n >= 2 * blocks else 1 for axis, n in enumerate(shape)]
    regions = [n // part for n, part in zip(shape, parts, strict=True)]
    places = _thinned(regions[:-1], max(most // min(_NEIGHBOURS, regions[-1]), 1))
    places.append(min(regions[-1], most // math.prod(places)))
    strides = [*_strides(regions[:-1], places[:-1]), 1]
    spans = _spans(places, strides)
    found = []
    for block in range(blocks):
        starts = [
            (block * n if part > 1 else 0) + (n - span) // 2
            for n, part, span in zip(regions, parts, spans, strict=True)
        ]
        ends = [start + span for start, span in zip(starts, spans, strict=True)]
        found.append((tuple(starts), tuple(ends), tuple(strides)))
    return found


def _thinned(lengths: list[int], most: int) -> list[int]:
    """How many places along each axis: the longest axes are thinned out first."""
    places = list(lengths)
    while math.prod(places) > most:
        longest = places.index(max(places))
        places[longest] = (places[longest] + 1) // 2
    return places


def _strides(lengths: list[int], places: list[int]) -> list[int]:
    """From place to place along each axis; the longest is cut where a block spans too much."""
    strides = [_stride(n, k) for n, k in zip(lengths, places, strict=True)]
    while math.prod(_spans(places, strides)) > _SPAN:
        longest = strides.index(max(strides))
        strides[longest] = strides[longest] // 2 | 1
    return strides


def _spans(places: list[int], strides: list[int]) -> list[int]:
    return [(k - 1) * stride + 1 for k, stride in zip(places, strides, strict=True)]


def _stride(length: int, places: int) -> int:
    """From place to place: an odd number, because patterns tend to repeat at powers of two."""
    widest = min(max((length - 1) // max(places - 1, 1), 1), _STRIDE)
    return widest if widest % 2 else widest - 1


def _replicated(leaf: jax.Array, blocks: list[Block]) -> jax.Array:
    """The numbers in some blocks, on every device, even on a mesh with explicit axes."""

    def taken(leaf: Any) -> jax.Array:
        rows = [jax.lax.slice(leaf, *block).reshape(-1) for block in blocks]
        return rows[0] if len(rows) == 1 else jnp.concatenate(rows)

    if explicit_sharding(jax.typeof(leaf)) is None:
        return taken(leaf)
    return jax.sharding.auto_axes(taken, out_sharding=PartitionSpec(None))(leaf)
