"""What a table of sweeps says: a row per result, the measures, and which row is flattest."""

from collections.abc import Mapping
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
    band_of_rates,
    initial_loss,
    is_flat,
    over_rates,
)
from mu2_optax.sweep._results.result import SweepResult

_NEAR = 0.05  # what is near the best, as a share of the way from the start


@dataclass(frozen=True, eq=False)
class Row:
    """One result.

    Attributes:
      means: The mean over the finished seeds at each rate of the table; NaN or Inf if one diverged,
        NaN if none has finished.
      finished: At which rates of the table every seed has finished.
      failed: At which rates of the table a seed failed.
      stopped: After how many steps `halving` stopped each rate of the table; 0 if it did not.
      there: Which rates of the table this result was swept over.
      flat: Whether there was no learning rate to choose; its values are then the same everywhere,
        and it has no measures.
      untouched: The index, among the table's rates, of the rate that was published as the default;
        None if there is none. If ``flat``, any index.
      tuned: The index of the best rate among those of the table; None if no mean is finite.
      plateau: The plateau near the table's best; None while cells are missing, or if a rate is 0.
      stable: The rates near the row's own best; None likewise.
      sensitivity: The mean loss above the row's own best; None likewise, or if the metric before
        training is not known.
    """

    means: Array
    finished: npt.NDArray[np.bool_]
    failed: npt.NDArray[np.bool_]
    stopped: npt.NDArray[np.int64]
    there: npt.NDArray[np.bool_]
    flat: bool
    untouched: int | None
    tuned: int | None
    plateau: PlateauWidth | None
    stable: StabilityRange | None
    sensitivity: LearningRateSensitivity | None

    def texts(self) -> list[str]:
        """The means as text; ``err`` where a seed failed, ``@27`` if stopped after 27 steps."""
        numbers = map(number_text, self.means.tolist(), self.finished.tolist())
        return [
            "err" if failed else f"@{stopped}" if stopped else text if there else ""
            for text, failed, stopped, there in zip(
                numbers, self.failed, self.stopped, self.there, strict=True
            )
        ]


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
    def reach(self) -> str:
        """The tolerance as text."""
        return rate_text(float(f"{self.tolerance:.2g}"))

    @property
    def sign(self) -> float:
        """What turns the metric's values into losses."""
        return 1.0 if self.mode == "min" else -1.0

    @property
    def best_rates(self) -> dict[str, float]:
        """The rate with the best mean, for each row that has one."""
        tuned = {label: row.tuned for label, row in self.rows.items()}
        return {label: float(self.rates[i]) for label, i in tuned.items() if i is not None}

    @property
    def measured(self) -> bool:
        """Whether any row is complete, and so has measures."""
        return any(row.plateau is not None for row in self.rows.values())


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
    rates = np.unique(np.concatenate([result.learning_rates for result in results.values()]))
    means = {label: band_of_rates(result, metric)[0].mean for label, result in results.items()}
    finite = np.concatenate([m[np.isfinite(m)] for m in means.values()])
    best = float(finite.min() if mode == "min" else finite.max()) if finite.size else np.nan
    rule = ""
    if tolerance is None:
        tolerance, rule = _tolerance(results, metric, mode, initial, best)
    rows = {}
    for label, result in results.items():
        plateau = stable = sensitivity = None
        flat = is_flat(result)
        complete = result.finished.all() and np.isfinite(best) and (result.learning_rates > 0).all()
        if complete and not flat:
            plateau = plateau_width(result, metric, tolerance, best=best, mode=mode)
            stable = stability_range(result, metric, optimum=_optimum(mode, best), mode=mode)
            if _start(result, metric, initial) is not None and np.isfinite(means[label]).any():
                sensitivity = lr_sensitivity(result, metric, initial, mode=mode)
        at = np.searchsorted(rates, result.learning_rates)
        everywhere = np.full(len(rates), np.nan)
        finished, failed, there = np.zeros((3, len(rates)), bool)
        everywhere[at], finished[at], there[at] = means[label], result.finished.all(axis=1), True
        failed[at] = result.failed().any(axis=1)
        stopped = np.zeros(len(rates), int)
        for rate, steps in result.info.get("halving", {}).get("stopped", []):
            stopped[rates == rate] = steps
        untouched = 0 if flat else _place(rates, result.info.get("untouched"))
        rows[label] = Row(
            everywhere, finished, failed, stopped, there, flat, untouched, _best(everywhere, mode),
            plateau, stable, sensitivity,
        )  # fmt: skip
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


def _tolerance(
    results: Mapping[str, SweepResult],
    metric: str,
    mode: Mode,
    initial: float | str | None,
    best: float,
) -> tuple[float, str]:
    """How far a plateau goes if the caller has not said so, and by which rule."""
    if mode == "max" and 0 <= best <= 1:  # an accuracy
        return 0.02, ""
    starts = [_start(result, metric, initial) for result in results.values()]
    known = [start for start in starts if start is not None]
    if not known or not np.isfinite(best):
        return _NEAR * abs(np.nan_to_num(best)), f"{_NEAR * 100:.0f} % of it"
    way = float(np.median(known)) - best if mode == "min" else best - float(np.median(known))
    return _NEAR * max(way, 0.0), f"{_NEAR * 100:.0f} % of the way from before training"


def _start(result: SweepResult, metric: str, initial: float | str | None) -> float | None:
    """The metric before training; None if that is not known."""
    try:
        return initial_loss(result, metric, initial)
    except ValueError:
        return None


def _optimum(mode: Mode, best: float) -> float | None:
    """The measure's own default, unless the metric goes beyond it."""
    if mode == "min":
        return None if best >= 0 else best
    return None if best <= 1 else best


def _best(means: Array, mode: Mode) -> int | None:
    """The index of the best mean; None if none is finite."""
    losses = np.where(np.isfinite(means), means if mode == "min" else -means, np.inf)
    return int(losses.argmin()) if np.isfinite(losses).any() else None


def _place(rates: Array, rate: float | None) -> int | None:
    """The index of a rate among those of the table."""
    found = np.flatnonzero(rates == rate)
    return int(found[0]) if found.size else None
