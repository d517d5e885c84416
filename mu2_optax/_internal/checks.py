"""Errors for bad numbers and functions: the argument, the rule, the value and the remedy.

Everything here looks at Python values and shapes, at trace time: the values of tracers are not
read, and a compiled step pays nothing.
"""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax

from mu2_optax._internal.types import Batch


def check_unit_interval(name: str, value: Any) -> None:
    """Requires a single number, in [0, 1] if it is concrete; schedules pass."""
    if callable(value):
        return
    concrete = _is_concrete(name, value, "a number or a schedule")
    check_single(name, value)
    if concrete and not 0 <= float(value) <= 1:  # NaN fails the comparison too
        raise ValueError(
            f"`{name}` must lie in [0, 1], got {value}; pass a schedule for a value that "
            "changes with time."
        )


def check_below_one(name: str, value: Any, remedy: str) -> None:
    """Requires a single number in [0, 1) if it is concrete."""
    concrete = _is_concrete(name, value)
    check_single(name, value)
    if concrete and not 0 <= float(value) < 1:
        raise ValueError(f"`{name}` must lie in [0, 1), got {value}; {remedy}")


def check_rate(name: str, value: Any) -> None:
    """Requires a single number, finite and not negative if it is concrete; schedules pass."""
    if callable(value):
        return
    _is_concrete(name, value, "a number or a schedule")
    check_single(name, value)
    check_nonnegative(
        name, value, "pass a number such as 0.1, or a schedule for a value that changes with time."
    )


def check_nonnegative(name: str, value: Any, remedy: str) -> None:
    """Requires concrete numbers to be finite and not negative."""
    _check_numbers(name, value, lambda number: number >= 0, "not negative", remedy)


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Requires concrete numbers to be finite and greater than 0."""
    _check_numbers(name, value, lambda number: number > 0, "greater than 0", remedy)


def check_at_least(name: str, value: Any, least: int, remedy: str) -> None:
    """Requires concrete numbers to be finite and at least ``least``."""
    _check_numbers(name, value, lambda number: number >= least, f"at least {least}", remedy)


def check_single(name: str, value: Any) -> None:
    """Requires one number, tracers included; an array would be broadcast against the params."""
    if np.ndim(value) != 0:
        raise ValueError(
            f"`{name}` must be a single number, got an array of shape {np.shape(value)}; use "
            "`jax.vmap` over the function that builds the optimizer to try several values at once."
        )


def check_steps(name: str, value: Any) -> None:
    """Requires concrete numbers to be whole and at least 1."""
    if not _is_concrete(name, value):
        return
    number = np.asarray(value)
    if not (np.all(number >= 1) and _finite(value) and np.all(number == np.floor(number))):
        raise ValueError(
            f"`{name}` must be a whole number of at least 1, got {value}; it counts steps."
        )


def check_step_of(t: Any, steps: Any) -> None:
    """Requires concrete steps from 1 to ``steps``, a whole number."""
    check_steps("t", t)
    check_steps("steps", steps)
    if not any(isinstance(a, jax.core.Tracer) for a in (t, steps)) and np.any(
        np.asarray(t) > np.asarray(steps)
    ):
        raise ValueError(
            f"`t` must be at most `steps`, got {t} of {steps}; it counts the steps of a run from 1."
        )


def check_iterations(name: str, value: Any) -> None:
    """Requires an integer of at least 1, because a loop of that length is compiled."""
    check_integer(name, value, 1, "it is a number of iterations.")


def check_integer(name: str, value: Any, least: int, remedy: str) -> None:
    """Requires a Python or NumPy integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"`{name}` must be an integer of at least {least}, got {value!r}; {remedy}"
        )


def check_probability(name: str, value: Any) -> None:
    """Requires a concrete number to lie strictly between 0 and 1."""
    if _is_concrete(name, value) and not (0 < float(value) < 1):
        raise ValueError(
            f"`{name}` must lie strictly between 0 and 1, got {value}; it is the chance that the "
            "bound fails, for example 0.05."
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Requires ``value`` to be one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}, got {value!r}.")


def check_transform(name: str, value: Any) -> None:
    """Requires an Optax transform where one is expected."""
    if not isinstance(value, optax.GradientTransformation):
        raise TypeError(
            f"`{name}` must be an Optax optimizer such as optax.adam(1e-3), got {value!r}; for "
            "plain SGD with a learning rate use `mu2_sgd(learning_rate)`."
        )


def check_callable(name: str, value: Any, example: str) -> None:
    """Requires ``value`` to be a function."""
    if isinstance(value, jax.Array):
        raise TypeError(
            f"`{name}` must be a function such as {example}, got {value!r}; with "
            f'`optax.inject_hyperparams`, pass `static_args=("{name}",)`.'
        )
    if not callable(value):
        raise TypeError(f"`{name}` must be a function such as {example}, got {value!r}.")


def check_mask(mask: Any, weight_decay: Any) -> None:
    """Requires a weight decay if there is a mask, which says which leaves decay."""
    if mask is not None and weight_decay is None:
        raise ValueError(
            f"`weight_decay_mask` must come with `weight_decay`, got {mask!r} alone: it says "
            "which leaves decay. To train a part of the params, use `mu2_optax.hold_fixed`."
        )


def check_keyed(name: str, batch: Batch) -> None:
    """Requires a pair of a key and something else."""
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        kind = type(batch).__name__
        raise ValueError(
            f"`batch` must be a pair (key, {name}), got {kind}; the key is a part of the sample, "
            "so that every evaluation of a step draws the same numbers."
        )


def _check_numbers(
    name: str, value: Any, good: Callable[[np.ndarray], Any], rule: str, remedy: str
) -> None:
    if _is_concrete(name, value) and not (np.all(good(np.asarray(value))) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and {rule}, got {value}; {remedy}")


def _is_concrete(name: str, value: Any, kind: str = "a number") -> bool:
    """Whether ``value`` can be read: a number, and not a tracer."""
    if isinstance(value, jax.core.Tracer):
        return False
    if isinstance(value, bool) or not isinstance(
        value, int | float | np.generic | np.ndarray | jax.Array
    ):
        raise TypeError(f"`{name}` must be {kind}, got {value!r}.")
    return True


def _finite(value: Any) -> bool:
    return bool(np.all(np.isfinite(np.asarray(value, dtype=float))))
