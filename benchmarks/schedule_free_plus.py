"""ScheduleFree+: schedule-free averaging, Adam's momentum inside, and Polyak's step size."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax


class ScheduleFreePlusState(NamedTuple):
    """The state of `schedule_free_plus`: k, both points, momenta, the largest rate, the weights."""

    count: Any
    z: Any
    x: Any
    adam: Any
    largest: Any
    weights: Any


def schedule_free_plus(
    factor: Any = 1.0,
    warmup_steps: int = 0,
    *,
    betas: tuple[float, float] = (0.9, 0.95),
    beta: float = 0.9,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> optax.GradientTransformationExtraArgs:
    r"""Nothing to choose but a factor; reads the loss, whose least value is taken to be zero.

    .. math::
      \eta_k &= \text{factor} \cdot
        \frac{\max(0, f_k + \beta \langle g_k, z_k - x_k \rangle)}{\sqrt{\pi/2}\,\|g_k\|_1} \\
      z_{k+1} &= z_k - \eta_k^2 \lambda y_k - \eta_k\,\hat m_k / (\sqrt{\hat v_k} + \epsilon) \\
      x_{k+1} &= (1 - c_k) x_k + c_k z_{k+1}, \qquad
      c_k = \frac{\max_{i \le k} \eta_i^2}{\sum_{j \le k} \max_{i \le j} \eta_i^2} \\
      y_{k+1} &= \beta x_{k+1} + (1 - \beta) z_{k+1}

    Here :math:`y` is ``params``, where the loss :math:`f_k` and its gradient :math:`g_k` are taken.

    Args:
      factor: A factor on the rate.
      warmup_steps: Steps over which the factor grows linearly; :math:`c_k = 1` until then, as is
        recommended.
      betas: Of Adam's direction.
      beta: Where between z and x the gradient is taken.
      eps: Of Adam's direction.
      weight_decay: λ.

    Returns:
      A transform whose ``update`` needs ``value``, the loss at ``params``; ``state.x`` is what to
      evaluate.

    References:
      ScheduleFree+, `arXiv 2605.19095 <https://arxiv.org/abs/2605.19095>`_, 2026
    """
    adam = optax.scale_by_adam(*betas, eps=eps)

    def init(params: Any) -> ScheduleFreePlusState:
        copied = lambda: jax.tree.map(jnp.array, params)
        zero = jnp.zeros(())
        start = jnp.full((), eps)
        return ScheduleFreePlusState(
            jnp.zeros((), jnp.int32), copied(), copied(), adam.init(params), start, zero
        )

    def update(
        grads: Any, state: ScheduleFreePlusState, params: Any = None, *, value: Any, **extra: Any
    ) -> tuple[Any, ScheduleFreePlusState]:
        del extra
        k, z, x = state.count, state.z, state.x
        inner = optax.tree.vdot(grads, optax.tree.sub(z, x))
        size = jnp.sqrt(jnp.pi / 2) * optax.tree.norm(grads, ord=1)
        warm = jnp.minimum(1.0, (k + 1) / max(warmup_steps, 1))
        rate = factor * warm * jnp.maximum(0.0, value + beta * inner) / size
        direction, adam_state = adam.update(grads, state.adam)
        z = jax.tree.map(
            lambda z, y, u: z - rate**2 * weight_decay * y - rate * u, z, params, direction
        )
        largest = jnp.maximum(rate, state.largest)
        warming = k < warmup_steps
        weights = state.weights + jnp.where(warming, 0.0, largest**2)
        c = jnp.where(warming, 1.0, largest**2 / weights)
        x = jax.tree.map(lambda x, z: (1 - c) * x + c * z, x, z)
        updates = jax.tree.map(lambda x, z, y: beta * x + (1 - beta) * z - y, x, z, params)
        return updates, ScheduleFreePlusState(k + 1, z, x, adam_state, largest, weights)

    return optax.GradientTransformationExtraArgs(init, update)
