"""Masks: trees of booleans that select leaves of the params."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import numpy as np

from mu2_optax._internal.types import Params, Tree

Mask: TypeAlias = Tree | Callable[[Tree], Tree]
"""A tree of booleans like params, or a prefix of such a tree; or a function from params to one."""


def marks_of(name: str, mask: Mask, params: Params) -> list[bool]:
    """The boolean of each leaf of params; errors call the mask ``name``."""
    marks = mask(params) if callable(mask) else mask
    structure: Any = jax.tree.structure(marks)
    try:
        parts = structure.flatten_up_to(params)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be a tree of booleans like params, or a prefix of such a tree, got "
            f"{marks!r}; or pass a function from params to such a tree."
        ) from error
    known = [_mark(name, mark, marks) for mark in jax.tree.leaves(marks)]
    return [mark for mark, part in zip(known, parts, strict=True) for _ in jax.tree.leaves(part)]


def checked_mask(name: str, mask: Mask | None) -> Mask | None:
    """A mask for Optax, whose errors call it ``name``."""

    def marks(params: Params) -> Any:
        return jax.tree.unflatten(jax.tree.structure(params), marks_of(name, mask, params))

    return None if mask is None else marks


def is_boolean(value: Any) -> bool:
    """Whether it is one boolean: Python's, NumPy's or JAX's, known or not."""
    if isinstance(value, np.ndarray | jax.Array):
        return value.ndim == 0 and value.dtype == bool
    return isinstance(value, bool | np.bool_)


def _mark(name: str, mark: Any, marks: Tree) -> bool:
    """One boolean of a mask, which says what is compiled."""
    if not is_boolean(mark):
        raise TypeError(
            f"`{name}` must hold the booleans True and False, got {marks!r}; one marks a whole "
            "leaf, so pass `bool(...)` of what is none."
        )
    if isinstance(mark, jax.core.Tracer):
        raise TypeError(
            f"`{name}` must be known when a step is compiled, got {marks!r}; make it outside of "
            "`jax.jit`, or of Python's own booleans, such as `p.ndim > 1`. With "
            f'`optax.inject_hyperparams`, pass `static_args=("{name}",)`.'
        )
    return bool(mark)
