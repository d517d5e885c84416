"""Which leaves are matrices whose steps are orthogonal, and what is stored for each leaf."""

from typing import Any

import jax
import jax.numpy as jnp

from mu2_optax._internal.masks import Mask, is_boolean, marks_of
from mu2_optax._internal.tree_checks import SettingError
from mu2_optax._internal.types import Params, Updates


def check_setting(
    inverse: Any, momentum: Any, updates: Updates, marks: list[bool], together: bool
) -> None:
    """Requires a state that was made with the same arguments."""
    each = list(zip(jax.tree.leaves(updates), marks, strict=True))
    scales = [()] if together else [_shape(g, mark) for g, mark in each]
    moments = [jnp.shape(g) if mark else () for g, mark in each]
    found, kept = ([jnp.shape(a) for a in jax.tree.leaves(tree)] for tree in (inverse, momentum))
    if found != scales or (kept or [()] * len(each)) != moments:
        held = sum(shape != () for shape in kept)
        raise SettingError(
            "`state` must be one that the same `spectral` and `projection` made, got one that "
            f"holds a momentum for {held} matrices and scales of shapes {found[:3]}, "
            f"where `spectral` marks {sum(marks)} matrices; build the optimizer that made it, or "
            "call `init` again."
        )


def never(spectral: Mask) -> bool:
    """Whether no tree has such leaves."""
    return is_boolean(spectral) and not any(marks_of("spectral", spectral, 0.0))


def matrices(spectral: Mask, params: Params) -> list[bool]:
    """For each leaf, whether its steps are orthogonal."""
    leaves = jax.tree.leaves(params)
    marks = marks_of("spectral", spectral, params)
    if is_boolean(spectral):
        shapes = [jnp.shape(leaf)[-2:] for leaf in leaves]
        return [m and len(s) > 1 and min(s) > 1 for s, m in zip(shapes, marks, strict=True)]
    for leaf, mark in zip(leaves, marks, strict=True):
        if mark and jnp.ndim(leaf) < 2:
            raise ValueError(
                f"`spectral` must mark matrices, got True for a leaf of shape {jnp.shape(leaf)}; "
                "mark it False, or pass True alone for every matrix there is."
            )
    return marks


def _shape(p: Any, matrix: bool) -> tuple[int, ...]:
    """That of the scales: a number for each coordinate, or for each matrix."""
    return (*jnp.shape(p)[:-2], 1, 1) if matrix else jnp.shape(p)


def zeros(p: Any, matrix: bool) -> jax.Array:
    """Real zeros for the scales."""
    dtype = jnp.finfo(jnp.result_type(p)).dtype
    return jnp.zeros(_shape(p, matrix), dtype) if matrix else jnp.zeros_like(p, dtype=dtype)
