r"""The bounds of the paper's theorems, with the constants of its proofs.

Letters as in :mod:`mu2_optax.theory`, which exports these functions.
"""

from typing import Literal

import jax

from mu2_optax._internal.checks import (
    check_choice,
    check_nonnegative,
    check_positive,
    check_probability,
    check_step_of,
    check_steps,
)
from mu2_optax._internal.types import Numbers
from mu2_optax.theory._numbers import numbers, rounded

Method = Literal["mu2_sgd", "mu2_extra_sgd", "uniform"]
METHODS = ("mu2_sgd", "mu2_extra_sgd", "uniform")


def error_bound(*, t: Numbers, variance: Numbers, method: Method = "mu2_sgd") -> jax.Array:
    r"""The bound on the expected squared error of d, whatever the update rule.

    .. math:: E\|d_t - \nabla f(x_t)\|^2 \le \frac{\tilde\sigma^2}{t + 1}\ (\alpha_t = t + 1),
      \qquad \frac{\tilde\sigma^2}{t}\ (\text{uniform})

    The paper states the second for both; its proof gives the first.

    Args:
      t: The step, which starts at 1.
      variance: :math:`\tilde\sigma^2`; see :func:`mu2_optax.theory.effective_variance`.
      method: ``"mu2_sgd"``, ``"mu2_extra_sgd"`` (both with ``linear_momentum(offset=1)``) or
        ``"uniform"``.

    Returns:
      A scalar, or an array if ``t`` is one.

    Examples:
      >>> from mu2_optax import theory
      >>> float(theory.error_bound(t=7, variance=2.0))
      0.25

    References:
      Dahan and Levy: the theorem on the error, and the appendix on uniform weights
    """
    check_steps("t", t)
    check_nonnegative("variance", variance, "it is a variance.")
    check_choice("method", method, METHODS)
    _, t, variance = numbers(t, variance)
    return rounded(variance / (t + (method != "uniform")))


def high_probability_error_bound(
    *,
    t: Numbers,
    steps: Numbers,
    variance: Numbers,
    smoothness: Numbers,
    diameter: Numbers,
    gradient_bound: Numbers,
    failure: Numbers,
    constant: Numbers = 1.0,
) -> jax.Array:
    r"""A bound on the squared error of d for all steps at once, with probability 1 − δ.

    .. math:: \|d_t - \nabla f(x_t)\|^2 \le c \left(\frac{\tilde\sigma^2}{t} +
      \frac{(8LD + 2G)^2}{t^2}\right) \log\frac T\delta

    The paper gives it as an O(·), without the constant c.

    Args:
      t: The step, from 1 to T.
      steps: T, the number of steps.
      variance: :math:`\tilde\sigma^2`; see :func:`mu2_optax.theory.effective_variance`.
      smoothness: L.
      diameter: D.
      gradient_bound: G, the largest norm of any :math:`\nabla f(x; z)` on the set.
      failure: δ, strictly between 0 and 1.
      constant: c.

    Returns:
      A scalar, or an array if ``t`` is one.

    Examples:
      >>> from mu2_optax import theory
      >>> bound = theory.high_probability_error_bound(
      ...     t=100, steps=1000, variance=2.0, smoothness=1.0, diameter=2.0, gradient_bound=3.0,
      ...     failure=0.05,
      ... )
      >>> round(float(bound), 3)
      0.677

    References:
      Dahan and Levy, appendix on high probability
    """
    check_step_of(t, steps)
    check_nonnegative("variance", variance, "it is a variance.")
    check_positive("smoothness", smoothness, "it is the Lipschitz constant of the gradient.")
    check_positive("diameter", diameter, "the theorems need a bounded set, such as a ball.")
    check_nonnegative("gradient_bound", gradient_bound, "it is the largest norm of a gradient.")
    check_probability("failure", failure)
    check_positive("constant", constant, "it scales the bound.")
    xp, t, T, L, D, G, variance, delta, c = numbers(
        t, steps, smoothness, diameter, gradient_bound, variance, failure, constant
    )
    U = 8 * L * D + 2 * G
    return rounded(c * (variance / t + (U / t) ** 2) * (xp.log(T) - xp.log(delta)))


