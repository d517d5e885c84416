"""What the type of an array says about devices: an explicit sharding, and manual axes.

On a mesh with explicit axes the type of an array includes its sharding, and inside
``jax.shard_map`` the axes along which it varies; a loop must change neither.
"""

from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

import jax
from jax.sharding import AxisType, NamedSharding

from mu2_optax._internal.types import Leaf, Tree, Updates


def explicit_sharding(array: Any) -> NamedSharding | None:
    """The sharding that is a part of the type of an array or of its shape, if there is one."""
    sharding = getattr(array, "sharding", None)
    if isinstance(sharding, NamedSharding) and AxisType.Explicit in sharding.mesh.axis_types:
        return sharding
    return None


def left_to_partitioner(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Makes ``function``, which keeps the shapes of a tree, run on explicit axes too.

    Raveling a tree and factoring a matrix mix axes, so that JAX cannot tell how the result is
    sharded; here the result is sharded like the argument.
    """

    def called(tree: Tree) -> Any:
        types = jax.tree.map(jax.typeof, tree)
        if any(explicit_sharding(a) is not None for a in jax.tree.leaves(types)):
            shardings = jax.tree.map(lambda a: a.sharding, types)
            return jax.sharding.auto_axes(function, out_sharding=shardings)(tree)
        return function(tree)

    return called


def varying_axes(array: Any) -> frozenset[str]:
    """The axes of a ``jax.shard_map`` along which an array, or one of this shape, varies."""
    kind = array if isinstance(array, jax.ShapeDtypeStruct) else jax.typeof(array)
    manual = getattr(kind, "manual_axis_type", None)  # since JAX 0.10
    axes = getattr(kind, "vma", None) if manual is None else manual.varying
    return frozenset(axes or ())


def varying_along(tree: Tree, axes: Any) -> Any:
    """``tree`` with every leaf marked as varying along ``axes``, with the same values."""

    def mark(leaf: Leaf) -> Any:
        missing = tuple(sorted(frozenset(axes) - varying_axes(leaf)))
        if not missing:
            return leaf
        operations: Any = jax.lax
        if hasattr(operations, "pcast"):
            return operations.pcast(leaf, missing, to="varying")
        return operations.pvary(leaf, missing)  # before JAX 0.8.2

    return jax.tree.map(mark, tree)


def varying_like(tree: Tree, params: Tree) -> Any:
    """``tree``, which depends on all of params, marked as varying wherever one of them does."""
    axes = frozenset[str]().union(*map(varying_axes, jax.tree.leaves(params)))
    return varying_along(tree, axes)


AxisName: TypeAlias = Hashable | tuple[Hashable, ...]
"""An axis of a ``jax.shard_map`` or ``jax.pmap``, or several."""


def axes_of(axis_name: AxisName | None) -> tuple[Any, ...]:
    """The axes as a tuple."""
    if axis_name is None:
        return ()
    return axis_name if isinstance(axis_name, tuple) else (axis_name,)


def device_mean(tree: Tree, axis_name: AxisName | None) -> Any:
    """The mean of each leaf over the devices of an axis; without an axis, ``tree`` as it is."""
    return tree if axis_name is None else jax.lax.pmean(tree, axis_name)


def check_reduced(grads: Updates, further: Any) -> None:
    """Requires the further gradients of a step to be reduced over devices as the first one is.

    Only ``jax.shard_map`` with its default ``check_vma=True`` can tell; elsewhere this passes.
    """
    for first, other in zip(jax.tree.leaves(grads), jax.tree.leaves(further), strict=True):
        axes = sorted(map(str, varying_axes(other) - varying_axes(first)))
        if axes:
            raise ValueError(
                "`grad_fn(params, batch)` must be the same on all devices where `grads` is, got "
                f"gradients that vary along the axis {', '.join(map(repr, axes))}: a mean over "
                "devices after `grad_fn` reaches only one of the gradients of a step. Put it "
                "inside: `mu2_optax.value_and_grad(loss_fn, axis_name=...)` gives such a `grad_fn`."
            )
