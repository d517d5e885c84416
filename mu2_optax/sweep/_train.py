"""The user's function: how it is called, and what it may take and return."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mu2_optax.sweep._grid import RESERVED, Grid

Train: TypeAlias = Callable[..., Mapping[str, Any]]


def call(train: Callable[..., Any], grid: Grid, point: Sequence[Any], key: Any) -> Any:
    """Calls ``train`` for one cell: by keyword if the axes were a dict."""
    if grid.by_name:
        return train(**dict(zip(grid.axes, point, strict=True)), key=key)
    return train(point[0], key)


def check_train(train: Any, grid: Grid) -> None:
    """Requires a function that can take the grid's axes and a key."""
    if not callable(train):
        raise TypeError(
            f"`train` must be a function of (learning_rate, key), got {train!r}; it returns a dict "
            "of metrics."
        )
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):  # of a builtin, say
        return
    try:
        call(signature.bind, grid, [None] * len(grid.axes), None)
    except TypeError as error:
        names = ", ".join((*grid.axes, "key"))
        how = f"by keyword, train({names})" if grid.by_name else "as train(learning_rate, key)"
        raise TypeError(
            f"`train` is called {how}, but its signature is {signature}: {error}."
        ) from None


def check_precision(grid: Grid) -> None:
    """Requires values that remain finite and different numbers in JAX's default precision."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    for name, axis in grid.axes.items():
        with np.errstate(over="ignore"):
            rounded = axis.astype(dtype)
        lost = ~np.isfinite(rounded) | ((rounded == 0) & (axis != 0))
        if lost.any() or len(np.unique(rounded)) < len(rounded):
            raise ValueError(
                f"the values of `{name}` must be different numbers in {dtype}, in which they are "
                f"passed, got {axis.tolist()}; space them out, or turn on jax_enable_x64."
            )


def checked_metrics(metrics: Any, grid: Grid, asarray: Callable[[Any], Any]) -> dict[str, Any]:
    """What ``train`` returned, as arrays by name; float types that NumPy lacks become float32."""
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
        kinds = (np.bool_, np.integer, np.floating)
        real = array.dtype != object and any(jnp.issubdtype(array.dtype, kind) for kind in kinds)
        if not real or array.size == 0:
            raise TypeError(
                f"metric {name!r} must be a real number or an array of them, got {value!r}; return "
                "a flat dict."
            )
        narrow = jnp.issubdtype(array.dtype, np.floating) and array.dtype.itemsize < 4
        arrays[name] = array.astype(np.float32) if narrow else array
    return arrays
