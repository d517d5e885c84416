"""The table that is printed, and its answer in a sentence."""

import textwrap
from collections.abc import Mapping
from math import isfinite

from mu2_optax.sweep._analysis.metrics import Mode, in_words, loss_sign
from mu2_optax.sweep._analysis.summary import Row, Summary, rate_text, summarize
from mu2_optax.sweep._results.result import SweepResult


def text_table(
    results: Mapping[str, SweepResult],
    metric: str,
    mode: Mode,
    initial: str | None = None,
    tolerance: float | None = None,
) -> str:
    """A row per optimizer: the metric untouched, tuned and at each rate, and the plateau's width.

    The plateau is measured against the best value in the whole table, with the tolerance of
    `summarize`. The rows with the widest plateau are marked with an asterisk.
    """
    summary = summarize(results, metric, mode, initial, tolerance)
    swept = not all(row.flat for row in summary.rows.values())
    known = any(row.untouched is not None for row in summary.rows.values())
    header = ["untouched", "tuned", *map(rate_text, summary.rates), "plateau"]
    rows = {label: _cells(row, summary) for label, row in summary.rows.items()}
    shown = slice(0 if known else 1, None if swept else 1)
    widths = [max(map(len, column)) + 1 for column in zip(header, *rows.values(), strict=True)]
    names = max(map(len, rows))

    def line(mark: str, label: str, cells: list[str]) -> str:
        columns = map(str.rjust, cells[shown], widths[shown])
        return f"{mark} {label.ljust(names)}{''.join(columns)}".rstrip()

    lines = [f"{in_words(metric)}, mean of {len(next(iter(results.values())).seeds)} seeds"]
    lines.append(line(" ", "", header))
    for label, cells in rows.items():
        lines.append(line("*" if label in summary.widest else " ", label, cells))
    notes = ["untouched: at the rate published as its default"] if known else []
    notes += ["tuned: at the best of its rates"] if swept else []
    if any(row.stopped.any() for row in summary.rows.values()):
        notes.append("@N: stopped after N steps")
    lines.append(f"{'; '.join(notes)}.")
    if swept:
        within = summary.within("the table's best")
        widest = "; *: widest" if summary.widest else ""
        lines.append(f"plateau: decades of rates {within}{widest}.")
    return "\n".join([*lines, *_answer(summary)])


def _answer(summary: Summary) -> list[str]:
    """In a sentence: what optimizers with nothing to choose gave, and the best of the others.

    No sentence if every row has a learning rate, or none has.
    """
    flat = [f"{label} {row.texts[0]}" for label, row in summary.rows.items() if row.flat]
    others = {label: row for label, row in summary.rows.items() if not row.flat}
    tuned = _best({label: row.tuned for label, row in others.items()}, summary)
    untouched = _best({label: row.untouched for label, row in others.items()}, summary)
    if not flat or tuned is None:
        return []
    label, place = tuned
    best = f"tuned: {label} {others[label].texts[place]}, at {rate_text(summary.rates[place])}"
    if untouched is not None:
        label, place = untouched
        best = f"untouched: {label} {others[label].texts[place]}; {best}"
    return textwrap.wrap(f"Nothing chosen: {', '.join(flat)}. Best of the others {best}.", 100)


def _best(places: Mapping[str, int | None], summary: Summary) -> tuple[str, int] | None:
    """The label that is best at its place, and that place; None if no mean there is finite."""
    sign = loss_sign(summary.mode)
    losses = [
        (sign * summary.rows[label].means[place], label, place)
        for label, place in places.items()
        if place is not None and isfinite(summary.rows[label].means[place])
    ]
    return min(losses)[1:] if losses else None


def _cells(row: Row, summary: Summary) -> list[str]:
    """The texts of a row, under those of the header."""
    untouched = "--" if row.untouched is None else row.texts[row.untouched]
    if row.flat:
        return [untouched, "nothing to tune", *[""] * len(row.texts), ""]
    best = row.tuned
    tuned = "--" if best is None else f"{row.texts[best]} at {rate_text(summary.rates[best])}"
    plateau = "--" if row.plateau is None else f"{row.plateau.value:.1f}"
    return [untouched, tuned, *row.texts, plateau]
