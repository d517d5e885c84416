"""The user's function: how it is called, and what it may return."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mu2_optax.sweep._grid import RESERVED, Grid


def check_signature(train: Any, grid: Grid) -> None:
    """Requires a function that can take the grid's axes and a key.

    Raises:
      TypeError: If ``train`` cannot be called so.
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
      TypeError: If it is anything else than a dict of real numbers and arrays.
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
