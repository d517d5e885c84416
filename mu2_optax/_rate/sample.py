"""A sample of every tensor, on which lengths and angles of whole trees are measured."""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from mu2_optax._internal.sharding import explicit_sharding
from mu2_optax._internal.types import Tree

_SHARE, _LEAST, _MOST = 64, 1024, 4096  # of a tensor: one number in 64, but 1024 to 4096 of them


def sampled(tree: Tree) -> jax.Array:
    r"""A vector s with :math:`s \cdot s'` near the mean of :math:`a\,a'` over all coordinates.

    Here a and a' run over the coordinates of two trees of the same shapes. Tensors of up to 1024
    numbers are taken whole; of larger ones, the numbers on a regular grid, the same in every step.
    Each number is weighted by how many coordinates it stands for; those with the same weight lie
    together, because a multiplication for each tensor takes long to compile. The sample has the
    precision of the widest tensor.
    """
    leaves = [leaf for leaf in map(jnp.asarray, jax.tree.leaves(tree)) if leaf.size]
    if not leaves:
        return jnp.zeros(0, jnp.float32)
    count = sum(leaf.size for leaf in leaves)
    widest = max((jnp.finfo(leaf.dtype).dtype for leaf in leaves), key=lambda d: d.itemsize)
    alike: dict[float, list[jax.Array]] = {}
    for leaf in leaves:
        few = _replicated(_grid)(leaf)
        parts = [few.real, few.imag] if jnp.iscomplexobj(few) else [few]
        weight = math.sqrt(leaf.size / (few.size * count))
        alike.setdefault(weight, []).extend(part.astype(widest) for part in parts)
    return jnp.concatenate([weight * jnp.concatenate(few) for weight, few in alike.items()])


def _grid(leaf: jax.Array) -> jax.Array:
    places = _places(leaf.shape)
    strides = [_stride(n, k) for n, k in zip(leaf.shape, places, strict=True)]
    spans = [(k - 1) * s + 1 for k, s in zip(places, strides, strict=True)]
    starts = [(n - span) // 2 for n, span in zip(leaf.shape, spans, strict=True)]
    ends = [start + span for start, span in zip(starts, spans, strict=True)]
    return jax.lax.slice(leaf, starts, ends, strides).reshape(-1)


def _places(shape: tuple[int, ...]) -> list[int]:
    """How many places along each axis: the longest axes are thinned out first."""
    most = min(max(math.prod(shape) // _SHARE, _LEAST), _MOST)
    places = list(shape)
    while math.prod(places) > most:
        longest = places.index(max(places))
        places[longest] = (places[longest] + 1) // 2
    return places


def _stride(length: int, places: int) -> int:
    """From place to place: an odd number, because patterns tend to repeat at powers of two."""
    widest = max((length - 1) // max(places - 1, 1), 1)
    return widest if widest % 2 else max(widest - 1, 1)


def _replicated(function: Any) -> Any:
    """``function``, with its small result on every device, even on a mesh with explicit axes."""

    def called(leaf: jax.Array) -> jax.Array:
        if explicit_sharding(jax.typeof(leaf)) is None:
            return function(leaf)
        return jax.sharding.auto_axes(function, out_sharding=PartitionSpec(None))(leaf)

    return called
