"""What a table of sweeps says: a row for each result, the measures, and a verdict in sentences."""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mu2_optax.sweep._measures import Measure, plateau_width, stability_range
from mu2_optax.sweep._metrics import (
    Array,
    Mode,
    all_rates,
    band_of_rates,
    loss_sign,
    number_text,
    over_rates,
    rate_text,
    spaced,
)
from mu2_optax.sweep._result import SweepResult


@dataclass(eq=False)
class Row:
    """One result: its means over seeds, as numbers and texts, and its measures.

    A text is ``div`` where a seed diverged, ``err`` where one failed, ``--`` where none has run,
    ``@27`` where `halving` stopped after 27 steps, and empty where there was no sweep. ``flat``:
    there was no learning rate to choose. ``untouched`` and ``tuned`` are the places of the rate
    that was published as the default, and of the best one. Measures are None while cells are
    missing, or if a rate is 0.
    """

    means: Array
    texts: list[str]
    flat: bool
    untouched: int | None
    tuned: int | None
    plateau: Measure | None = None
    stability: Measure | None = None


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
    results: Mapping[str, SweepResult], metric: str, mode: Mode, tolerance: float | None = None
) -> Summary:
    """Measures each result against the best of all; see `write_report` for the options."""
    rates, sign, results = all_rates(results), loss_sign(mode), over_rates(results)
    rows = {label: _row(result, metric, rates, sign) for label, result in results.items()}
    losses = sign * np.concatenate([row.means for row in rows.values()])
    best = sign * float(np.min(losses, initial=np.inf, where=np.isfinite(losses)))
    rule = ""
    if tolerance is None and mode == "max" and 0 <= best <= 1:  # an accuracy
        tolerance = 0.02
    elif tolerance is None:
        tolerance, rule = (0.05 * abs(best) if np.isfinite(best) else 0.0), " (5 % of it)"
    for label, row in rows.items():
        result = results[label]
        complete = result.finished.all() and (result.learning_rates > 0).all()
        if row.flat or not complete or not np.isfinite(best):
            continue
        optimum = min(best, 0.0) if mode == "min" else max(best, 1.0)
        row.plateau = plateau_width(result, metric, tolerance, best=best, mode=mode)
        row.stability = stability_range(result, metric, optimum=optimum, mode=mode)
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


def text_table(summary: Summary) -> str:
    """A row per optimizer: the metric untouched, tuned and at each rate, and the plateau's width.

    The rows with the widest plateau are marked with an asterisk. The verdict follows.
    """
    rows = summary.rows
    swept = not all(row.flat for row in rows.values())
    known = any(row.untouched is not None for row in rows.values())
    header = ["untouched", "tuned", *map(rate_text, summary.rates), "plateau"]
    table = {"": header} | {f" {label}": _cells(row, summary) for label, row in rows.items()}
    shown = slice(0 if known else 1, None if swept else 1)
    widths = [max(map(len, column)) + 1 for column in zip(*table.values(), strict=True)]
    names = max(map(len, table))
    lines = [f"{spaced(summary.metric)}, mean of {summary.seeds} seeds"]
    for name, cells in table.items():
        mark = "*" if name and name[1:] in summary.widest else " "
        columns = map(str.rjust, cells[shown], widths[shown])
        lines.append(f"{mark}{name.ljust(names)}{''.join(columns)}".rstrip())
    notes = ["untouched: at the rate published as its default"] if known else []
    notes += ["tuned: at the best of its rates"] if swept else []
    if any(text.startswith("@") for row in rows.values() for text in row.texts):
        notes.append("@N: stopped after N steps")
    if swept:
        notes.append(f"plateau: decades of rates {summary.within}")
        notes += ["*: widest"] if summary.widest else []
    for paragraph in (f"{'; '.join(notes)}.", " ".join(verdict(summary))):
        lines += textwrap.wrap(paragraph, 100)
    return "\n".join(lines)


def verdict(summary: Summary) -> list[str]:
    """What optimizers with nothing to choose gave, the best of the others, the widest plateau."""
    rows, sentences = summary.rows, []
    flat = [f"{label} {row.texts[0]}" for label, row in rows.items() if row.flat]
    untouched, tuned = (_best(summary, place) for place in ("untouched", "tuned"))
    if flat:
        sentences.append(f"Nothing chosen: {', '.join(flat)}.")
    if tuned:
        before = f" untouched: {untouched[1]};" if untouched else ""
        others = " of the others" if flat else ""
        sentences.append(f"Best{others}{before} tuned: {tuned[1]}, at {rate_text(tuned[2])}.")
    if summary.widest and (plateau := rows[summary.widest[0]].plateau):
        names = ", ".join(label or "this sweep" for label in summary.widest)
        wide = f"{plateau.value:.1f} decades of rates {summary.within}"
        sentences.append(f"Widest plateau: {names}, {wide}.")
    return sentences


def _cells(row: Row, summary: Summary) -> list[str]:
    """The texts of a row, under those of the header."""
    untouched = "--" if row.untouched is None else row.texts[row.untouched]
    if row.flat:
        return [untouched, "nothing to tune", *[""] * len(row.texts), ""]
    best = row.tuned
    tuned = "--" if best is None else f"{row.texts[best]} at {rate_text(summary.rates[best])}"
    plateau = "--" if row.plateau is None else f"{row.plateau.value:.1f}"
    return [untouched, tuned, *row.texts, plateau]


def _best(summary: Summary, place: str) -> tuple[float, str, float] | None:
    """The row that is best at its place: its loss, its name with the text, and the rate."""
    sign, found = loss_sign(summary.mode), []
    for label, row in summary.rows.items():
        i = getattr(row, place)
        if not row.flat and i is not None and np.isfinite(row.means[i]):
            name = f"{label or 'this sweep'} {row.texts[i]}"
            found.append((sign * row.means[i], name, float(summary.rates[i])))
    return min(found, default=None)
