"""The user's function: how it is called and traced, and what it may return."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from mu2_optax.sweep._grid import RESERVED, Grid


@dataclass(frozen=True)
class Traced:
    """A cell of the sweep as a jaxpr.

    Attributes:
      closed: The jaxpr of ``(seed, point)``, with the arrays that ``train`` closes over. Journals
        hold its fingerprint, and so its arguments stay in this order.
      outputs: Shape and dtype of each metric of one cell.
    """

    closed: ClosedJaxpr
    outputs: dict[str, jax.ShapeDtypeStruct]

    def cell(self, constants: Any, point: Any, seed: Any) -> dict[str, Any]:
        """Runs one cell; the arrays that ``train`` closes over are arguments here.

        As arguments they are neither copied into the compiled program nor folded by the compiler,
        which matters if they are a data set.
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
      TypeError: If ``train`` cannot take the arguments, or returns anything other than a dict of
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
    point, seed = arguments(grid, (), ())
    try:
        closed, shapes = jax.make_jaxpr(cell, return_shape=True)(seed, point)
    except jax.errors.JAXTypeError as error:
        error.add_note(
            "`train` must be JAX code from start to end, because it is traced once for the whole "
            'grid; strategy="python" runs an ordinary function.'
        )
        raise
    return Traced(closed, dict(zip(names, shapes, strict=True)))


def arguments(grid: Grid, points: tuple[int, ...], seeds: tuple[int, ...]) -> tuple[Any, ...]:
    """Abstract (points, seeds) with the given leading shapes."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return (
        jax.ShapeDtypeStruct((*points, len(grid.axes)), dtype),
        jax.ShapeDtypeStruct(seeds, np.uint32),
    )


def check_precision(grid: Grid) -> None:
    """Requires values that remain different numbers in JAX's default precision.

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


def check_signature(train: Any, grid: Grid) -> None:
    """Requires a function that can take the grid's axes and a key.

    Raises:
      TypeError: If ``train`` cannot be called with them.
    """
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


def call(train: Callable[..., Any], grid: Grid, point: Sequence[Any], key: Any) -> Any:
    """Calls ``train`` for one cell: by keyword if the axes were a dict."""
    if grid.by_name:
        return train(**dict(zip(grid.axes, point, strict=True)), key=key)
    return train(point[0], key)


def checked_metrics(
    metrics: Any, grid: Grid, asarray: Callable[[Any], Any] = jnp.asarray
) -> dict[str, Any]:
    """What ``train`` returned, as arrays; float types that NumPy lacks become float32.

    Args:
      metrics: What ``train`` returned.
      grid: The grid, whose axes' names a metric must not have.
      asarray: ``jnp.asarray`` for traced values, ``np.asarray`` for concrete ones.

    Returns:
      The metrics by name.

    Raises:
      TypeError: If it is anything other than a dict of real numbers and arrays.
    """
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
            array = asarray(value)
        except (TypeError, ValueError):
            array = np.asarray(None)
        if array.dtype == object:
            raise TypeError(
                f"metric {name!r} must be a number or an array, got {value!r}; return a flat dict."
            )
        real = (np.bool_, np.integer, np.floating)
        if array.size == 0 or not any(jnp.issubdtype(array.dtype, kind) for kind in real):
            raise TypeError(
                f"metric {name!r} must hold real numbers, got {array.dtype}{array.shape}."
            )
        narrow = jnp.issubdtype(array.dtype, np.floating) and array.dtype.itemsize < 4
        arrays[name] = array.astype(np.float32) if narrow else array
    return arrays
