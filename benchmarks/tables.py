"""The tables of the README and the docs, made from the committed results.

    python -m benchmarks.tables                # README.md and docs/*.md
    python -m benchmarks.tables FILE.md ...

A table stands between two comments, the first of which says what it shows:

    <!-- table benchmarks/results/convex_mnist/results.csv accuracy projection=per_tensor -->
    <!-- end of table -->

``accuracy`` is the mean test accuracy over the seeds, a row per optimizer and a column per learning
rate; ``measures`` has plateau width, stability ratio, learning-rate sensitivity and best accuracy,
with ``budget=steps`` or ``budget=evaluations``. Both select rows by ``projection``.
"""

import argparse
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import measures
import numpy as np
import records
from optimizers import TITLES
from records import Row

ROOT = records.RESULTS.parents[1]
MARKED = re.compile(
    r"(?P<head><!-- table (?P<csv>\S+) (?P<kind>\w+)(?P<options>( \w+=\w+)*) -->\n)"
    r"(?P<body>.*?)(?P<tail><!-- end of table -->)",
    re.DOTALL,
)


def accuracy_table(rows: Sequence[Row]) -> str:
    """Mean test accuracies; the best of each rate in bold, – where a seed diverged."""
    sweeps = records.as_sweeps(rows, TITLES)
    rates = next(iter(sweeps.values())).learning_rates
    means = {name: result.final("test_accuracy").mean(axis=1) for name, result in sweeps.items()}
    best = np.nanmax(np.round(list(means.values()), 3), axis=0)

    def cell(value: float, most: float) -> str:
        if not np.isfinite(value):
            return "–"
        text = f"{value:.3f}".lstrip("0")
        return f"**{text}**" if round(value, 3) == most else text

    head = ["", *(f"{rate:g}" for rate in rates)]
    body = [[name, *map(cell, values, best)] for name, values in means.items()]
    return _markdown(head, body)


def measures_table(rows: Sequence[Row], budget: str) -> str:
    """The measures of robustness, each with its interval over the seeds."""
    sweeps = records.as_sweeps(measures.with_budget(rows, budget), TITLES)
    body = []
    for name, result in sweeps.items():
        found = measures.robustness(result)
        body.append(
            [
                name,
                _interval(found.best_accuracy, "{:.3f}".format),
                _interval(found.plateau_width, "{:.0f}".format),
                _interval(found.stability_ratio, _power),
                _interval(found.sensitivity, "{:.2f}".format),
            ]
        )
    head = ["", "best accuracy", "plateau (decades)", "stability ratio", "sensitivity (nats)"]
    return _markdown(head, body)


def render(text: str) -> str:
    """A page with its tables made anew."""

    def replaced(match: re.Match[str]) -> str:
        options = dict(option.split("=") for option in match["options"].split())
        budget = options.pop("budget", None)
        rows = records.select(records.read_rows(ROOT / match["csv"]), **options)
        if not rows:
            raise ValueError(f"{match['csv']} has no rows with {options}.")
        if match["kind"] == "accuracy":
            table = accuracy_table(rows)
        elif match["kind"] == "measures" and budget in measures.BUDGETS:
            table = measures_table(rows, budget)
        else:
            raise ValueError(f"no such table: {match['head'].strip()}")
        return match["head"] + table + match["tail"]

    return MARKED.sub(replaced, text)


def _interval(measure: measures.Measure, shown: Callable[[float], str]) -> str:
    value, low, high = map(shown, measure)
    return value if low == high == value else f"{value} [{low}, {high}]"


def _power(value: float) -> str:
    """A large power of ten as one; any other number as it is."""
    power = math.log10(value) if value > 0 else math.nan
    if not power.is_integer() or power < 3:
        return f"{value:g}"
    return f"10{str(int(power)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main() -> None:
    """Writes the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", type=Path, nargs="*", help="default: README.md and docs/*.md")
    args = parser.parse_args()
    for page in args.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if not page.is_file():
            parser.error(f"there is no file {page}")
        text = page.read_text(encoding="utf-8")
        page.write_text(render(text), encoding="utf-8")
        print(f"{page.name}: {len(MARKED.findall(text))} tables")


if __name__ == "__main__":
    main()
