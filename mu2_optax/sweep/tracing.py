"""The user's function, traced once."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from mu2_optax.sweep.grid import RESERVED, Grid


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
    """
    _check_signature(train, grid)

    def cell(seed: Any, point: Any) -> tuple[Any, ...]:
        key = jax.random.key(seed)
        if grid.by_name:
            metrics = train(**dict(zip(grid.axes, point, strict=True)), key=key)
        else:
            metrics = train(point[0], key)
        arrays = _checked_metrics(metrics, grid)
        names.extend(arrays)
        return tuple(arrays.values())

    names: list[str] = []
    closed, shapes = jax.make_jaxpr(cell, return_shape=True)(*arguments(grid, (), ()))
    return Traced(closed, dict(zip(names, shapes, strict=True)))


def arguments(grid: Grid, seeds: tuple[int, ...], points: tuple[int, ...]) -> tuple[Any, ...]:
    """Abstract (seeds, points) with the given leading shapes."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return (
        jax.ShapeDtypeStruct(seeds, np.uint32),
        jax.ShapeDtypeStruct((*points, len(grid.axes)), dtype),
    )


def _check_signature(train: Any, grid: Grid) -> None:
    if not callable(train):
        raise TypeError(
            f"`train` must be a function of (learning_rate, key), got {train!r}; it returns a dict "
            "of metrics."
        )
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):
        return
    names = ", ".join((*grid.axes, "key"))
    try:
        if grid.by_name:
            signature.bind(**dict.fromkeys((*grid.axes, "key")))
        else:
            signature.bind(None, None)
    except TypeError as error:
        how = f"by keyword, train({names})" if grid.by_name else "as train(learning_rate, key)"
        raise TypeError(
            f"`train` is called {how}, but its signature is {signature}: {error}."
        ) from None


def _checked_metrics(metrics: Any, grid: Grid) -> dict[str, jax.Array]:
    """The metrics as arrays; float types that NumPy lacks become float32."""
    if not isinstance(metrics, Mapping) or not metrics:
        raise TypeError(
            f"`train` must return a dict of metrics such as {{'loss': loss}}, got {metrics!r}."
        )
    arrays = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or name in (*RESERVED, *grid.axes):
            raise TypeError(
                f"a metric's name must be a string and none of {(*RESERVED, *grid.axes)}, got "
                f"{name!r}; rename it in what `train` returns."
            )
        try:
            array = jnp.asarray(value)
        except (TypeError, ValueError):
            raise TypeError(
                f"metric {name!r} must be a number or an array, got {value!r}; return a flat dict."
            ) from None
        if array.size == 0 or not jnp.isdtype(array.dtype, ("bool", "integral", "real floating")):
            raise TypeError(
                f"metric {name!r} must hold real numbers, got {array.dtype}{array.shape}."
            )
        narrow = jnp.issubdtype(array.dtype, jnp.floating) and array.dtype.itemsize < 4
        arrays[name] = array.astype(jnp.float32) if narrow else array
    return arrays
