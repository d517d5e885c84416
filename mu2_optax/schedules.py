"""Weights that may change with time: numbers, tracers, or functions of the step count.

Time is converted here and nowhere else: Optax counts start at 0 and the paper's t at 1, so a
schedule called with ``count`` gives the weight of step t = count + 1.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

Schedule: TypeAlias = Callable[[Any], Any]
"""A function of the step count."""

Scalar: TypeAlias = float | jax.Array
"""A number or a tracer."""

ScalarOrSchedule: TypeAlias = Scalar | Schedule


def as_schedule(value: ScalarOrSchedule) -> Schedule:
    """A schedule as it is; a number as a constant schedule."""
    return value if callable(value) else optax.constant_schedule(value)


def weight_at(schedule: Schedule, count: jax.Array) -> jax.Array:
    """The value of a schedule in full precision, whatever dtype it was given in."""
    return jnp.asarray(schedule(count)).astype(float)


def time(count: Any) -> jax.Array:
    """The paper's t, which starts at 1, as a float; Optax counts start at 0."""
    return jnp.asarray(count).astype(float) + 1


def inverse_time(count: Any) -> jax.Array:
    """1/t."""
    return 1 / time(count)
