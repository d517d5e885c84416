r"""The learning rates and batch sizes of the theorems; letters as in :mod:`mu2_optax.theory`."""

from typing import Any, Literal, NamedTuple, overload

import jax
import numpy as np

from mu2_optax._internal.checks import (
    check_choice,
    check_nonnegative,
    check_positive,
    check_step_of,
    check_steps,
    check_unit_interval,
)
from mu2_optax._internal.types import Numbers
from mu2_optax.theory._bounds import METHODS, Method
from mu2_optax.theory._numbers import numbers, rounded

_COMPARED = (*METHODS, "sgd", "accelerated_sgd")


class StableRates(NamedTuple):
    """A range of learning rates; see :func:`stable_rates`.

    Attributes:
      low: The smallest rate whose bound is at most twice the best one.
      best: The rate with the smallest bound.
      high: The largest rate whose bound is at most twice the best one.
    """

    low: jax.Array
    best: jax.Array
    high: jax.Array

    @property
    def ratio(self) -> jax.Array:
        """``high / low``: the larger, the less a learning rate needs tuning."""
        return self.high / self.low


def max_learning_rate(
    *, smoothness: Numbers, steps: Numbers, method: Method = "mu2_sgd"
) -> jax.Array:
    r"""The largest learning rate the theorems allow; it does not depend on the noise.

    .. math::
      \eta = \frac{1}{8LT}\ (\text{mu2\_sgd}), \qquad \frac{1}{2L}\ (\text{mu2\_extra\_sgd}), \qquad
      \frac{1}{16L(1 + \log T)}\ (\text{uniform})

    Each is the rate for one optimizer only:

    - ``"mu2_sgd"``: ``mu2_sgd(rate, linear_momentum(offset=1), weighted_steps=True)``. Its step is
      :math:`\eta\alpha_t = \eta(t + 1)`; without ``weighted_steps``, as by default, it would hardly
      move, because η is of the order of 1/T.
    - ``"mu2_extra_sgd"``: ``mu2_extra_sgd(rate)``, whose defaults are those of the theorem.
    - ``"uniform"``: ``mu2_sgd(rate, polynomial_momentum(0))``. All weights are 1, so this is the
      rate for the default ``weighted_steps=False``.

    No theorem covers ``fixed_momentum()``, the default of ``mu2_sgd``.

    Args:
      smoothness: L, of every :math:`f(\cdot; z)`; see :func:`measure_sample_smoothness`.
      steps: T. ``mu2_extra_sgd`` does not depend on it.
      method: ``"mu2_sgd"``, ``"mu2_extra_sgd"`` or ``"uniform"``.

    Returns:
      η, a scalar.

    Examples:
      >>> import mu2_optax
      >>> from mu2_optax import theory
      >>> rate = theory.max_learning_rate(smoothness=4.0, steps=1000, method="mu2_extra_sgd")
      >>> float(rate)
      0.125
      >>> tx = mu2_optax.mu2_extra_sgd(rate, projection=mu2_optax.onto_l2_ball(1.0))
      >>> momentum = mu2_optax.linear_momentum(offset=1)
      >>> rate = theory.max_learning_rate(smoothness=4.0, steps=1000)
      >>> tx = mu2_optax.mu2_sgd(rate, momentum, weighted_steps=True)

    References:
      Dahan and Levy: the theorems on μ²-SGD and μ²-ExtraSGD, and the appendix on uniform weights
    """
    check_positive("smoothness", smoothness, "it is the Lipschitz constant of the gradient.")
    check_steps("steps", steps)
    check_choice("method", method, METHODS)
    xp, L, T = numbers(smoothness, steps)
    if method == "mu2_sgd":
        return rounded(1 / (8 * L * T))
    if method == "mu2_extra_sgd":
        return rounded(1 / (2 * L))
    return rounded(1 / (16 * L * (1 + xp.log(T))))


@overload
def batch_size(*, t: int, steps: int) -> int: ...


