r"""Weights that change with time: α, β and γ.

A weight is a number or a schedule (a function of the step count). β may also be an
:class:`AdaptiveBeta`: an object with a memory of what it has measured so far, which the state of a
transform holds.

Time is converted here and nowhere else: Optax counts start at 0 and the paper's t at 1, so a
schedule called with ``count`` gives the weight of step t = count + 1.
"""

import dataclasses
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import check_single, check_unit_interval
from mu2_optax._internal.types import Memory, Params, Scalar, ScalarOrSchedule, Schedule, Tree


class StepGradients(NamedTuple):
    """What a step of corrected momentum has computed when it asks for its β.

    Attributes:
      grads: The gradient at the new point.
      prev_grads: The gradient at the previous point, on the same sample.
      d: The estimate at the previous point.
      share: The share of the batch that these two gradients were taken on.
    """

    grads: Tree
    prev_grads: Tree
    d: Tree
    share: Scalar = 1.0


@runtime_checkable
class AdaptiveBeta(Protocol):
    """A β with a memory, to implement for one of your own."""

    def first(self, params: Tree) -> Any:
        """The memory at count 0; None if there is nothing to remember."""

    def step(self, memory: Memory, count: jax.Array, seen: StepGradients) -> tuple[jax.Array, Any]:
        """β at ``count``, and the memory for the next count.

        β is a scalar, or a vector with a number for each tensor; ``seen`` is what the step has
        computed so far.
        """


@dataclasses.dataclass(frozen=True)
class _Scheduled:
    """A schedule as a weight: nothing to remember."""

    schedule: Schedule

    def first(self, params: Params) -> None:
        del params

    def step(self, memory: None, count: jax.Array, seen: StepGradients) -> tuple[jax.Array, None]:
        del memory, seen
        return weight_at(self.schedule, count), None


def as_adaptive(value: ScalarOrSchedule | AdaptiveBeta) -> AdaptiveBeta:
    """A β that is a number or a schedule as one with a memory, which is None."""
    return value if isinstance(value, AdaptiveBeta) else _Scheduled(as_schedule(value))


def check_beta(name: str, value: ScalarOrSchedule | AdaptiveBeta) -> None:
    """Requires a β; a concrete number must lie in [0, 1]."""
    if not isinstance(value, AdaptiveBeta):
        check_unit_interval(name, value)


def as_schedule(value: ScalarOrSchedule) -> Schedule:
    """A schedule as it is; a number as a constant schedule."""
    return value if callable(value) else optax.constant_schedule(value)


def weight_at(schedule: Schedule, count: Any) -> jax.Array:
    """The value of a schedule in full precision, whatever dtype it was given in.

    The schedule is called with a float, because integers wrap around silently (``(count + 1) ** 3``
    after 1,289 steps); with an integer only if it needs one, as a table does.
    """
    try:
        value = schedule(jnp.asarray(count).astype(float))
    except (TypeError, IndexError):
        value = schedule(count)
    check_single("the value of a schedule", value)
    return jnp.asarray(value).astype(float)


def time(count: Any) -> jax.Array:
    """The paper's t, which starts at 1, as a float; Optax counts start at 0."""
    return jnp.asarray(count).astype(float) + 1


def inverse_time(count: Any) -> jax.Array:
    """1/t."""
    return 1 / time(count)
