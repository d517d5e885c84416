r"""Weights that change with time: α, β and γ.

A weight is a number, a schedule (a function of the step count), or an object with a memory of what
it has summed or measured so far. Here all of them become a :class:`Weight`, and the state of a
transform holds the memory.

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


class Seen(NamedTuple):
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
class Weight(Protocol):
    """A weight with a memory, to implement for a β or γ of your own."""

    def first(self, params: Tree) -> Any:
        """The memory at count 0; None if there is nothing to remember."""

    def step(
        self, memory: Memory, count: jax.Array, seen: Seen | None = None
    ) -> tuple[jax.Array, Any]:
        """The weight at ``count``, and the memory for the next count.

        The weight is a scalar, or a vector with a number for each tensor. If the weight is a β,
        ``seen`` is what the step has computed so far.
        """


class RatioMemory(NamedTuple):
    r"""The memory of a :class:`WeightRatio`.

    Attributes:
      ratio: The sum of the weights so far, divided by ``alpha``.
      alpha: The last weight that was not zero.
    """

    ratio: jax.Array
    alpha: jax.Array


@dataclasses.dataclass(frozen=True)
class WeightRatio:
    r"""The averaging weight of arbitrary step weights: :math:`\gamma_t = \alpha_t/\alpha_{1:t}`.

    The sum :math:`\alpha_{1:t}` may overflow, and small terms are lost in it; the ratio
    :math:`r_t = \alpha_{1:t}/\alpha_t` does neither and has a recursion of its own,

    .. math:: r_1 = 1, \qquad r_{t+1} = 1 + r_t\,\alpha_t/\alpha_{t+1}, \qquad \gamma_t = 1/r_t .

    A weight of zero, or one so small that its ratio to the sum underflows, gives :math:`\gamma_t =
    0` and leaves the sum as it is; before the first positive weight, :math:`\gamma_t = 1`. A weight
    above the largest float (:math:`1.5^{219}` in float32) is unknown, and :math:`\gamma` stays what
    it was: for weights that grow by a constant factor it has long been constant. It is the
    ``gamma`` of :func:`weighted_momentum`.

    Attributes:
      alpha: A schedule of weights that are not negative.
    """

    alpha: Schedule

    def first(self, params: Params) -> RatioMemory:
        """An empty sum."""
        del params
        return RatioMemory(jnp.zeros([], float), jnp.ones([], float))

    def step(
        self, memory: RatioMemory | None, count: jax.Array, seen: Seen | None = None
    ) -> tuple[jax.Array, RatioMemory]:
        """γ at ``count``, and the sum up to it."""
        del seen
        if memory is None:
            raise ValueError(
                "the state must hold the memory of a weighted momentum, got None: it was made by "
                "an optimizer with another momentum. Call `init` again, or restore the right "
                "checkpoint."
            )
        alpha = weight_at(self.alpha, count)
        ratio = 1 + memory.ratio * (memory.alpha / jnp.where(alpha > 0, alpha, 1))
        counts = (alpha > 0) & jnp.isfinite(alpha) & jnp.isfinite(ratio)
        ratio = jnp.where(counts, ratio, memory.ratio)
        last = jnp.where(counts, alpha, memory.alpha)
        gamma = jnp.where(counts | jnp.isinf(alpha), 1 / jnp.where(ratio > 0, ratio, 1), 0)
        gamma = jnp.where(ratio == 0, 1, gamma)
        return jnp.where(jnp.isnan(alpha), alpha, gamma), RatioMemory(ratio, last)


@dataclasses.dataclass(frozen=True)
class _Scheduled:
    """A schedule as a weight: nothing to remember."""

    schedule: Schedule

    def first(self, params: Params) -> None:
        del params

    def step(
        self, memory: None, count: jax.Array, seen: Seen | None = None
    ) -> tuple[jax.Array, None]:
        del memory, seen
        return weight_at(self.schedule, count), None


def as_weight(value: ScalarOrSchedule | Weight) -> Weight:
    """A number or a schedule as a weight; a weight as it is."""
    return value if isinstance(value, Weight) else _Scheduled(as_schedule(value))


def check_weight(name: str, value: ScalarOrSchedule | Weight) -> None:
    """Requires a weight; a concrete number must lie in [0, 1]."""
    if not isinstance(value, Weight):
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