@overload
def batch_size(*, t: Numbers, steps: Numbers) -> Any: ...


def batch_size(*, t: Numbers, steps: Numbers) -> Any:
    r"""The batch size that makes the error of d small from the first step on.

    .. math:: b_t = \lceil T/t \rceil \quad\Rightarrow\quad E\|d_t - \nabla f(x_t)\|^2 \le
      \tilde\sigma^2/T \quad\text{for every } t \le T

    A whole run draws :math:`\sum_t b_t = O(T \log T)` samples.

    Args:
      t: The step, from 1 to T.
      steps: T, the number of steps.

    Returns:
      :math:`b_t`: an int for ints, an integer array for arrays and tracers.

    Examples:
      >>> from mu2_optax import theory
      >>> [theory.batch_size(t=t, steps=10) for t in (1, 2, 3, 4, 10)]
      [10, 5, 4, 3, 1]

    References:
      Dahan and Levy, appendix on uniformly small errors
    """
    check_step_of(t, steps)
    now, last = _at_least_int32(t), _at_least_int32(steps)
    return (last - 1) // now + 1  # not -(-last // now), which is wrong for unsigned integers


def _at_least_int32(count: Any) -> Any:
    """A count, widened if it is an integer too narrow for arithmetic with Python integers."""
    narrow = isinstance(count, jax.Array | np.ndarray | np.generic) and count.dtype.itemsize < 4
    return count.astype("int32") if narrow else count


def effective_variance(
    *,
    gradient_variance: Numbers,
    smoothness_variance: Numbers,
    diameter: Numbers,
    part: Numbers = 1.0,
) -> jax.Array:
    r"""The variance in which all bounds are stated.

    .. math:: \tilde\sigma^2 = 32 D^2 \sigma_L^2\,\frac{|B|}{|S|} + 2\sigma^2

    In the paper, S = B. The proof bounds the error of a step by that of a gradient, which is
    taken on the batch B, and that of the change of the gradient, which may be taken on a part S of
    it; a mean over fewer independent samples has a variance that is larger by |B|/|S|.

    Args:
      gradient_variance: σ², an upper bound over the set of :math:`E\|\nabla f(x; z) - \nabla
        f(x)\|^2`.
      smoothness_variance: :math:`\sigma_L^2`.
      diameter: D, twice the radius of a ball.
      part: |S|/|B| in (0, 1], the share of the batch that the correction is taken on.

    Returns:
      :math:`\tilde\sigma^2`, a scalar.

    Examples:
      >>> from mu2_optax import theory
      >>> noise = {"gradient_variance": 3.0, "smoothness_variance": 0.5}
      >>> float(theory.effective_variance(**noise, diameter=2.0))
      70.0
      >>> float(theory.effective_variance(**noise, diameter=2.0, part=1 / 8))
      518.0
    """
    check_nonnegative("gradient_variance", gradient_variance, "it is a variance.")
    check_nonnegative("smoothness_variance", smoothness_variance, "it is a variance.")
    check_positive("diameter", diameter, "the theorems need a bounded set, such as a ball.")
    check_positive("part", part, "it is the share of the batch in the correction, 1 for all of it.")
    check_unit_interval("part", part)
    _, D, part, of_gradient, of_smoothness = numbers(
        diameter, part, gradient_variance, smoothness_variance
    )
    return rounded(32 * D * of_smoothness * D / part + 2 * of_gradient)


