"""A learning rate that grows until the steps stop going downhill."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._checks import (
    check_at_least,
    check_gradient,
    check_params,
    check_positive,
    check_single,
    check_state,
    check_stored,
    check_transform,
)
from mu2_optax._trees import (
    after,
    cast_like,
    copied_like,
    inner_product,
    scaled,
    stored_copy,
    subtract,
    widened,
)
from mu2_optax._types import Transform, Tree

_FIRST, _MOST = 1e-4, 1e6  # the first and the largest rate, in units of the params' typical size
_SURE = 2  # standard errors
_FLOOR = 1e-4  # the least size that params are taken to have, such as those that start at zero


class GrownRateState(NamedTuple):
    r"""State of :func:`grown_rate`.

    Attributes:
      rate: η, the learning rate found so far.
      most: The largest rate that it may grow to.
      slope: E, the sum of the slopes along the steps.
      noise: N, the standard error of that sum.
      last: e, the latest slope.
      y: The point of the last gradient.
      inner_state: The state of ``inner``.
    """

    rate: jax.Array
    most: jax.Array
    slope: jax.Array
    noise: jax.Array
    last: jax.Array
    y: Tree
    inner_state: Any


def grown_rate(
    inner: optax.GradientTransformation, *, factor: Any = 1.0, growth: Any = 1.5
) -> Transform[GrownRateState]:
    r"""Steps along ``inner``, with a learning rate that grows while the steps go downhill.

    .. math::
      e_t &= \langle g_t, y_t - y_{t-1} \rangle, \qquad E_t = E_{t-1} + e_t, \qquad
      N_t^2 = N_{t-1}^2 + \tfrac12 (e_t - e_{t-1})^2 \\
      \eta_t &= \begin{cases} 1.5\,\eta_{t-1} & \text{if } E_t < -2 N_t \text{ and } e_t < 0
      \\ \eta_{t-1} & \text{otherwise} \end{cases}, \qquad
      w_{t+1} = w_t - \eta_t\,\text{inner}(g_t)

    Here :math:`y_t` is the point of the gradient :math:`g_t`: the params, or ``query`` if that is
    given, as :func:`query_ahead` does. :math:`e_t` is the slope at the *end* of the last step, in
    its direction. The sample of :math:`g_t` is fresh, so it is unbiased: while it is negative, a
    longer step would have led further down. Because the rate grows by a factor a step, the latest
    steps dominate the sum until the growth has ended. :math:`N_t` is the standard error of the sum:
    half the mean square of successive differences is the variance of the noise in :math:`e_t`, and
    a slope that changes slowly hardly enters it. Where batches are small, chance alone would take
    the sum below zero, and the rate too far.

    The rate never shrinks. It does not grow past a million times the size of the first params
    either, so that a loss without a minimum does not end in infinities.

    Args:
      inner: A transform that gives directions with the sign of a gradient and a size of about one,
        such as :func:`unit_directions`. Raw gradients (``optax.identity()``) do for quadratics;
        where the curvature rises away from the start, a rate that has grown too far makes them
        diverge. It sees gradients and params at least in float32.
      factor: A factor on the first rate, which is :math:`10^{-4}` times the size of the first
        params (their root mean square plus :math:`10^{-4}`).
      growth: The factor by which the rate grows; 1 is a constant rate.

    Returns:
      A transform; extra args are passed to ``inner``. Its state is a :class:`GrownRateState`.
      Inside :func:`anytime` it needs :func:`query_ahead` around (``share=0`` for gradients at the
      average), which says where the gradient was taken.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> tx = mu2_optax.grown_rate(optax.identity())
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> for _ in range(40):
      ...     updates, state = tx.update(2 * params, state, params)  # the gradient of ‖x‖²
      ...     params = optax.apply_updates(params, updates)
      >>> bool(jnp.linalg.norm(params) < 1e-3), bool(0.1 < state.rate < 1)
      (True, True)

    References:
      Baydin et al., `Online Learning Rate Adaptation with Hypergradient Descent
      <https://arxiv.org/abs/1703.04782>`_, ICLR 2018, for the same product of gradients; von
      Neumann et al., `The Mean Square Successive Difference
      <https://doi.org/10.1214/aoms/1177731746>`_, 1941, for the noise
    """
    check_transform("inner", inner)
    check_single("factor", factor)
    check_single("growth", growth)
    check_positive("factor", factor, "a rate of 0 cannot grow.")
    check_at_least("growth", growth, 1, "the rate cannot shrink; 1 keeps it constant.")
    inner = optax.with_extra_args_support(inner)

    def init(params: Any) -> GrownRateState:
        check_params(params)
        size = _typical_size(params)
        return GrownRateState(
            rate=jnp.asarray(factor * _FIRST * size).astype(float),
            most=(_MOST * size).astype(float),
            slope=jnp.zeros([], float),
            noise=jnp.zeros([], float),
            last=jnp.zeros([], float),
            y=stored_copy(params, None),
            inner_state=inner.init(widened(params)),
        )

    def update(
        updates: Any, state: GrownRateState, params: Any = None, *, query: Any = None, **extra: Any
    ) -> tuple[Any, GrownRateState]:
        check_params(params)
        check_state(state, GrownRateState)
        check_stored(params, state.y)
        check_gradient("grads", updates, params)
        y = cast_like(params if query is None else query, state.y)
        last = inner_product(updates, subtract(y, state.y))
        slope = state.slope + last
        noise = jnp.hypot(state.noise, (last - state.last) / 2**0.5)
        grow = (slope < -_SURE * noise) & (last < 0) & (growth * state.rate <= state.most)
        rate = jnp.where(grow, growth, 1) * state.rate
        direction, inner_state = inner.update(
            widened(updates), state.inner_state, widened(params), **extra
        )
        step = cast_like(scaled(-rate, direction), params)
        y = after(state.y, copied_like(y, state.y), rate < 0)
        return step, GrownRateState(rate, state.most, slope, noise, last, y, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def _typical_size(params: Any) -> jax.Array:
    """The root mean square of all numbers in ``params``, and a little more, so that it is not 0."""
    count = sum(jnp.size(leaf) for leaf in jax.tree.leaves(params))
    return optax.tree.norm(widened(params)) / jnp.sqrt(float(max(count, 1))) + _FLOOR
