"""Checks of the numbers that describe a problem: positive constants and counts.

As in ``_checks``, only concrete values are read; tracers pass.
"""

import math
from typing import Any

import jax
import numpy as np


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Requires a concrete ``value`` to be finite and greater than 0."""
    if _is_read(name, value) and not (np.all(np.asarray(value) > 0) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and greater than 0, got {value}; {remedy}")


def check_not_negative(name: str, value: Any, remedy: str) -> None:
    """Requires a concrete ``value`` to be finite and at least 0."""
    if _is_read(name, value) and not (np.all(np.asarray(value) >= 0) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and at least 0, got {value}; {remedy}")


def check_steps(name: str, value: Any) -> None:
    """Requires a concrete ``value`` to be a whole number of at least 1."""
    if not _is_read(name, value):
        return
    number = np.asarray(value)
    if not (np.all(number >= 1) and _finite(value) and np.all(number == np.floor(number))):
        raise ValueError(
            f"`{name}` must be a whole number of at least 1, got {value}; it counts steps."
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Requires ``value`` to be one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}, got {value!r}.")


def check_iterations(name: str, value: Any) -> None:
    """Requires a Python integer of at least 1, because a loop of that length is compiled."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}.")


def check_probability(name: str, value: Any) -> None:
    """Requires a concrete ``value`` to lie strictly between 0 and 1."""
    if _is_read(name, value) and not (0 < float(value) < 1):
        raise ValueError(
            f"`{name}` must lie strictly between 0 and 1, got {value}; it is the chance that the "
            "bound fails, for example 0.05."
        )


def _is_read(name: str, value: Any) -> bool:
    if isinstance(value, jax.core.Tracer):
        return False
    if isinstance(value, bool) or not isinstance(
        value, (int, float, np.generic, np.ndarray, jax.Array)
    ):
        raise TypeError(f"`{name}` must be a number, got {value!r}.")
    return True


def _finite(value: Any) -> bool:
    return bool(np.all(np.isfinite(value))) if np.ndim(value) else math.isfinite(value)
