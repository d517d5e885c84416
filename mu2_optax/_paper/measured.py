r"""A measured β, for an estimate that knows its own error.

Corrected momentum is a filter: it predicts the gradient at the new point from the change of the
gradient on one sample, and then mixes in the new gradient. The best share β of the new gradient is
the gain of that filter, and the step computes everything that it depends on anyway.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import check_unit_interval
from mu2_optax._internal.trees import gathered, widened
from mu2_optax._internal.types import Memory, Params, ScalarOrSchedule, Tree
from mu2_optax._paper.weights import AdaptiveBeta, StepGradients, as_schedule, weight_at

_RECENT = 10  # steps over which the size of the innovations is averaged, to detect a jump
_LONG = 100  # steps over which the noise of one batch is averaged
_JUMP = 3.0  # times the expected size: more than noise explains


class ErrorMemory(NamedTuple):
    """What a measured β remembers: three numbers for each tensor, in the order of the leaves.

    Attributes:
      roots: The square roots of the three numbers, as the rows of one array. The roots do not
        overflow unless the gradients do. One array is faster than three, because short steps take
        time in proportion to the number of small operations.
    """

    roots: jax.Array

    @property
    def innovation(self) -> jax.Array:
        """The running mean of the recent squared innovations."""
        return self.roots[..., 0, :] ** 2

    @property
    def noise(self) -> jax.Array:
        """The estimated noise of one batch, σ²."""
        return self.roots[..., 1, :] ** 2

    @property
    def error(self) -> jax.Array:
        """The estimated squared error of d, P."""
        return self.roots[..., 2, :] ** 2


@dataclasses.dataclass(frozen=True)
class _Measured:
    """The weight of :func:`measured_beta` and :func:`with_error_bar`."""

    beta: Any = None

    def first(self, params: Params) -> ErrorMemory:
        return ErrorMemory(jnp.zeros((3, len(jax.tree.leaves(params))), float))

    def step(
        self, memory: ErrorMemory | None, count: jax.Array, seen: StepGradients
    ) -> tuple[jax.Array, ErrorMemory]:
        if memory is None:
            raise ValueError(
                "the state must hold the memory of a measured β, got None: it was made by an "
                "optimizer with another β. Call `init` again, or restore the right checkpoint."
            )
        first = count == 0
        # The unit is the largest root of the last step, so that no square over- or underflows.
        # All tensors share it: with a unit for each, XLA would compile this once for each.
        unit = jnp.max(memory.roots, initial=0)
        unit = jnp.where(unit > 0, unit, 1)
        inverse = jax.lax.optimization_barrier(1 / unit)
        before = widened(seen.prev_grads)
        nu = _sizes(optax.tree.sub(before, widened(seen.d)), inverse, first)
        change = _sizes(optax.tree.sub(widened(seen.grads), before), inverse, first)
        last_innovation, last_noise, last_error = (memory.roots / unit) ** 2

        newest = 1 / jnp.maximum(count, 1).astype(float)  # its share in the mean of all so far
        # d_1 is one gradient, so the first innovation is the difference of two of them: σ²/s + σ²,
        # where the second was taken on a share s of the batch.
        error = jnp.where(count == 1, nu * seen.share / (1 + seen.share), last_error)
        recent = last_innovation + (nu - last_innovation) * jnp.maximum(newest, 1 / _RECENT)
        innovation = jnp.where(count == 1, nu, recent)
        error = jnp.maximum(error, innovation - _JUMP * (last_noise / seen.share + error))
        step = seen.share * (nu - error) - last_noise
        noise = last_noise + step * jnp.maximum(newest, 1 / _LONG)
        noise = jnp.maximum(noise, seen.share * innovation / _RECENT)

        predicted = error + change
        total = predicted + noise
        # The division comes last: XLA computes a division once, but repeats what follows it in
        # every leaf that reads its β.
        plain = first | (total == 0)
        gain = jnp.where(plain, 1, predicted) / jnp.where(plain, 1, total)
        beta = gain if self.beta is None else jnp.where(first, 1, weight_at(self.beta, count))
        error = (1 - beta) ** 2 * predicted + beta**2 * noise
        squares = jnp.stack([innovation, noise, error])
        some = squares > 0  # the root of 0 has no derivative
        roots = unit * jnp.where(some, jnp.sqrt(jnp.where(some, squares, 1)), 0)
        return beta, ErrorMemory(jnp.where(first, _started(memory.roots, nu), roots))


def _sizes(tree: Tree, inverse: jax.Array, first: jax.Array) -> jax.Array:
    """The squared norm of each leaf times ``inverse``; in the first step, its sum of magnitudes.

    That sum is the unit of the second step, so that no gradient is too large or small to be
    squared.
    """

    def size(leaf: jax.Array) -> jax.Array:
        magnitude = jnp.abs(leaf)
        scaled = inverse.astype(magnitude.dtype) * magnitude
        return jnp.sum(jnp.where(first, magnitude, scaled * scaled))

    return gathered(jax.tree.map(size, tree)).astype(float)


def _started(roots: jax.Array, size: jax.Array) -> jax.Array:
    """The memory after a step in which d started or restarted: its error is the noise."""
    innovation, noise, _ = roots
    return jnp.stack([jnp.where(innovation > 0, innovation, size), noise, noise])


def measured_beta() -> AdaptiveBeta:
    r"""β chosen in every step, for every tensor, as the gain that makes the error of d smallest.

    .. math::
      \nu_t &= \tilde g_{t-1} - d_{t-1}, \qquad \Delta_t = g_t - \tilde g_{t-1} \\
      R_t &= \text{mean of } \|\nu\|^2 - P \text{ over the last 100 steps} \\
      P'_t &= P_{t-1} + \|\Delta_t\|^2, \qquad \beta_t = \frac{P'_t}{P'_t + R_t}, \qquad
      P_t = (1 - \beta_t)\,P'_t

    :math:`P_t` estimates :math:`E\|d_t - \nabla f(x_t)\|^2`. The sample of a step is fresh, so the
    innovation :math:`\nu_t` has :math:`E\|\nu_t\|^2 = \sigma^2 + P_{t-1}`, where σ² is the noise
    of one batch, which :math:`R_t` estimates; and :math:`\|\Delta_t\|^2` is at least the noise of
    the change. Where the point does not move, :math:`\beta_t = 1/t`; where steps shrink like 1/t, β
    and P do too; where steps are large, β goes to 1, the plain gradient. If the last ten
    :math:`\|\nu\|^2` are on average more than three times as large as :math:`R + P` (the data have
    changed), the excess counts as error, so that d is relearned; :math:`R_t` is never less than a
    tenth of that average.

    Where the change is taken on a part of the batch, of share s, so are ν and Δ: then
    :math:`E\|\nu_t\|^2 = \sigma^2/s + P_{t-1}`, and :math:`R_t` is s times the above.

    Returns:
      A weight to use wherever a β goes. The state then has an error bar: see :func:`error_bar`.

    Examples:
      >>> import mu2_optax
      >>> momentum = mu2_optax.linear_momentum(beta=mu2_optax.measured_beta())
      >>> tx = mu2_optax.mu2_sgd(0.1, momentum)

    References:
      Kalman, `A New Approach to Linear Filtering and Prediction Problems
      <https://doi.org/10.1115/1.3662552>`_, 1960; Cutkosky and Orabona, `Momentum-Based Variance
      Reduction in Non-Convex SGD <https://arxiv.org/abs/1905.10018>`_, NeurIPS 2019
    """
    return _Measured()


def with_error_bar(beta: ScalarOrSchedule) -> AdaptiveBeta:
    r"""A β of your own, with the error bar of :func:`measured_beta`.

    .. math:: P_t = (1 - \beta_t)^2\,P'_t + \beta_t^2\,R_t

    The run is the same as with ``beta`` alone; the bar shows when that β goes wrong: when
    :math:`P_t` is larger than the noise of one batch, a plain gradient would be better.

    Args:
      beta: β in [0, 1], a number or a schedule.

    Returns:
      A weight to use wherever a β goes.

    Examples:
      >>> import mu2_optax
      >>> tx = mu2_optax.storm(0.1, mu2_optax.with_error_bar(0.1))
    """
    check_unit_interval("beta", beta)
    return _Measured(as_schedule(beta))


def measured(memory: Memory) -> ErrorMemory:
    """The memory of a β that measures its error."""
    if not isinstance(memory, ErrorMemory):
        raise ValueError(
            "the state has no error bar, because its β does not measure one; use "
            "`measured_beta()`, or `with_error_bar(beta)` for a β of your own."
        )
    return memory
