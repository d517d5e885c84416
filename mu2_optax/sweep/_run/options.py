"""What `sweep` refuses before anything runs."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep._environment import check_all_take_part, is_shared
from mu2_optax.sweep._run.layout import STRATEGIES


def check_context(context: Mapping[str, Any] | None) -> None:
    """Requires values that JSON can hold, so that saving the result cannot fail on them."""
    try:
        json.dumps(dict(context or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`context` must hold strings, finite numbers, lists and dicts of them, got "
            f"{context!r} ({error}); use `.item()` of a NumPy or JAX scalar."
        ) from error


def check_options(
    strategy: str,
    chunk_size: int | None,
    devices: Sequence[jax.Device] | None,
    minutes: float | None,
    executor: Any,
) -> Sequence[jax.Device] | None:
    """Requires options that exist and go together; returns the devices as a list."""
    if strategy not in STRATEGIES:
        raise ValueError(f"`strategy` must be one of {STRATEGIES}, got {strategy!r}.")
    counts = isinstance(chunk_size, int | np.integer) and not isinstance(chunk_size, bool)
    if chunk_size is not None and not (counts and chunk_size >= 1):
        raise ValueError(
            f"`chunk_size` must be an integer of at least 1, got {chunk_size!r}; leave it out to "
            "run all at once."
        )
    if minutes is not None and not minutes > 0:
        raise ValueError(f"`minutes` must be positive or None, got {minutes!r}.")
    if strategy == "python" and (chunk_size is not None or devices is not None):
        raise ValueError(
            "`chunk_size` and `devices` do not apply to strategy 'python', which runs one cell "
            f"after another; got {chunk_size!r} and {devices!r}, leave them out."
        )
    if executor is not None:
        _check_executor(executor)
        if devices is not None:
            raise ValueError(
                "`devices` are those of this process, and an `executor` runs the calls elsewhere, "
                f"each on its worker's default device; got {devices!r}, leave it out."
            )
    if devices is None:
        return None
    listed = list(devices) if isinstance(devices, Sequence | np.ndarray) else [devices]
    if not listed or not all(isinstance(device, jax.Device) for device in listed):
        raise ValueError(f"`devices` must be devices such as jax.devices(), got {devices!r}.")
    if len({device.platform for device in listed}) > 1 or len(set(listed)) < len(listed):
        raise ValueError(f"`devices` must be distinct and of one kind, got {devices!r}.")
    if is_shared(listed):
        check_all_take_part(listed)
    return listed


def _check_executor(executor: Any) -> None:
    """Requires an object that calls can be submitted to."""
    if callable(getattr(executor, "get_executor", None)):
        raise TypeError(f"`executor` must be an executor, got {executor!r}; pass .get_executor().")
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            "`executor` must have `submit`, as those of concurrent.futures have, got "
            f"{executor!r}; pass a ProcessPoolExecutor, or `Client.get_executor()` of Dask."
        )