def stable_rates(
    *,
    smoothness: Numbers,
    steps: Numbers,
    diameter: Numbers,
    variance: Numbers,
    method: Method | Literal["sgd", "accelerated_sgd"] = "mu2_sgd",
) -> StableRates:
    r"""The learning rates for which the bound R(η) of the theory is at most twice the best one.

    .. math::
      \text{mu2\_sgd:}&\quad D^2/(\eta T^2) + 2\eta\tilde\sigma^2 + 4D\tilde\sigma/\sqrt T,
      &\eta \le 1/(8LT) \\
      \text{mu2\_extra\_sgd:}&\quad D^2/(\eta T^2) + D\tilde\sigma/\sqrt T, &\eta \le 1/(2L) \\
      \text{uniform:}&\quad D^2/(\eta T) + 2\eta\tilde\sigma^2(1 + \log T)/T + 4D\tilde\sigma/\sqrt
      T, &\eta \le 1/(16L(1 + \log T)) \\
      \text{sgd:}&\quad D^2/(\eta T) + \eta\sigma^2, &\eta \le 1/(2L) \\
      \text{accelerated\_sgd:}&\quad D^2/(\eta T^2) + \eta\sigma^2 T, &\eta \le 1/(2L)

    The ratio of the range grows like :math:`\sqrt T` for ``mu2_sgd`` and like :math:`T^{3/2}` for
    ``mu2_extra_sgd``, and is at most 14 for the last two. These R are the ones the paper compares;
    they leave out the constants of the O(·).

    Args:
      smoothness: L.
      steps: T.
      diameter: D.
      variance: :math:`\tilde\sigma^2`, or σ² for ``"sgd"`` and ``"accelerated_sgd"``.
      method: As in :func:`max_learning_rate`; or ``"sgd"`` or ``"accelerated_sgd"``, to compare.

    Returns:
      A :class:`StableRates` with ``low``, ``best``, ``high`` and ``ratio``.

    Examples:
      >>> from mu2_optax import theory
      >>> for method in ("sgd", "mu2_sgd", "mu2_extra_sgd"):
      ...     rates = theory.stable_rates(
      ...         smoothness=1.0, steps=10_000, diameter=1.0, variance=4.0, method=method
      ...     )
      ...     print(method, round(float(rates.ratio)))
      sgd 14
      mu2_sgd 102
      mu2_extra_sgd 1000002

    References:
      Dahan and Levy, appendix on stability; Lan, `An optimal method for stochastic composite
      optimization <https://doi.org/10.1007/s10107-010-0434-y>`_, 2012, for accelerated SGD
    """
    check_positive("smoothness", smoothness, "it is the Lipschitz constant of the gradient.")
    check_steps("steps", steps)
    check_positive("diameter", diameter, "the theorems need a bounded set, such as a ball.")
    check_nonnegative("variance", variance, "it is a variance.")
    check_choice("method", method, _COMPARED)
    xp, L, T, D, variance = numbers(smoothness, steps, diameter, variance)
    noise = xp.sqrt(variance) / D
    # R(eta)/D² = a²/eta + b² eta + c for eta <= top; no square is taken that could overflow
    log = 1 + xp.log(T)
    a, b, c, top = {
        "mu2_sgd": (1 / T, 2**0.5 * noise, 4 * noise / T**0.5, 1 / (8 * L * T)),
        "mu2_extra_sgd": (1 / T, 0 * noise, noise / T**0.5, 1 / (2 * L)),
        "uniform": (
            1 / T**0.5,
            (2 * log / T) ** 0.5 * noise,
            4 * noise / T**0.5,
            1 / (16 * L * log),
        ),
        "sgd": (1 / T**0.5, noise, 0 * noise, 1 / (2 * L)),
        "accelerated_sgd": (1 / T, noise * T**0.5, 0 * noise, 1 / (2 * L)),
    }[method]
    safe_b = xp.where(b > 0, b, 1)
    best = xp.where(b > 0, xp.minimum(top, a / safe_b), top)
    limit = 2 * (a / best * a + b * best * b + c) - c  # a²/eta + b² eta <= limit
    root = limit * (1 + xp.sqrt(1 - (2 * a / limit * b) ** 2))
    high = xp.where(b > 0, root / (2 * safe_b) / safe_b, top)
    return StableRates(*map(rounded, (2 * a / root * a, best, xp.minimum(high, top))))
