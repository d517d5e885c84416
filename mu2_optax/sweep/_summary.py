"""What a table of sweeps says: a row for each result, and the measures."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mu2_optax.sweep._measures import (
    LearningRateSensitivity,
    PlateauWidth,
    StabilityRange,
    initial_loss,
    lr_sensitivity,
    plateau_width,
    stability_range,
)
from mu2_optax.sweep._metrics import (
    Array,
    Mode,
    all_rates,
    band_of_rates,
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
      means: The mean over seeds at each rate of the table, or not finite.
      texts: The means as text: ``div`` where a seed diverged, ``err`` where one failed, ``--``
        where none has finished, ``@27`` where `halving` stopped after 27 steps, and nothing where
        this result was not swept.
      flat: Whether there was no learning rate to choose; its values are then the same everywhere,
        and it has no measures.
      untouched: The place of the rate that was published as the default, if there is one.
      tuned: The place of the best rate; None if no mean is finite.
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
    """All rows by label, over the same rates, and what they are measured against.

    A plateau is what is ``within`` the ``tolerance`` of ``best``, the best mean in the table; the
    ``widest`` are the labels with the widest one.
    """

    metric: str
    mode: Mode
    rates: Array
    seeds: int
    rows: dict[str, Row]
    best: float
    tolerance: float
    within: str
    widest: list[str]


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
    rates, sign, results = all_rates(results), loss_sign(mode), over_rates(results)
    rows = {label: _row(result, metric, rates, sign) for label, result in results.items()}
    losses = sign * np.concatenate([row.means for row in rows.values()])
    best = sign * float(np.min(losses, initial=np.inf, where=np.isfinite(losses)))
    starts = {label: _start(result, metric, initial) for label, result in results.items()}
    known = [start for start in starts.values() if start is not None]
    rule = ""
    if tolerance is None and mode == "max" and 0 <= best <= 1:  # an accuracy
        tolerance = 0.02
    elif tolerance is None and known and np.isfinite(best):
        tolerance = _NEAR * max(sign * (float(np.median(known)) - best), 0.0)
        rule = f" ({_NEAR * 100:.0f} % of the way from before training)"
    elif tolerance is None:
        tolerance = _NEAR * abs(best) if np.isfinite(best) else 0.0
        rule = f" ({_NEAR * 100:.0f} % of it)"
    for label, row in rows.items():
        result = results[label]
        complete = result.finished.all() and (result.learning_rates > 0).all()
        if row.flat or not complete or not np.isfinite(best):
            continue
        plateau = plateau_width(result, metric, tolerance, best=best, mode=mode)
        optimum = min(best, 0.0) if mode == "min" else max(best, 1.0)
        stability = stability_range(result, metric, optimum=optimum, mode=mode)
        sensitivity = None
        if row.tuned is not None and starts[label] is not None:
            sensitivity = lr_sensitivity(result, metric, initial, mode=mode)
        rows[label] = replace(row, plateau=plateau, stability=stability, sensitivity=sensitivity)
    widths = {label: round(row.plateau.value, 6) for label, row in rows.items() if row.plateau}
    widest = [label for label, width in widths.items() if width == max(widths.values()) > 0]
    within = f"within {rate_text(float(f'{tolerance:.2g}'))} of the table's best{rule}"
    seeds = len(next(iter(results.values())).seeds)
    return Summary(metric, mode, rates, seeds, rows, best, tolerance, within, widest)


def _row(result: SweepResult, metric: str, rates: Array, sign: float) -> Row:
    """A row without its measures."""
    means, texts = np.full(len(rates), np.nan), [""] * len(rates)
    own = np.searchsorted(rates, result.learning_rates)
    means[own] = band_of_rates(result, metric).mean
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
    flat = bool(result.info.get("flat"))
    default = np.flatnonzero(flat | (rates == result.info.get("untouched"))).tolist()
    losses = np.where(np.isfinite(means), sign * means, np.inf)
    tuned = int(losses.argmin()) if np.isfinite(losses).any() else None
    return Row(means, texts, flat, default[0] if default else None, tuned)


def _start(result: SweepResult, metric: str, initial: float | str | None) -> float | None:
    """The metric before training; None if that is not known."""
    try:
        return initial_loss(result, metric, initial)
    except ValueError:
        return None
