"""What a table of sweeps says: a row per result, the measures, and which row is flattest."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._measures import (
    LearningRateSensitivity,
    PlateauWidth,
    StabilityRange,
    lr_sensitivity,
    plateau_width,
    stability_range,
)
from mu2_optax.sweep._mode import Mode
from mu2_optax.sweep._result import SweepResult

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Row:
    """One result.

    Attributes:
      means: The mean over the finished seeds at each rate of the table; NaN or Inf if one diverged,
        NaN if none has finished.
      finished: At which rates of the table every seed has finished.
      plateau: The plateau near the table's best; None while cells are missing, or if a rate is 0.
      stable: The rates near the row's own best; None likewise.
      sensitivity: The mean loss above the row's own best; None likewise, or if the metric before
        training is not known.
    """

    means: Array
    finished: npt.NDArray[np.bool_]
    plateau: PlateauWidth | None
    stable: StabilityRange | None
    sensitivity: LearningRateSensitivity | None


@dataclass(frozen=True, eq=False)
class Summary:
    """All of them.

    Attributes:
      rates: The learning rates of the table, in order.
      rows: A row per label.
      best: The best mean in the table; NaN if there is none.
      tolerance: How far from ``best`` a plateau goes.
      widest: The label with the widest plateau, among equals with the best mean over rates; None
        while no row is complete.
    """

    rates: Array
    rows: dict[str, Row]
    best: float
    tolerance: float
    widest: str | None

    @property
    def reach(self) -> str:
        """The tolerance, to be read."""
        return rate_text(float(f"{self.tolerance:.2g}"))


def summarize(
    results: Mapping[str, SweepResult],
    metric: str,
    mode: Mode,
    initial: float | str | None = None,
) -> Summary:
    """Measures each result against the best of all.

    Args:
      results: The results by label.
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better.
      initial: The metric before training, or the metric that holds it, for `lr_sensitivity`.

    Returns:
      The summary.
    """
    better_low = mode == "min"
    rates = np.unique(np.concatenate([result.learning_rates for result in results.values()]))
    means = {label: _means(result, metric) for label, result in results.items()}
    finite = np.concatenate([m[np.isfinite(m)] for m in means.values()])
    best = float(finite.min() if better_low else finite.max()) if finite.size else np.nan
    tolerance = abs(best) if better_low and finite.size else 0.02  # a loss: up to twice the best
    rows, scores = {}, {}
    for label, result in results.items():
        plateau = stable = sensitivity = None
        if result.finished.all() and np.isfinite(best) and (result.learning_rates > 0).all():
            plateau = plateau_width(result, metric, tolerance, best=best, mode=mode)
            stable = stability_range(result, metric, optimum=_optimum(mode, best), mode=mode)
            curve = result.metric(metric).ndim > len(result.shape)
            if (curve or initial is not None) and np.isfinite(means[label]).any():
                sensitivity = lr_sensitivity(result, metric, initial, mode=mode)
            worst = np.nan_to_num(means[label], nan=np.inf if better_low else -np.inf).mean()
            scores[label] = (plateau.value, float(-worst if better_low else worst))
        at = np.searchsorted(rates, result.learning_rates)
        everywhere, complete = np.full(len(rates), np.nan), np.zeros(len(rates), bool)
        everywhere[at], complete[at] = means[label], result.finished.all(axis=1)
        rows[label] = Row(everywhere, complete, plateau, stable, sensitivity)
    widest = max(scores, key=lambda label: scores[label]) if scores else None
    return Summary(rates, rows, best, tolerance, widest)


def number_text(value: float, finished: bool = True) -> str:
    """A value in a table: ``.942``, ``div`` if it diverged, ``--`` if it has not been run.

    Examples:
      >>> number_text(0.9417), number_text(2.5), number_text(0.00012), number_text(np.inf)
      ('.942', '2.500', '1.2e-4', 'div')
    """
    if not np.isfinite(value):
        return "div" if finished else "--"
    if 0 < abs(value) < 5e-4 or abs(value) >= 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return text.removeprefix("0") if 0 < value < 1 else text


def rate_text(rate: float) -> str:
    """A positive number, such as a learning rate, in few characters.

    Examples:
      >>> rate_text(0.01), rate_text(1e-4), rate_text(10_000.0), rate_text(3.16227766)
      ('0.01', '1e-4', '1e4', '3.16')
    """
    mantissa, exponent = f"{rate:e}".split("e")
    short = f"{float(mantissa):.3g}e{int(exponent)}"
    plain = f"{rate:.3g}"
    return short if "e" in plain or len(plain) > max(4, len(short)) else plain


def _means(result: SweepResult, metric: str) -> Array:
    """The mean over finished seeds at each rate; NaN if one diverged or none has finished."""
    values = result.final(metric)
    count = result.finished.sum(axis=1)
    total = np.where(result.finished, values, 0.0).sum(axis=1)
    means = np.full(len(values), np.nan)
    np.divide(total, count, out=means, where=count > 0)
    return means


def _optimum(mode: Mode, best: float) -> float | None:
    """The measure's own default, unless the metric goes beyond it."""
    if mode == "min":
        return None if best >= 0 else best
    return None if best <= 1 else best
