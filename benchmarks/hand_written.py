"""Tables of the documents that are written by hand: is each of their figures in the results?

``benchmarks.claims`` asks. A figure is there if a number of the CSV file, or a mean or a deviation
over its seeds, rounds to what the page shows.
"""

import ast
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.files import read_rows

# The page, a part of the head of the table on it, and the file in `benchmarks/results`.
TABLES = (
    ("cheaper_steps", "| problem, rate | share |", "theory/part"),
    ("cheaper_steps", "| rate | hint | gradients |", "theory/extra_hint_in_parts"),
    ("cheaper_steps", "| momentum | dtype | | bytes", "lean/results"),
    ("cheaper_steps", "| move | β = 1/t, stored", "lean/moves"),
    ("error_bar", "| estimated ÷ true at step |", "calibration/results"),
    ("error_bar", "| batches, at step |", "theory/dependent_batches"),
    ("guarantees", "| tolerance | μ²-SGD: runs", "theory/stopping"),
    ("guarantees", "| tolerance | runs that stopped", "theory/stopping"),
    ("guarantees", "| T | batch size |", "theory/dynamic_batches"),
    ("guarantees", "| operator | corrected", "theory/operators"),
    ("guarantees", "| rate | hint | $t", "theory/extra_hint"),
    ("guarantees", "| hard quadratic | theory |", "theory/slopes"),
    ("guarantees", "| T | SGD: measured", "theory/stability"),
    ("no_learning_rate", "| | radius 1: train loss", "theory/no_learning_rate"),
    ("training", "| momentum of the statistics |", "batchnorm_at_the_average/results"),
    ("training", "| | test accuracy, `fixed_momentum()`", "mixed_precision/results"),
)
# What a table says that was not measured: steps, rates and sizes that were chosen, and theory.
CHOSEN = {
    "batchnorm_at_the_average/results": {"epochs"},
    "theory/dynamic_batches": {"batch size"},
    "theory/slopes": {"theory"},
    "theory/stability": {"grows like", "theory, in the limit"},
}
FIGURE = re.compile(r"(?<![\w/^{.,−-])[−-]?(?:\d[\d,]*)?\.?\d+(?:e-?\d+)?(?![\w/^}])")


def absent(docs: Path, results: Path) -> list[str]:
    """A line for each table with figures that its file does not have."""
    found = []
    for page, head, name in TABLES:
        known = np.array(sorted(set(numbers(results / f"{name}.csv"))))
        shown = list(figures((docs / f"{page}.md").read_text(encoding="utf-8"), head, name))
        assert shown, (page, head)
        missing = [text for text in shown if not _is_known(text, known)]
        if missing:
            found.append(f"{page}.md, {head!r}: {', '.join(missing)} not in {name}.csv")
    return found


def figures(text: str, head: str, name: str) -> Iterator[str]:
    """The figures of a table, without its first column and without what was chosen."""
    lines = [line.strip() for line in text.splitlines()]
    start = next(i for i, line in enumerate(lines) if line.startswith(head))
    columns = _cells(lines[start])
    chosen = CHOSEN.get(name, set())
    for line in itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :]):
        first, *cells = _cells(line)
        if first.strip() in chosen:
            continue
        for column, cell in zip(columns[1:], cells, strict=True):
            if column.strip() not in chosen:
                yield from FIGURE.findall(re.sub(r"\*\*|at \S+\)|[\d.]+/\(|10[⁻⁰-⁹]+", " ", cell))


def _cells(line: str) -> list[str]:
    """The cells of a line; an escaped bar is a part of a cell."""
    return re.split(r"(?<!\\)\|", line)[1:-1]


def numbers(file: Path) -> Iterator[float]:
    """The numbers of a file; means and deviations over the seeds where it has a row for each."""
    rows = read_rows(file)
    if "seed" in rows[0]:
        keys = [key for key in rows[0] if key not in ("seed", "learning_rate", "optimizer")]
        for _, group in itertools.groupby(rows, key=lambda row: row["optimizer"]):
            own = list(group)
            for key in keys:
                values = np.array([ast.literal_eval(row[key]) for row in own], float)
                for found in (values.mean(axis=0), values.std(axis=0), values.std(axis=0, ddof=1)):
                    yield from np.ravel(found)
    for row in rows:
        yield from _parsed(row.values())


def _parsed(texts: Iterable[str]) -> Iterator[float]:
    for text in texts:
        try:
            value = float(text)
        except ValueError:
            continue
        if math.isfinite(value):
            yield from (value, 100 * value)  # shares are shown in percents


def _is_known(text: str, known: np.ndarray) -> bool:
    """Whether a number rounds to a figure."""
    plain = text.replace("−", "-").replace(",", "")
    mantissa, _, exponent = plain.partition("e")
    digits = len(mantissa.partition(".")[2])
    unit = 10.0 ** (int(exponent or 0) - digits)
    if digits == 0 and not exponent and len(plain) > 3:  # 92,700: three digits of a large number
        unit = 10.0 ** (len(plain) - 3)
    return bool(np.any(np.abs(known - float(plain)) <= 0.5001 * unit))