def excess_loss_bound(
    *,
    learning_rate: Numbers,
    steps: Numbers,
    diameter: Numbers,
    variance: Numbers,
    method: Method = "mu2_sgd",
) -> jax.Array:
    r"""The bound on the expected excess loss :math:`E f(x_T) - \min_K f`.

    .. math::
      \text{mu2\_sgd:}&\quad \frac{D^2/\eta + 4D\tilde\sigma T^{3/2}}{T(T + 3)/2} +
      2\eta\tilde\sigma^2 \\
      \text{mu2\_extra\_sgd:}&\quad \frac{4D^2/\eta + 2D\tilde\sigma T^{3/2}}{T(T + 3)/2} \\
      \text{uniform:}&\quad \frac{D^2/\eta + 2\eta\tilde\sigma^2(1 + \log T) +
      4D\tilde\sigma T^{1/2}}{T}

    The theorems state an O(·); these are the last lines of their proofs, with
    :math:`\alpha_{1:T} = T(T + 3)/2`. They hold for learning rates up to
    :func:`mu2_optax.theory.max_learning_rate`; those of ``mu2_sgd`` and ``uniform`` (T > 2) also
    need the minimum over the set to be a minimum over the whole space.

    Args:
      learning_rate: η.
      steps: T.
      diameter: D.
      variance: :math:`\tilde\sigma^2`; see :func:`mu2_optax.theory.effective_variance`.
      method: ``"mu2_sgd"``, ``"mu2_extra_sgd"`` or ``"uniform"``.

    Returns:
      A scalar.

    Examples:
      >>> from mu2_optax import theory
      >>> rate = theory.max_learning_rate(smoothness=1.0, steps=100)
      >>> bound = theory.excess_loss_bound(
      ...     learning_rate=rate, steps=100, diameter=2.0, variance=0.0
      ... )
      >>> round(float(bound), 4)
      0.6214

    References:
      Dahan and Levy: the proofs of the theorems on μ²-SGD, μ²-ExtraSGD and uniform weights
    """
    check_positive("learning_rate", learning_rate, "use `max_learning_rate`.")
    check_steps("steps", steps)
    check_positive("diameter", diameter, "the theorems need a bounded set, such as a ball.")
    check_nonnegative("variance", variance, "it is a variance.")
    check_choice("method", method, METHODS)
    xp, eta, T, D, variance = numbers(learning_rate, steps, diameter, variance)
    noise = xp.sqrt(variance)
    if method == "uniform":
        step_noise = 2 * eta * variance * (1 + xp.log(T))
        return rounded(D / T * (D / eta + 4 * noise * T**0.5) + step_noise / T)
    weights = T * (T + 3) / 2
    if method == "mu2_extra_sgd":
        return rounded(D / weights * (4 * D / eta + 2 * noise * T**1.5))
    return rounded(D / weights * (D / eta + 4 * noise * T**1.5) + 2 * eta * variance)


def frank_wolfe_bound(
    *,
    smoothness: Numbers,
    steps: Numbers,
    diameter: Numbers,
    variance: Numbers,
    initial_gap: Numbers | None = None,
) -> jax.Array:
    r"""The bound on the expected excess loss of ``mu2_frank_wolfe``, which has no learning rate.

    .. math:: \frac{2\Delta_1 + (T - 1)LD^2 + 2D\tilde\sigma T^{3/2}}{T(T + 3)/2}

    for ``linear_momentum(offset=1)``. It is not in the paper; it follows from its theorem on the
    error, which holds for any update rule, and the usual Frank-Wolfe argument (smoothness and the
    oracle's optimality give
    :math:`\Delta_{t+1} \le (1 - \gamma)\Delta_t + \gamma D\|\varepsilon_t\| + \gamma^2 LD^2/2` with
    :math:`\gamma = \gamma_{t+1}`; multiply by :math:`\alpha_{1:t+1}` and sum). The set's minimum
    need not be a minimum over the whole space.

    Args:
      smoothness: L.
      steps: T.
      diameter: D.
      variance: :math:`\tilde\sigma^2`; see :func:`mu2_optax.theory.effective_variance`.
      initial_gap: :math:`\Delta_1`, the excess loss of the first params. By default :math:`LD^2/2`,
        which bounds it if the set contains a minimum over the whole space.

    Returns:
      A scalar.

    Examples:
      >>> from mu2_optax import theory
      >>> bound = theory.frank_wolfe_bound(smoothness=1.0, steps=100, diameter=2.0, variance=0.0)
      >>> round(float(bound), 4)
      0.0777

    References:
      Dahan and Levy, for the error; Jaggi, `Revisiting Frank-Wolfe
      <https://proceedings.mlr.press/v28/jaggi13.html>`_, ICML 2013
    """
    check_steps("steps", steps)
    check_positive("smoothness", smoothness, "it is the Lipschitz constant of the gradient.")
    check_positive("diameter", diameter, "the theorems need a bounded set, such as a ball.")
    check_nonnegative("variance", variance, "it is a variance.")
    known = 0.0 if initial_gap is None else initial_gap
    check_nonnegative("initial_gap", known, "it is a loss minus its minimum.")
    xp, T, L, D, variance, known = numbers(steps, smoothness, diameter, variance, known)
    gap = L * D**2 / 2 if initial_gap is None else known
    total = 2 * gap + (T - 1) * L * D**2 + 2 * D * xp.sqrt(variance) * T**1.5
    return rounded(total / (T * (T + 3) / 2))
