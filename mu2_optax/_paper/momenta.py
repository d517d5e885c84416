r"""The weights of the double momentum: :math:`\alpha_t`, :math:`\beta_t` and :math:`\gamma_t`.

Every preset is in closed form, so that nothing overflows or drifts, however long the run.
"""

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import (
    check_at_least,
    check_nonnegative,
    check_rate,
    check_single,
    check_unit_interval,
)
from mu2_optax._internal.types import Scalar, ScalarOrSchedule, Schedule
from mu2_optax._paper.weights import (
    AdaptiveBeta,
    as_schedule,
    check_beta,
    inverse_time,
    time,
    weight_at,
)


@dataclasses.dataclass(frozen=True)
class DoubleMomentum:
    r"""The three weights of a double momentum: schedules, or a β with a memory.

    .. math::
      w_{t+1} &= w_t - \eta\,\alpha_t\,d_t \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t) \\
      d_{t+1} &= g_{t+1} + (1 - \beta_{t+1})\,(d_t - \tilde g_t)

    Numbers and tracers are accepted too, and become constant schedules. If you choose α, choose
    :math:`\gamma_t = \alpha_t/\alpha_{1:t}` in closed form, so that no sum overflows or drifts.

    Attributes:
      alpha: :math:`\alpha_t`, the weight of a step; used where ``weighted_steps=True``.
      beta: :math:`\beta_t` in [0, 1], how much of the old estimate is forgotten; 1 is the plain
        gradient.
      gamma: :math:`\gamma_t` in [0, 1], the share of the new iterate in the average; 1 means no
        averaging. Normally :math:`\alpha_t/\alpha_{1:t}`.

    Examples:
      >>> import mu2_optax
      >>> halving = lambda count: 0.5**count
      >>> momentum = mu2_optax.DoubleMomentum(alpha=1.0, beta=0.9, gamma=halving)
      >>> momentum.beta(7), momentum.gamma(2)
      (0.9, 0.25)

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR 2025
    """

    alpha: Schedule
    beta: Any
    gamma: Schedule

    def __init__(
        self,
        alpha: ScalarOrSchedule,
        beta: ScalarOrSchedule | AdaptiveBeta,
        gamma: ScalarOrSchedule,
    ) -> None:
        """Checks the numbers and turns them into schedules."""
        check_rate("alpha", alpha)
        check_beta("beta", beta)
        check_unit_interval("gamma", gamma)
        kept = beta if isinstance(beta, AdaptiveBeta) else as_schedule(beta)
        object.__setattr__(self, "alpha", as_schedule(alpha))
        object.__setattr__(self, "beta", kept)
        object.__setattr__(self, "gamma", as_schedule(gamma))


def linear_momentum(
    offset: Scalar = 0, *, beta: ScalarOrSchedule | AdaptiveBeta | None = None
) -> DoubleMomentum:
    r"""Weights that grow with time, :math:`\alpha_t = t + o`: the paper's choice for convex losses.

    .. math::
      \alpha_t = t + o, \qquad \beta_t = \frac{1}{t + \max(o, 0)}, \qquad
      \gamma_t = \frac{\alpha_t}{\alpha_{1:t}} = \frac{2(t + o)}{t(t + 1 + 2o)}

    Args:
      offset: o. The theorems use 1, the experiments 0 and the authors' code −1, which gives the
        initial point no weight in the average.
      beta: A β to use instead of this one, such as :func:`measured_beta`.

    Returns:
      A :class:`DoubleMomentum`.

    Examples:
      >>> import mu2_optax
      >>> momentum = mu2_optax.linear_momentum()
      >>> [round(float(momentum.gamma(count)), 3) for count in range(4)]
      [1.0, 0.667, 0.5, 0.4]
    """
    check_single("offset", offset)
    check_at_least(
        "offset",
        offset,
        -1,
        "a smaller one makes weights negative. Use 1 (theorems), 0 (experiments) or -1 (the "
        "authors' code).",
    )

    def alpha(count: Any) -> jax.Array:
        return time(count) + offset

    def inverse_alpha(count: Any) -> jax.Array:
        return 1 / (time(count) + jnp.maximum(offset, 0))

    def gamma(count: Any) -> jax.Array:
        t = time(count)
        later = t > 1  # gamma_1 = 1 for every offset, even for -1, where the formula is 0/0
        return jnp.where(later, 2 * (t + offset), 1) / jnp.where(later, t * (t + 1 + 2 * offset), 1)

    return DoubleMomentum(alpha, inverse_alpha if beta is None else beta, gamma)


