"""The user's function, traced once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._train import call, check_signature, checked_metrics


@dataclass(frozen=True)
class Traced:
    """A cell of the sweep as a jaxpr.

    Attributes:
      closed: The jaxpr of ``(seed, point)``, with the arrays that ``train`` closes over.
      outputs: Shape and dtype of each metric of one cell.
    """

    closed: ClosedJaxpr
    outputs: dict[str, jax.ShapeDtypeStruct]

    def cell(self, constants: Any, seed: Any, point: Any) -> dict[str, Any]:
        """Runs one cell; the arrays that ``train`` closes over are arguments here.

        So they are neither copied into the compiled program nor folded by the compiler, which
        matters when they are a data set.
        """
        leaves = jaxpr_as_fun(ClosedJaxpr(self.closed.jaxpr, constants))(seed, point)
        return dict(zip(self.outputs, leaves, strict=True))


def trace(train: Callable[..., Mapping[str, Any]], grid: Grid) -> Traced:
    """Calls ``train`` once, with tracers.

    Args:
      train: The function of a cell.
      grid: The grid.

    Returns:
      The traced cell.

    Raises:
      TypeError: If ``train`` cannot take the arguments, or returns something else than a dict of
        numeric arrays.
      ValueError: If a value of the grid is lost in JAX's default precision.
    """
    check_signature(train, grid)
    check_precision(grid)

    def cell(seed: Any, point: Any) -> tuple[Any, ...]:
        arrays = checked_metrics(call(train, grid, point, jax.random.key(seed)), grid)
        names.extend(arrays)
        return tuple(arrays.values())

    names: list[str] = []
    try:
        closed, shapes = jax.make_jaxpr(cell, return_shape=True)(*arguments(grid, (), ()))
    except jax.errors.JAXTypeError as error:
        error.add_note(
            "`train` must be JAX code from start to end, because it is traced once for the whole "
            'grid; strategy="python" runs an ordinary function.'
        )
        raise
    return Traced(closed, dict(zip(names, shapes, strict=True)))


def check_precision(grid: Grid) -> None:
    """Requires values that are told apart in JAX's default precision.

    Raises:
      ValueError: If a value becomes 0, infinite or the same as another.
    """
    dtype = jax.dtypes.canonicalize_dtype(float)
    for name, axis in grid.axes.items():
        with np.errstate(over="ignore"):
            passed = axis.astype(dtype)
        lost = ~np.isfinite(passed) | ((passed == 0) & (axis != 0))
        if lost.any() or len(np.unique(passed)) < len(passed):
            raise ValueError(
                f"the values of `{name}` must be different numbers in {dtype}, in which they are "
                f"passed, got {axis.tolist()}; space them out, or turn on jax_enable_x64."
            )


def arguments(grid: Grid, seeds: tuple[int, ...], points: tuple[int, ...]) -> tuple[Any, ...]:
    """Abstract (seeds, points) with the given leading shapes."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return (
        jax.ShapeDtypeStruct(seeds, np.uint32),
        jax.ShapeDtypeStruct((*points, len(grid.axes)), dtype),
    )
