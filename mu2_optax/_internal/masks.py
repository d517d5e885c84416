"""Masks: trees of booleans that select leaves of the params."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import numpy as np

from mu2_optax._internal.types import Params, Tree

Mask: TypeAlias = Tree | Callable[[Tree], Tree]
"""A tree of booleans like params, or a prefix of such a tree; or a function from params to one."""


def marks_of(name: str, mask: Mask, params: Params) -> list[bool]:
    """The boolean of each leaf of params; errors call the mask ``name``."""
    marks = mask(params) if callable(mask) else mask
    try:
        spread = jax.tree.map(lambda m, part: jax.tree.map(lambda _: m, part), marks, params)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"`{name}` must be a tree of booleans like params, or a prefix of such a tree, got "
            f"{marks!r}; or pass a function from params to such a tree."
        ) from error
    found = jax.tree.leaves(spread)
    if not all(isinstance(mark, bool | np.bool_) for mark in found):
        raise TypeError(f"`{name}` must hold the booleans True and False, got {marks!r}.")
    return found