def polynomial_momentum(
    power: Scalar, *, beta: ScalarOrSchedule | AdaptiveBeta | None = None
) -> DoubleMomentum:
    r"""Weights that grow like :math:`t^p`, as a rising factorial: their sum has a closed form.

    .. math::
      \alpha_t = \frac{\Gamma(t + p)}{\Gamma(t)\,\Gamma(1 + p)}, \qquad \beta_t = \frac1t, \qquad
      \gamma_t = \frac{1 + p}{t + p}

    Args:
      power: p ≥ 0. 0 makes all weights equal, so that the average is the plain mean of the
        iterates; 1 is :func:`linear_momentum`; larger powers forget the first iterates faster.
      beta: A β to use instead of this one, such as :func:`measured_beta`.

    Returns:
      A :class:`DoubleMomentum`.

    Examples:
      >>> import mu2_optax
      >>> momentum = mu2_optax.polynomial_momentum(2.0)
      >>> [round(float(momentum.alpha(count)), 3) for count in range(4)]
      [1.0, 3.0, 6.0, 10.0]

    References:
      Shamir and Zhang, `Stochastic Gradient Descent for Non-smooth Optimization
      <https://arxiv.org/abs/1212.1824>`_, 2013, for this averaging
    """
    if callable(power):
        raise TypeError(f"`power` must be a number, got the function {power!r}.")
    check_single("power", power)
    check_nonnegative("power", power, "pass a number such as 2.0.")

    def gamma(count: Any) -> jax.Array:
        return (1 + power) / (time(count) + power)

    return DoubleMomentum(
        lambda count: _rising_factorial(time(count), power),
        inverse_time if beta is None else beta,
        gamma,
    )


def _rising_factorial(t: jax.Array, p: Scalar) -> jax.Array:
    """Γ(t + p) / (Γ(t) Γ(1 + p)), to 1e-6 in float32 and 1e-12 in float64, for every t ≥ 1.

    The whole part of p becomes a product, and the rest is f; a tracer is a rest as a whole. The
    recurrence of Γ leads from t to t + 256, where Γ(u + (1 + f)/2) / Γ(u + (1 - f)/2) is u^f but
    for one term. A difference of log-gammas would lose all digits at t = 10⁷.
    """
    whole = 0 if isinstance(p, jax.core.Tracer) else int(p)
    f = p - whole
    u = t + 256 + (f - 1) / 2
    later = u**f * (1 + f * (1 - f**2) / (24 * u**2))
    between = jnp.sum(jnp.log1p(f / (t + jnp.arange(256, dtype=t.dtype))))
    fraction = later * jnp.exp(-between) / jax.scipy.special.gamma(1.0 + f)
    return fraction * math.prod((t + f + k) / (f + k + 1) for k in range(whole))


def fixed_momentum(
    *, beta: ScalarOrSchedule | AdaptiveBeta = 0.9, gamma: ScalarOrSchedule = 0.1
) -> DoubleMomentum:
    r"""Constant momenta: the paper's choice for deep networks.

    .. math:: \alpha_t = 1, \qquad \beta_t = \beta, \qquad \gamma_t = \gamma

    Args:
      beta: β in [0, 1], how much of the old estimate is forgotten.
      gamma: γ in [0, 1], the share of the new iterate in the average.

    Returns:
      A :class:`DoubleMomentum`.

    Examples:
      >>> import mu2_optax
      >>> mu2_optax.fixed_momentum(gamma=0.2).gamma(100)
      0.2
    """
    return DoubleMomentum(1.0, beta, gamma)


def check_momentum(momentum: Any) -> None:
    """Requires a :class:`DoubleMomentum` where one is expected."""
    if not isinstance(momentum, DoubleMomentum):
        raise TypeError(
            f"`momentum` must be a DoubleMomentum such as fixed_momentum(beta=0.9, gamma=0.1) or "
            f"linear_momentum(), got {momentum!r}."
        )


def with_weighted_steps(
    inner: optax.GradientTransformation, momentum: DoubleMomentum, weighted_steps: bool
) -> optax.GradientTransformation:
    """``inner``, with its steps multiplied by α if ``weighted_steps`` is True."""
    if not weighted_steps:
        return inner
    alpha = functools.partial(weight_at, momentum.alpha)
    return optax.chain(inner, optax.scale_by_schedule(alpha))
