"""What the type of an array says about devices: an explicit sharding, and manual axes.

On a mesh with explicit axes the type of an array has its sharding, and inside ``jax.shard_map`` the
axes along which it varies; a loop needs both to stay as they are.
"""

from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, NamedSharding


def explicit_sharding(array: Any) -> NamedSharding | None:
    """The sharding that is a part of the type of an array or of its shape, if there is one."""
    sharding = getattr(array, "sharding", None)
    if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
        return sharding
    return None


def left_to_partitioner(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function from a tree to one of the same shapes, where the mesh has explicit axes too.

    Raveling a tree and factoring a matrix mix its axes, and have no sharding of their own to name.
    """

    def called(tree: Any) -> Any:
        types = jax.tree.map(jax.typeof, tree)
        if any(explicit_sharding(a) is not None for a in jax.tree.leaves(types)):
            shardings = jax.tree.map(lambda a: a.sharding, types)
            return jax.sharding.auto_axes(function, out_sharding=shardings)(tree)
        return function(tree)

    return called


def varying_axes(array: Any) -> frozenset[str]:
    """The axes of a ``jax.shard_map`` along which an array varies, or what a shape stands for."""
    kind = array if isinstance(array, jax.ShapeDtypeStruct) else jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)  # since JAX 0.10
    axes = getattr(kind, "vma", None) if manual is None else manual.varying
    return frozenset(axes or ())


def varying_along(tree: Any, axes: Any) -> Any:
    """``tree`` with every leaf marked as varying along ``axes``, with the same values."""

    def mark(leaf: Any) -> Any:
        missing = tuple(sorted(frozenset(axes) - varying_axes(leaf)))
        if not missing:
            return leaf
        operations: Any = jax.lax
        if hasattr(operations, "pcast"):
            return operations.pcast(leaf, missing, to="varying")
        return operations.pvary(leaf, missing)  # before JAX 0.8.2

    return jax.tree.map(mark, tree)


def device_mean(tree: Any, axis_name: str | None) -> Any:
    """The mean of each leaf over the devices of an axis; without an axis, ``tree`` as it is."""
    return tree if axis_name is None else jax.lax.pmean(tree, axis_name)
