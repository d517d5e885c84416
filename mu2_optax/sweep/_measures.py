"""How much the learning rate matters, in a number with an interval.

A rate's value is the mean over seeds of the metric's final value. A rate at which any seed
diverged, or failed, counts as the worst possible. ``mode`` says whether a metric is better high or
low; if None, its name does (`metric_mode`). Intervals are percentile bootstraps (95 %) over seeds:
the seeds are drawn again with replacement, 2000 times, with a fixed generator. With three seeds
such an interval is coarse.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mu2_optax.sweep._metrics import Array, Mode, check_rates_alone, loss_sign, metric_mode
from mu2_optax.sweep._result import SweepResult

_ROUNDING = 1 + 1e-6  # what lies on the border of a tolerance, to float32 rounding, is inside


class Measure(NamedTuple):
    """How much the learning rate matters.

    Attributes:
      value: The measure.
      interval: Its ends, over seeds.
      rates: The rates that it is about: those near the best, or the best alone.
    """

    value: float
    interval: tuple[float, float]
    rates: tuple[float, ...]


def stability_range(
    result: SweepResult,
    metric: str,
    factor: float = 2.0,
    optimum: float | None = None,
    *,
    mode: Mode | None = None,
) -> Measure:
    r"""The range of order-optimal learning rates, from the paper's appendix on stability.

    .. math:: \eta_{\max} / \eta_{\min} \text{ of } \{\eta : R(\eta) \le \text{factor} \cdot
       \min_{\eta'} R(\eta')\}

    Here :math:`R` is the excess loss, the metric's distance from its ``optimum`` (if None, 0 for a
    loss and 1 for an accuracy). The rates are those of the grid, so the ratio is known up to the
    grid's spacing and bounded by its ends.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": learning_rate + 1 / learning_rate}
      >>> result = sweep(train, [0.1, 0.5, 1.0, 2.0, 10.0], seeds=2, progress=False)
      >>> stability_range(result, "loss").value  # 0.5, 1 and 2 lie within 2 × 2
      4.0

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless: Stable Stochastic Optimization via a Double
      Momentum Mechanism <https://arxiv.org/abs/2304.04172>`_, 2025
    """
    if not factor >= 1:
        raise ValueError(f"`factor` must be at least 1, got {factor}; the paper's is 2.")
    rates, losses, sign = _final_losses(result, metric, mode)
    best_possible = sign * (optimum if optimum is not None else (0.0 if sign > 0 else 1.0))
    best = losses.mean(axis=1).min()
    if best_possible - best > (_ROUNDING - 1) * abs(best):
        raise ValueError(
            f"`optimum` must be at least as good as the best {metric!r} of the sweep, "
            f"{sign * best:g}, got {sign * best_possible:g}."
        )

    def near(means: Array) -> Any:
        with np.errstate(over="ignore"):  # what is infinitely far is not near
            excess = np.maximum(means - best_possible, 0.0)
        least = excess.min(axis=-1, keepdims=True)
        return np.isfinite(excess) & (excess / (factor * _ROUNDING) <= least)

    def ratio(means: Array) -> Array:
        high = np.where(near(means), rates, 0.0).max(axis=-1)
        return high / np.where(near(means), rates, np.inf).min(axis=-1)

    return Measure(*_measured(losses, ratio), tuple(rates[near(losses.mean(axis=1))].tolist()))


def plateau_width(
    result: SweepResult,
    metric: str,
    tolerance: float,
    *,
    best: float | None = None,
    mode: Mode | None = None,
) -> Measure:
    r"""The width of the plateau in decades of the learning rate.

    .. math:: \log_{10}(\eta_{\text{high}} / \eta_{\text{low}})

    of the widest run of neighbouring rates whose metric lies within ``tolerance``, in its own unit,
    of the ``best``. That is the best of this sweep if None; pass that of several to compare them.

    Examples:
      >>> import jax.numpy as jnp
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": jnp.maximum(learning_rate, 1.0)}
      >>> result = sweep(train, [0.01, 0.1, 1.0, 10.0], seeds=2, progress=False)
      >>> plateau_width(result, "loss", tolerance=0.5).value
      2.0
    """
    if not tolerance >= 0:
        raise ValueError(f"`tolerance` must not be negative, got {tolerance}.")
    rates, losses, sign = _final_losses(result, metric, mode)
    decades, index = np.log10(rates), np.arange(len(rates))

    def runs(means: Array) -> tuple[Array, Any]:
        """For each rate the run of near rates that ends there: its width and its first rate."""
        goal = means.min(axis=-1, keepdims=True) if best is None else sign * best
        near = np.isfinite(means) & (means <= goal + tolerance * _ROUNDING)
        last_far = np.maximum.accumulate(np.where(near, -1, index), axis=-1)
        first = np.minimum(last_far + 1, index)
        return np.where(near, decades - decades[first], -np.inf), first

    measured = _measured(losses, lambda means: runs(means)[0].max(axis=-1).clip(0.0))
    widths, first = runs(losses.mean(axis=1))
    last = int(widths.argmax())
    ends = slice(first[last], last + 1) if widths[last] >= 0 else slice(0)
    return Measure(*measured, tuple(rates[ends].tolist()))


def lr_sensitivity(
    result: SweepResult, metric: str, initial: float, *, mode: Mode | None = None
) -> Measure:
    r"""The learning-rate sensitivity of Wortsman et al.

    .. math:: \mathbb{E}_\eta[\min(\ell(\eta), \ell_0) - \ell^*]

    the mean over the rates of the loss above the best, where losses worse than the loss before
    training :math:`\ell_0`, which is ``initial``, and diverged runs, count as :math:`\ell_0`.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": learning_rate}
      >>> result = sweep(train, [1.0, 2.0, 30.0], seeds=2, progress=False)
      >>> lr_sensitivity(result, "loss", initial=6.0).value  # (0 + 1 + 5) / 3
      2.0

    References:
      Wortsman et al., `Small-scale proxies for large-scale Transformer training instabilities
      <https://arxiv.org/abs/2309.14322>`_, 2023
    """
    rates, losses, sign = _final_losses(result, metric, mode)
    if not np.isfinite(initial):
        raise ValueError(f"`initial`, the loss before training, must be finite, got {initial}.")
    clipped = np.minimum(losses, sign * initial)
    above = lambda means: means.mean(axis=-1) - means.min(axis=-1)
    best = rates[clipped.mean(axis=1).argmin()]
    return Measure(*_measured(clipped, above), (float(best),))


def _final_losses(
    result: SweepResult, metric: str, mode: Mode | None
) -> tuple[Array, Array, float]:
    """The rates in order, the final losses, and the sign that makes them values again.

    Losses have the shape (rates, seeds), and are infinite where a cell diverged.
    """
    check_rates_alone(result)
    rates = result.learning_rates
    if not result.finished.all():
        raise ValueError(
            f"{(~result.finished).sum()} cells of the sweep have not been run; resume it first."
        )
    if (rates <= 0).any():
        raise ValueError(f"the measures need positive learning rates, got {rates.min():g}.")
    sign = loss_sign(metric_mode(metric, mode))
    losses = sign * result.final(metric)[np.argsort(rates)]
    return np.sort(rates), np.where(np.isfinite(losses), losses, np.inf), sign


def _measured(losses: Array, measure: Callable[[Array], Array]) -> tuple[float, Any]:
    """A measure of the means over seeds, and its percentile interval over resampled seeds."""
    drawn = np.random.default_rng(0).integers(0, losses.shape[1], (2000, losses.shape[1]))
    low, high = np.quantile(measure(losses[:, drawn].mean(axis=-1).T), [0.025, 0.975])
    return float(measure(losses.mean(axis=1))), (float(low), float(high))
