"""How much the learning rate matters, in a number with an interval.

A rate's value is the mean over seeds of the metric's final value. A rate at which any seed
diverged, or failed, counts as the worst possible. ``mode`` says whether a metric is better high or
low; if None, its name does (`metric_mode`). Intervals are percentile bootstraps over seeds: the
seeds are drawn again with replacement, 2000 times, with a fixed generator. With three seeds such an
interval is coarse.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._metrics import Array, Mode, final_losses, initial_loss, mean
from mu2_optax.sweep._result import SweepResult

_ROUNDING = 1 + 1e-6  # what lies on the border of a tolerance, to float32 rounding, is inside


class StabilityRange(NamedTuple):
    """The rates near the best.

    Attributes:
      value: The ratio of the largest to the smallest of them.
      interval: The bootstrap interval of ``value``.
      low: The smallest of them.
      high: The largest of them.
      rates: All of them; a rate of the grid between low and high that is missing here is not near.
    """

    value: float
    interval: tuple[float, float]
    low: float
    high: float
    rates: tuple[float, ...]


class PlateauWidth(NamedTuple):
    """The widest run of neighbouring rates near the best.

    Attributes:
      value: Its width in decades.
      interval: The bootstrap interval of ``value``.
      low: Its smallest rate.
      high: Its largest rate.
    """

    value: float
    interval: tuple[float, float]
    low: float
    high: float


class LearningRateSensitivity(NamedTuple):
    """The mean loss above the best.

    Attributes:
      value: The sensitivity; 0 if every rate does as well as the best.
      interval: The bootstrap interval of ``value``.
      best: The best rate.
    """

    value: float
    interval: tuple[float, float]
    best: float


def stability_range(
    result: SweepResult,
    metric: str,
    factor: float = 2.0,
    optimum: float | None = None,
    *,
    mode: Mode | None = None,
    confidence: float = 0.95,
) -> StabilityRange:
    r"""The range of order-optimal learning rates, from the paper's appendix on stability.

    .. math:: \{\eta : R(\eta) \le \text{factor} \cdot \min_{\eta'} R(\eta')\}, \qquad
       \text{ratio} = \eta_{\max} / \eta_{\min}

    Here :math:`R` is the excess loss, the metric's distance from its optimum. The rates are those
    of the grid, so the ratio is known up to the grid's spacing and bounded by its ends.

    Args:
      result: A sweep over ``learning_rate`` alone.
      metric: The metric's name.
      factor: How far from the best excess loss still counts, at least 1.
      optimum: The metric's best possible value; if None, 0 for a loss and 1 for an accuracy.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      confidence: The level of the bootstrap interval.

    Returns:
      The ratio with its interval, and the rates.

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
    rates, losses, sign = final_losses(result, metric, mode)
    best_possible = sign * (optimum if optimum is not None else (0.0 if sign > 0 else 1.0))
    best = mean(losses, axis=1).min()
    if best_possible - best > (_ROUNDING - 1) * abs(best):
        raise ValueError(
            f"`optimum` must be at least as good as the best {metric!r} of the sweep, "
            f"{sign * best:g}, got {sign * best_possible:g}."
        )

    def near(means: Array) -> npt.NDArray[np.bool_]:
        with np.errstate(over="ignore"):  # what is infinitely far is not near
            excess = np.maximum(means - best_possible, 0.0)
        return np.isfinite(excess) & (
            excess / (factor * _ROUNDING) <= excess.min(axis=-1, keepdims=True)
        )

    def ratio(means: Array) -> Array:
        mask = near(means)
        high = np.where(mask, rates, 0.0).max(axis=-1)
        return high / np.where(mask, rates, np.inf).min(axis=-1)

    value, interval = bootstrap(losses, ratio, confidence)
    chosen = tuple(rates[near(mean(losses, axis=1))].tolist())
    if not chosen:
        return StabilityRange(0.0, interval, np.nan, np.nan, ())
    return StabilityRange(value, interval, chosen[0], chosen[-1], chosen)


def plateau_width(
    result: SweepResult,
    metric: str,
    tolerance: float,
    *,
    best: float | None = None,
    mode: Mode | None = None,
    confidence: float = 0.95,
) -> PlateauWidth:
    r"""The width of the plateau in decades of the learning rate.

    .. math:: \log_{10}(\eta_{\text{high}} / \eta_{\text{low}})

    of the widest run of neighbouring rates whose metric lies within ``tolerance`` of the best.

    Args:
      result: A sweep over ``learning_rate`` alone.
      metric: The metric's name.
      tolerance: How far from the best still counts, in the metric's unit.
      best: The best; if None, that of this sweep. Pass the best of several sweeps to compare them.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      confidence: The level of the bootstrap interval.

    Returns:
      The width with its interval, and the ends of the plateau.

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
    rates, losses, sign = final_losses(result, metric, mode)
    decades = np.log10(rates)

    def runs(means: Array) -> tuple[Array, npt.NDArray[np.int64]]:
        """For each rate the run of near rates that ends there: its width and its first rate."""
        goal = means.min(axis=-1, keepdims=True) if best is None else sign * best
        near = np.isfinite(means) & (means <= goal + tolerance * _ROUNDING)
        index = np.arange(len(rates))
        last_far = np.maximum.accumulate(np.where(near, -1, index), axis=-1)
        first = np.minimum(last_far + 1, index)
        return np.where(near, decades - decades[first], -np.inf), first

    def width(means: Array) -> Array:
        return runs(means)[0].max(axis=-1).clip(0.0)

    value, interval = bootstrap(losses, width, confidence)
    widths, first = runs(mean(losses, axis=1))
    high = int(widths.argmax())
    if widths[high] < 0:
        return PlateauWidth(0.0, interval, np.nan, np.nan)
    return PlateauWidth(value, interval, float(rates[first[high]]), float(rates[high]))


def lr_sensitivity(
    result: SweepResult,
    metric: str,
    initial: float | str | None = None,
    *,
    mode: Mode | None = None,
    confidence: float = 0.95,
) -> LearningRateSensitivity:
    r"""The learning-rate sensitivity of Wortsman et al.

    .. math:: \mathbb{E}_\eta[\min(\ell(\eta), \ell_0) - \ell^*]

    the mean over the rates of the loss above the best, where losses worse than the initial loss
    :math:`\ell_0`, and diverged runs, count as :math:`\ell_0`.

    Args:
      result: A sweep over ``learning_rate`` alone.
      metric: The metric's name.
      initial: The loss before training: a number, or the name of a metric that holds it. If None,
        ``metric`` must be a curve, and its first value is taken.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      confidence: The level of the bootstrap interval.

    Returns:
      The sensitivity with its interval, and the best rate.

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
    rates, losses, sign = final_losses(result, metric, mode)
    start = sign * initial_loss(result, metric, initial)
    clipped = np.minimum(losses, start)

    def sensitivity(means: Array) -> Array:
        return mean(means - means.min(axis=-1, keepdims=True), axis=-1)

    value, interval = bootstrap(clipped, sensitivity, confidence)
    return LearningRateSensitivity(value, interval, float(rates[mean(clipped, axis=1).argmin()]))


def bootstrap(
    losses: Array, measure: Callable[[Array], Array], confidence: float
) -> tuple[float, tuple[float, float]]:
    """A measure of the means over seeds, and its percentile interval over resampled seeds."""
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must lie between 0 and 1, got {confidence}.")
    seeds = losses.shape[1]
    drawn = np.random.default_rng(0).integers(0, seeds, (2000, seeds))
    samples = measure(mean(losses[:, drawn], axis=-1).T)
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(measure(mean(losses, axis=1))), (float(low), float(high))
