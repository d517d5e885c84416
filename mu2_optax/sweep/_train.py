"""The user's function: how it is called, and what it may take and return."""

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


def check_precision(grid: Grid) -> None:
    """Requires values that remain finite and different numbers in JAX's default precision."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    for name, axis in grid.axes.items():
        with np.errstate(over="ignore"):
            rounded = np.unique([*axis, 0.0]).astype(dtype)  # what becomes 0 is lost, too
        if not np.isfinite(rounded).all() or (np.diff(rounded) == 0).any():
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
