"""What a table of sweeps says: a row for each result, and the measures."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mu2_optax.sweep._measures import (
    LearningRateSensitivity,
    PlateauWidth,
    StabilityRange,
    lr_sensitivity,
    plateau_width,
    stability_range,
)
from mu2_optax.sweep._metrics import (
    Array,
    Mode,
    all_rates,
    band_of_rates,
    initial_loss,
    is_flat,
    loss_sign,
    number_text,
    over_rates,
    rate_text,
)
from mu2_optax.sweep._result import SweepResult

_NEAR = 0.05  # the default tolerance, as a share of the way from the start to the best


@dataclass(frozen=True, eq=False)
class Row:
    """One result.

    Attributes:
      means: The mean over the finished seeds at each rate of the table, or not finite.
      texts: The means as text: ``div`` where a seed diverged, ``err`` where one failed, ``--``
        where none has finished, ``@27`` where `halving` stopped after 27 steps, and nothing where
        this result was not swept.
      flat: Whether there was no learning rate to choose; its values are then the same everywhere,
        and it has no measures.
      untouched: The index of the rate that was published as the default; None if there is none. If
        ``flat``, any index.
      tuned: The index of the best rate; None if no mean is finite.
      plateau: The plateau near the table's best; None while cells are missing, or if a rate is 0.
      stability: The rates near the row's own best; None likewise.
      sensitivity: The mean loss above the row's own best; None likewise, or if the metric before
        training is not known.
    """

    means: Array
    texts: list[str]
    flat: bool
    untouched: int | None
    tuned: int | None
    plateau: PlateauWidth | None = None
    stability: StabilityRange | None = None
    sensitivity: LearningRateSensitivity | None = None


@dataclass(frozen=True, eq=False)
class Summary:
    """All rows, and what they are measured against.

    Attributes:
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better.
      rates: The learning rates of the table, in order.
      seeds: The number of seeds.
      rows: A row per label.
      best: The best mean in the table; NaN if there is none.
      tolerance: How far from ``best`` a plateau goes.
      rule: Where the tolerance comes from, in words; empty if it was given.
      widest: The labels with the widest plateau; none if no plateau has a width.
    """

    metric: str
    mode: Mode
    rates: Array
    seeds: int
    rows: dict[str, Row]
    best: float
    tolerance: float
    rule: str
    widest: list[str]

    @property
    def within(self) -> str:
        """How far a plateau goes, in words."""
        return f"within {rate_text(float(f'{self.tolerance:.2g}'))} of the table's best{self.rule}"

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
    seeds = len(next(iter(results.values())).seeds)
    rows = {label: _row(result, metric, rates, sign) for label, result in results.items()}
    losses = sign * np.concatenate([row.means for row in rows.values()])
    best = float(sign * losses[np.isfinite(losses)].min()) if np.isfinite(losses).any() else np.nan
    starts = {label: _start(result, metric, initial) for label, result in results.items()}
    known = [start for start in starts.values() if start is not None]
    rule = ""
    if tolerance is None and mode == "max" and 0 <= best <= 1:  # an accuracy
        tolerance = 0.02
    elif tolerance is None and known and np.isfinite(best):
        tolerance = _NEAR * max(sign * (float(np.median(known)) - best), 0.0)
        rule = f" ({_NEAR * 100:.0f} % of the way from before training)"
    elif tolerance is None:
        tolerance, rule = _NEAR * abs(np.nan_to_num(best)), f" ({_NEAR * 100:.0f} % of it)"
    for label, row in rows.items():
        result = results[label]
        complete = result.finished.all() and (result.learning_rates > 0).all()
        if row.flat or not complete or not np.isfinite(best):
            continue
        optimum = min(best, 0.0) if mode == "min" else max(best, 1.0)
        plateau = plateau_width(result, metric, tolerance, best=best, mode=mode)
        stability = stability_range(result, metric, optimum=optimum, mode=mode)
        sensitivity = None
        if row.tuned is not None and starts[label] is not None:
            sensitivity = lr_sensitivity(result, metric, initial, mode=mode)
        measures = {"plateau": plateau, "stability": stability, "sensitivity": sensitivity}
        rows[label] = Row(**(vars(row) | measures))
    widths = {label: round(row.plateau.value, 6) for label, row in rows.items() if row.plateau}
    top = max(widths.values(), default=0.0)
    widest = [label for label, width in widths.items() if width == top > 0]
    return Summary(metric, mode, rates, seeds, rows, best, tolerance, rule, widest)


def _row(result: SweepResult, metric: str, rates: Array, sign: float) -> Row:
    """A row without its measures."""
    means, texts = np.full(len(rates), np.nan), [""] * len(rates)
    own = np.searchsorted(rates, result.learning_rates)
    means[own] = band_of_rates(result, metric)[0].mean
    stopped = dict(result.info.get("halving", {}).get("stopped", []))
    for i, failed, finished in zip(own, result.failed(), result.finished, strict=True):
        if failed.any():
            texts[i] = "err"
        elif rates[i] in stopped:
            texts[i] = f"@{stopped[rates[i]]}"
        elif np.isfinite(means[i]):
            texts[i] = number_text(means[i])
        else:
            texts[i] = "div" if finished.all() else "--"
    flat = is_flat(result)
    default = np.flatnonzero(rates == result.info.get("untouched")).tolist()
    losses = np.where(np.isfinite(means), sign * means, np.inf)
    tuned = int(losses.argmin()) if np.isfinite(losses).any() else None
    return Row(means, texts, flat, 0 if flat else next(iter(default), None), tuned)


def _start(result: SweepResult, metric: str, initial: float | str | None) -> float | None:
    """The metric before training; None if that is not known."""
    try:
        return initial_loss(result, metric, initial)
    except ValueError:
        return None
