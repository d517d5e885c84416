"""The table that is printed, and its verdict in sentences."""

import textwrap
from collections.abc import Mapping

import numpy as np

from mu2_optax.sweep._metrics import loss_sign, rate_text, spaced
from mu2_optax.sweep._summary import Row, Summary


def verdict(summary: Summary) -> list[str]:
    """In sentences: what optimizers with nothing to choose gave, the best of the others, plateaus.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": learning_rate}
      >>> result = sweep(train, [1.0, 2.0], seeds=1, progress=False)
      >>> verdict(summarize({"sgd": result}, "loss", "min"))
      ['Best tuned: sgd 1.000, at 1.']
    """
    rows, sentences = summary.rows, []
    flat = [f"{label} {row.texts[0]}" for label, row in rows.items() if row.flat]
    swept = {label: row for label, row in rows.items() if not row.flat}
    tuned = _best({label: row.tuned for label, row in swept.items()}, summary)
    untouched = _best({label: row.untouched for label, row in swept.items()}, summary)
    if flat:
        sentences.append(f"Nothing chosen: {', '.join(flat)}.")
    if tuned is not None:
        text = "Best of the others" if flat else "Best"
        if untouched is not None:
            text += f" untouched: {untouched[0]} {rows[untouched[0]].texts[untouched[1]]};"
        label, i = tuned
        at = rate_text(summary.rates[i])
        sentences.append(f"{text} tuned: {label or 'this sweep'} {rows[label].texts[i]}, at {at}.")
    if summary.widest and (plateau := rows[summary.widest[0]].plateau):
        names = ", ".join(label or "this sweep" for label in summary.widest)
        wide = f"{plateau.value:.1f} decades of rates {summary.within}"
        sentences.append(f"Widest plateau: {names}, {wide}.")
    return sentences


def text_table(summary: Summary) -> str:
    """A row per optimizer: the metric untouched, tuned and at each rate, and the plateau's width.

    The rows with the widest plateau are marked with an asterisk. The verdict follows.
    """
    rows = summary.rows
    swept = not all(row.flat for row in rows.values())
    known = any(row.untouched is not None for row in rows.values())
    header = ["untouched", "tuned", *map(rate_text, summary.rates), "plateau"]
    table = [header, *(_cells(row, summary) for row in rows.values())]
    shown = slice(0 if known else 1, None if swept else 1)
    widths = [max(map(len, column)) + 1 for column in zip(*table, strict=True)]
    names = max(map(len, rows))
    lines = [f"{spaced(summary.metric)}, mean of {summary.seeds} seeds"]
    for label, cells in zip([None, *rows], table, strict=True):
        mark = "*" if label in summary.widest else " "
        columns = map(str.rjust, cells[shown], widths[shown])
        lines.append(f"{mark} {(label or '').ljust(names)}{''.join(columns)}".rstrip())
    notes = ["untouched: at the rate published as its default"] if known else []
    notes += ["tuned: at the best of its rates"] if swept else []
    if any(text.startswith("@") for row in rows.values() for text in row.texts):
        notes.append("@N: stopped after N steps")
    if swept:
        notes.append(f"plateau: decades of rates {summary.within}")
        notes += ["*: widest"] if summary.widest else []
    return "\n".join(
        [
            *lines,
            *textwrap.wrap(f"{'; '.join(notes)}.", 100),
            *textwrap.wrap(" ".join(verdict(summary)), 100),
        ]
    )


def _cells(row: Row, summary: Summary) -> list[str]:
    """The texts of a row, under those of the header."""
    untouched = "--" if row.untouched is None else row.texts[row.untouched]
    if row.flat:
        return [untouched, "nothing to tune", *[""] * len(row.texts), ""]
    best = row.tuned
    tuned = "--" if best is None else f"{row.texts[best]} at {rate_text(summary.rates[best])}"
    plateau = "--" if row.plateau is None else f"{row.plateau.value:.1f}"
    return [untouched, tuned, *row.texts, plateau]


def _best(places: Mapping[str, int | None], summary: Summary) -> tuple[str, int] | None:
    """The label that is best at its place, and that place; None if no mean there is finite."""
    sign, rows = loss_sign(summary.mode), summary.rows
    losses = [
        (sign * rows[label].means[i], label, i)
        for label, i in places.items()
        if i is not None and np.isfinite(rows[label].means[i])
    ]
    return min(losses)[1:] if losses else None
