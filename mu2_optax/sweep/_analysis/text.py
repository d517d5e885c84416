"""The table that is printed, and its answer in a sentence."""

import textwrap
from collections.abc import Mapping

from mu2_optax.sweep._analysis.metrics import Mode, in_words
from mu2_optax.sweep._analysis.summary import Row, Summary, rate_text, summarize
from mu2_optax.sweep._results.result import SweepResult

_NOTHING = "nothing to tune"


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
    rows = {label: _cells(row, summary) for label, row in summary.rows.items()}
    swept = not all(row.flat for row in summary.rows.values())
    known = any(row.untouched is not None for row in summary.rows.values())
    header = ["untouched", "tuned", *map(rate_text, summary.rates), "plateau"]
    shown = [known, swept, *([swept] * len(summary.rates)), swept]
    columns = [
        max(len(text), *(len(cells[i]) for cells in rows.values())) + 1
        for i, text in enumerate(header)
    ]
    table = {"": header, **rows}
    names = max(len(label) for label in results) + 2
    lines = [f"{in_words(metric)}, mean of {len(next(iter(results.values())).seeds)} seeds"]
    for label, cells in table.items():
        mark = "* " if label in summary.widest else "  "
        texts = zip(cells, columns, shown, strict=True)
        body = "".join(cell.rjust(width) for cell, width, here in texts if here)
        lines.append(f"{mark}{label.ljust(names - 2)}{body}".rstrip())
    notes = ["untouched: at the rate published as its default"] if known else []
    notes += ["tuned: at the best of its rates"] if swept else []
    if any(row.stopped.any() for row in summary.rows.values()):
        notes.append("@N: stopped after N steps")
    lines.append(f"{'; '.join(notes)}.")
    rule = f" ({summary.rule})" if summary.rule else ""
    widest = "; *: widest" if summary.widest else ""
    if swept:
        within = f"within {summary.reach} of the table's best{rule}"
        lines.append(f"plateau: decades of rates {within}{widest}.")
    return "\n".join([*lines, *answer(summary)])


def answer(summary: Summary) -> list[str]:
    """In a sentence: what optimizers with nothing to choose gave, and the best of the others.

    No sentence if every row has a learning rate, or none has.
    """
    flat = {label: row for label, row in summary.rows.items() if row.flat}
    others = {label: row for label, row in summary.rows.items() if not row.flat}
    gave = [f"{label} {row.texts()[0]}" for label, row in flat.items()]
    tuned = _best({label: (row, row.tuned) for label, row in others.items()}, summary.sign)
    if not gave or tuned is None:
        return []
    text = f"Nothing chosen: {', '.join(gave)}. "
    untouched = _best({label: (row, row.untouched) for label, row in others.items()}, summary.sign)
    if untouched is not None:
        label, place = untouched
        text += f"Best of the others untouched: {label} {others[label].texts()[place]}; tuned: "
    else:
        text += "Best of the others tuned: "
    label, place = tuned
    rate = rate_text(summary.rates[place])
    return textwrap.wrap(f"{text}{label} {others[label].texts()[place]}, at {rate}.", 100)


def _best(places: Mapping[str, tuple[Row, int | None]], sign: float) -> tuple[str, int] | None:
    """The label and the place with the best mean; None if there is none."""
    found = [
        (sign * row.means[place], label, place)
        for label, (row, place) in places.items()
        if place is not None and abs(row.means[place]) < float("inf")
    ]
    return min(found)[1:] if found else None


def _cells(row: Row, summary: Summary) -> list[str]:
    values = row.texts()
    untouched = "--" if row.untouched is None else values[row.untouched]
    if row.flat:
        return [untouched, _NOTHING, *[""] * len(values), ""]
    best = row.tuned
    tuned = "--" if best is None else f"{values[best]} at {rate_text(summary.rates[best])}"
    plateau = "--" if row.plateau is None else f"{row.plateau.value:.1f}"
    return [untouched, tuned, *values, plateau]
