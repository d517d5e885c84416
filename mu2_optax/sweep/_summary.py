"""What a table of sweeps says: a row per result, the measures, and which row is flattest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._analysis.measures import (
    LearningRateSensitivity,
    PlateauWidth,
    StabilityRange,
    lr_sensitivity,
    plateau_width,
    stability_range,
)
from mu2_optax.sweep._analysis.metrics import (
    Array,
    Mode,
    all_rates,
    band_of_rates,
    initial_loss,
    is_flat,
    loss_sign,
    over_rates,
)
from mu2_optax.sweep._results.result import SweepResult

_NEAR = 0.05  # the default tolerance, as a share of the way from the start to the best


@dataclass(frozen=True, eq=False)
class Row:
    """One result.

    Attributes:
      means: The mean over the finished seeds at each rate of the table; NaN or Inf if one diverged,
        NaN if none has finished.
      texts: The means as text; ``err`` where a seed failed, ``@27`` if `halving` stopped the rate
        after 27 steps, empty where this result was not swept.
      finished: At which rates of the table every seed has finished.
      stopped: After how many steps `halving` stopped each rate of the table; 0 if it did not.
      flat: Whether there was no learning rate to choose; its values are then the same everywhere,
        and it has no measures.
      untouched: The index, among the table's rates, of the rate that was published as the default;
        None if there is none. If ``flat``, any index.
      tuned: The index of the best rate among those of the table; None if no mean is finite.
      plateau: The plateau near the table's best; None while cells are missing, or if a rate is 0.
      stability: The rates near the row's own best; None likewise.
      sensitivity: The mean loss above the row's own best; None likewise, or if the metric before
        training is not known.
    """

    means: Array
    texts: list[str]
    finished: npt.NDArray[np.bool_]
    stopped: npt.NDArray[np.int64]
    flat: bool
    untouched: int | None
    tuned: int | None
    plateau: PlateauWidth | None
    stability: StabilityRange | None
    sensitivity: LearningRateSensitivity | None

    @property
    def best(self) -> float:
        """The best mean; NaN if none is finite."""
        return np.nan if self.tuned is None else float(self.means[self.tuned])


@dataclass(frozen=True, eq=False)
class Summary:
    """All rows, and what they are measured against.

    Attributes:
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better.
      rates: The learning rates of the table, in order.
      rows: A row per label.
      best: The best mean in the table; NaN if there is none.
      tolerance: How far from ``best`` a plateau goes.
      rule: Where the tolerance comes from, in words; empty if it was given.
      widest: The labels with the widest plateau; none if no plateau has a width.
    """

    metric: str
    mode: Mode
    rates: Array
    rows: dict[str, Row]
    best: float
    tolerance: float
    rule: str
    widest: tuple[str, ...]

    @property
    def has_sensitivity(self) -> bool:
        """Whether the sensitivity of any row is known."""
        return any(row.sensitivity for row in self.rows.values())

    def within(self, best: str) -> str:
        """How far a plateau goes, in words: ``within 0.02 of`` what ``best`` names."""
        rule = f" ({self.rule})" if self.rule else ""
        return f"within {self.tolerance_text} of {best}{rule}"

    @property
    def tolerance_text(self) -> str:
        """The tolerance as text."""
        return rate_text(float(f"{self.tolerance:.2g}"))

    @property
    def best_rates(self) -> dict[str, float]:
        """The rate with the best mean, for each row that has one."""
        tuned = {label: row.tuned for label, row in self.rows.items()}
        return {label: float(self.rates[i]) for label, i in tuned.items() if i is not None}


def summarize(
    results: Mapping[str, SweepResult],
    metric: str,
    mode: Mode,
    initial: float | str | None = None,
    tolerance: float | None = None,
) -> Summary:
    """Measures each result against the best of all.

    The tolerance is how far from the best a plateau goes; if None, 0.02 for what is better high and
    at most 1, and otherwise 5 % of the way from the metric before training (``initial``, as in
    `lr_sensitivity`) to the best, or of the best where that is not known.
    """
    results = over_rates(results)
    rates, sign = all_rates(results.values()), loss_sign(mode)
    bands = {label: band_of_rates(result, metric)[0] for label, result in results.items()}
    finite = np.concatenate([band.mean[np.isfinite(band.mean)] for band in bands.values()])
    best = float(sign * (sign * finite).min()) if finite.size else np.nan
    rule = ""
    if tolerance is None:
        starts = [_start(result, metric, initial) for result in results.values()]
        tolerance, rule = _tolerance([s for s in starts if s is not None], mode, best)
    rows = {}
    for label, result in results.items():
        own = np.searchsorted(rates, result.learning_rates)
        means, finished = np.full(len(rates), np.nan), np.zeros(len(rates), bool)
        means[own], finished[own] = bands[label].mean, result.finished.all(axis=1)
        stopped = np.zeros(len(rates), int)
        for rate, steps in result.info.get("halving", {}).get("stopped", []):
            stopped[rates == rate] = steps
        texts = [""] * len(rates)
        for i, failed in zip(own, result.failed(), strict=True):
            text = f"@{stopped[i]}" if stopped[i] else number_text(means[i], finished[i])
            texts[i] = "err" if failed.any() else text
        flat = is_flat(result)
        default = np.flatnonzero(rates == result.info.get("untouched")).tolist()
        untouched = 0 if flat else next(iter(default), None)
        losses = np.where(np.isfinite(means), sign * means, np.inf)
        tuned = int(losses.argmin()) if np.isfinite(losses).any() else None
        plateau = stability = sensitivity = None
        complete = result.finished.all() and np.isfinite(best) and (result.learning_rates > 0).all()
        if complete and not flat:
            plateau = plateau_width(result, metric, tolerance, best=best, mode=mode)
            optimum = min(best, 0.0) if mode == "min" else max(best, 1.0)
            stability = stability_range(result, metric, optimum=optimum, mode=mode)
            if tuned is not None and _start(result, metric, initial) is not None:
                sensitivity = lr_sensitivity(result, metric, initial, mode=mode)
        rows[label] = Row(
            means, texts, finished, stopped, flat, untouched, tuned, plateau, stability, sensitivity
        )
    widths = {label: round(row.plateau.value, 6) for label, row in rows.items() if row.plateau}
    top = max(widths.values(), default=0.0)
    widest = tuple(label for label, width in widths.items() if width == top > 0)
    return Summary(metric, mode, rates, rows, best, tolerance, rule, widest)


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


def _tolerance(starts: Sequence[float], mode: Mode, best: float) -> tuple[float, str]:
    """The default tolerance, and where it comes from; ``starts`` is the metric before training."""
    if mode == "max" and 0 <= best <= 1:  # an accuracy
        return 0.02, ""
    if not starts or not np.isfinite(best):
        return _NEAR * abs(np.nan_to_num(best)), f"{_NEAR * 100:.0f} % of it"
    way = loss_sign(mode) * (float(np.median(starts)) - best)
    return _NEAR * max(way, 0.0), f"{_NEAR * 100:.0f} % of the way from before training"


def _start(result: SweepResult, metric: str, initial: float | str | None) -> float | None:
    """The metric before training; None if that is not known."""
    try:
        return initial_loss(result, metric, initial)
    except ValueError:
        return None
