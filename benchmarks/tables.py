"""The tables of the README and the docs, made from the committed results.

    python -m benchmarks.tables                # README.md, docs/*.md, and the pages beside the data
    python -m benchmarks.tables FILE.md ...
    python -m benchmarks.tables --check        # writes nothing; an error if a page would change

A table stands between two comments, the first of which says what it shows:

    <!-- table benchmarks/results/convex_mnist accuracy projection=per_tensor -->
    <!-- end of table -->

``accuracy`` is the mean test accuracy over the seeds, a row per optimizer and a column per learning
rate; ``measures`` has plateau width, stability ratio, learning-rate sensitivity and best accuracy.
Both select by ``projection``, and by ``budget=steps`` or ``budget=evaluations`` where an optimizer
was run for each.
``self_tuning`` has what ``benchmarks.self_tuning`` found, from the folder of its files; ``show`` is
one of ``TABLES`` of its modules ``rows`` and ``summary``, with the ``side`` and the ``role`` of
those that have one.
``beside_adam`` and ``every_step`` have what ``benchmarks.step_cost`` measured, from its CSV file;
``rows`` is a short CSV file as it is, with three digits of each number; ``clipping`` has what
``benchmarks.clipping`` measured.
"""

import argparse
import functools
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks import costs
from benchmarks.aot import rows as aot
from benchmarks.experiment import Results, load, select
from benchmarks.files import RESULTS, read_rows
from benchmarks.robustness_measures import Measure, robustness, with_budget
from benchmarks.self_tuning import analysis, summary
from benchmarks.self_tuning import rows as self_tuning
from benchmarks.self_tuning.rows import markdown

ROOT = RESULTS.parents[1]
MARKED = re.compile(
    r"(?P<head><!-- table (?P<file>\S+) (?P<kind>\w+)(?P<options>( \w+=\w+)*) -->\n)"
    r"(?P<body>.*?)(?P<tail><!-- end of table -->)",
    re.DOTALL,
)


def accuracy_table(results: Results) -> str:
    """Mean test accuracies; the best of each rate in bold, – where a seed diverged."""
    rates = next(iter(results.values())).learning_rates
    means = {name: result.final("test_accuracy").mean(axis=1) for name, result in results.items()}
    best = np.fmax.reduce(np.round(list(means.values()), 3), axis=0)  # which passes NaN over

    def cell(value: float, most: float) -> str:
        if not np.isfinite(value):
            return "–"
        text = f"{value:.3f}".lstrip("0")
        return f"**{text}**" if round(value, 3) == most else text

    head = ["", *(f"{rate:g}" for rate in rates)]
    body = [[name, *map(cell, values, best)] for name, values in means.items()]
    return markdown(head, body)


def measures_table(results: Results) -> str:
    """The measures of robustness, each with its interval over the seeds."""
    body = []
    for name, result in results.items():
        found = robustness(result)
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
    return markdown(head, body)


def rows_table(file: Path) -> str:
    """A short CSV file, with three digits of each number."""

    def cell(text: str) -> str:
        try:
            value = float(text)
        except ValueError:
            return text
        if math.isnan(value):
            return ""
        return f"{value:,.0f}" if 1000 <= value < 1e6 else f"{value:.3g}"

    rows = read_rows(file)
    return markdown(
        [column.replace("_", " ") for column in rows[0]],
        [[cell(text) for text in row.values()] for row in rows],
    )


def clipping_table(file: Path) -> str:
    """The mean loss over the seeds at each norm, and that of the worst seed."""
    rows = read_rows(file)
    norms = list(dict.fromkeys(row["norm"] for row in rows))
    body = []
    for case in dict.fromkeys((row["task"], row["optimizer"]) for row in rows):
        own = {norm: [] for norm in norms}
        for row in rows:
            if (row["task"], row["optimizer"]) == case:
                own[row["norm"]].append(float(row["test_loss"]))
        cells = [f"{np.mean(losses):.3f} ({max(losses):.3f})" for losses in own.values()]
        body.append([case[0], f"`{case[1]}`", *cells])
    heads = ["not clipped" if norm == "inf" else f"norm {norm}" for norm in norms]
    return markdown(["", "", *heads], body)


def render(text: str) -> str:
    """A page with its tables made anew."""

    def replaced(match: re.Match[str]) -> str:
        options = dict(option.split("=") for option in match["options"].split())
        if match["kind"] not in TABLES:
            raise ValueError(f"no such table: {match['head'].strip()}")
        table = TABLES[match["kind"]](ROOT / match["file"], **options)
        return match["head"] + table + match["tail"]

    return MARKED.sub(replaced, text)


def _of_results(make: Callable[[Results], str]) -> Callable[..., str]:
    """A table of those results in a file that the options choose."""

    def table(folder: Path, budget: str | None = None, **options: str) -> str:
        results = load(folder)
        if budget is None:
            chosen = select(results, **options)
        else:
            chosen = with_budget(results, budget, **options)
        if not chosen:
            raise ValueError(f"{folder} has no results with {options}.")
        return make(chosen)

    return table


def _of_head_and_body(make: Callable[..., self_tuning.Rows]) -> Callable[..., str]:
    """A table of a pair, the head and the rows."""
    return lambda file, **options: markdown(*make(file, **options))


@functools.lru_cache(maxsize=1)  # a page has many tables of the same runs
def _self_tuning_results(folder: Path) -> analysis.Results:
    return analysis.Results(folder)


def self_tuning_table(folder: Path, show: str, **which: str) -> str:
    """A table about the runs of ``benchmarks.self_tuning``."""
    known = self_tuning.TABLES | summary.TABLES
    if show not in known:
        raise ValueError(f"no such table: {show}; choose {', '.join(known)}.")
    return markdown(*known[show](_self_tuning_results(folder), **which))


TABLES: dict[str, Callable[..., str]] = {
    "accuracy": _of_results(accuracy_table),
    "measures": _of_results(measures_table),
    "rows": rows_table,
    "self_tuning": self_tuning_table,
    "clipping": clipping_table,
    "beside_adam": _of_head_and_body(costs.beside_adam_rows),
    "every_step": _of_head_and_body(costs.every_step_rows),
    "aot_streams": _of_head_and_body(aot.streams_rows),
    "aot_compilation": _of_head_and_body(aot.compilation_rows),
    "aot_shapes": _of_head_and_body(aot.shapes_rows),
}


def _interval(measure: Measure, shown: Callable[[float], str]) -> str:
    value, low, high = map(shown, measure)
    return value if low == high == value else f"{value} [{low}, {high}]"


def _power(value: float) -> str:
    """A large power of ten as one; any other number as it is."""
    power = math.log10(value) if value > 0 else math.nan
    if not power.is_integer() or power < 3:
        return f"{value:g}"
    return f"10{str(int(power)).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def main() -> None:
    """Writes the tables, or checks them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", type=Path, nargs="*", help="default: all that have tables")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    args = parser.parse_args()
    old = []
    beside_data = sorted(RESULTS.rglob("README.md"))
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *beside_data]
    for page in args.pages or pages:
        if not page.is_file():
            parser.error(f"there is no file {page}")
        text = page.read_text(encoding="utf-8")
        if not args.pages and not MARKED.search(text):
            continue
        rendered = render(text)
        if not args.check:
            page.write_text(rendered, encoding="utf-8")
        elif rendered != text:
            old.append(str(page))
        print(f"{page}: {len(MARKED.findall(text))} tables")
    if old:
        sys.exit(
            f"other results than the files': {', '.join(old)}; run python -m benchmarks.tables"
        )


if __name__ == "__main__":
    main()
