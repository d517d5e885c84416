"""The page: what is on it, and the document around it."""

from collections.abc import Iterable, Mapping
from html import escape
from importlib.resources import files
from math import isfinite
from pathlib import Path

from mu2_optax.sweep._analysis.metrics import (
    Mode,
    check_rates_alone,
    in_words,
    metric_mode,
    over_rates,
)
from mu2_optax.sweep._analysis.styles import Looks, make_looks, style_sheet, styles
from mu2_optax.sweep._analysis.summary import Summary, number_text, rate_text, summarize
from mu2_optax.sweep._report.figures import curves, main_figure, other_metrics
from mu2_optax.sweep._report.tables import (
    best_settings,
    count,
    divergence,
    history,
    measure_definitions,
    run_facts,
    table,
)
from mu2_optax.sweep._results.disk import write_atomically
from mu2_optax.sweep._results.result import Results, SweepResult, by_label


def write_report(
    results: Results,
    metric: str,
    path: str | Path,
    *,
    mode: Mode | None = None,
    title: str | None = None,
    command: str | None = None,
    initial: float | str | None = None,
    tolerance: float | None = None,
) -> None:
    """Writes results as one HTML page that needs no network and no other file.

    It has the picture (point at a value to see its rate and seed; a second chart where lines
    overlap), the best setting of each optimizer as a line of Python, the table, the measures
    with what they mean, curves over steps for each metric that has them, the other metrics, what
    diverged, and how and when it was run. It is dark if the reader's system is, and prints in
    full. A label has the same colour on every page and in every picture.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label, over
        ``learning_rate`` alone.
      metric: The metric of table and picture.
      path: A file name that ends in ``.html``.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: The page's title; "Sweep" if None.
      command: The command that made the results, to be shown; that of ``result.info`` if None.
      initial: The metric before training, for the learning-rate sensitivity: a number, or the name
        of the metric that holds it. If None, the sensitivity is shown if ``metric`` is a curve.
      tolerance: How far from the best a plateau goes, in the metric's unit; if None, 0.02 for what
        is better high and at most 1, and otherwise 5 % of the way from the metric before training
        to the best, or of the best where that is not known.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": learning_rate + 1 / learning_rate}
      >>> result = sweep(train, [0.1, 1.0, 10.0], seeds=2, progress=False)
      >>> write_report(result, "loss", "report.html")  # doctest: +SKIP
    """
    given = by_label(results)
    labelled = checked(given, path)
    summary = summarize(labelled, metric, metric_mode(metric, mode), initial, tolerance)
    looks = make_looks(styles(labelled))
    parts = [
        main_figure(labelled, looks, summary),
        best_settings(labelled, looks, summary),
        table(labelled, looks, summary),
        measure_definitions(summary),
        *curves(labelled, looks, summary),
        other_metrics(labelled, looks, metric),
        divergence(labelled),
        history(labelled, command),
    ]
    facts = [_counts(given, summary)]
    write_page(path, title or "Sweep", facts, _headline(summary), parts, looks)


def checked(results: Mapping[str, SweepResult], path: str | Path) -> dict[str, SweepResult]:
    """The results by label, ready for a page; an error if no page can be made of them there."""
    if Path(path).suffix != ".html":
        raise ValueError(f"`path` must end in .html, got {str(path)!r}.")
    labelled = over_rates(results)
    if not labelled:
        raise ValueError("there is nothing to report: `results` is empty.")
    for result in labelled.values():
        check_rates_alone(result, "a report needs sweeps")
    if not any((result.learning_rates > 0).any() for result in labelled.values()):
        raise ValueError(
            "a report needs a learning rate above 0, got none; its axis is logarithmic."
        )
    return labelled


def write_page(
    path: str | Path,
    title: str,
    facts: Iterable[str],
    headline: str,
    parts: Iterable[str],
    looks: Looks,
) -> None:
    """Writes a page as one file that needs no other, and loads nothing."""
    here = files(__package__)
    style = (here / "page.css").read_text("utf-8") + style_sheet(looks.values())
    script = (here / "page.js").read_text("utf-8")
    lines = "".join(f'<p class="facts">{fact}</p>' for fact in facts)
    header = f'<header><h1>{escape(title)}</h1>{lines}<p class="headline">{headline}</p></header>'
    body = "\n".join(part for part in (header, *parts) if part)
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""
    write_atomically(path, page)


def _counts(results: Mapping[str, SweepResult], summary: Summary) -> str:
    """How much was swept, how much of it failed, and when."""
    finished = sum(int(result.finished.sum()) for result in results.values())
    total = sum(result.finished.size for result in results.values())
    failed = sum(int(result.failed().sum()) for result in results.values())
    diverged = sum(int(result.diverged().sum()) for result in results.values()) - failed
    seeds = len(set().union(*(result.seeds.tolist() for result in results.values())))
    facts = [
        count(len(results), "optimizer"),
        count(len(summary.rates), "learning rate"),
        count(seeds, "seed"),
        f"{finished} cells" if finished == total else f"{finished} of {total} cells finished",
        f"{diverged} diverged",
        *([f"{failed} failed"] if failed else []),
        *filter(None, [run_facts(results.values()).get("date")]),
    ]
    return " · ".join(facts)


def _headline(summary: Summary) -> str:
    """What the table says, in a sentence or two."""
    name = escape(in_words(summary.metric))
    flat = [
        f"<b>{escape(label)}</b>, which has no learning rate, reaches a {name} of "
        f"{number_text(float(row.means[0]))}. "
        for label, row in summary.rows.items()
        if row.flat and isfinite(row.means[0])
    ]
    return "".join(flat) + _plateaus(name, summary)


def _plateaus(name: str, summary: Summary) -> str:
    """How far off the learning rate may be."""
    if not any(row.plateau for row in summary.rows.values()):
        return f"No measures of {name}: they need every cell finished, and rates above 0."
    reach = f"within {summary.tolerance_text} of the best {name}, {number_text(summary.best)}"
    if not summary.widest:
        return f"No two neighbouring learning rates are {reach}: the learning rate decides."
    *others, last = (
        f"<b>{escape(label)}</b>" if label else "This sweep" for label in summary.widest
    )
    plateau = summary.rows[summary.widest[0]].plateau
    assert plateau is not None  # the widest one
    wide = f"{plateau.value:.1f} decades of learning rates"
    if others:
        return f"{', '.join(others)} and {last} have the widest plateaus: {wide} are {reach}."
    has = "has the widest plateau" if len(summary.rows) > 1 else "has a plateau"
    ends = f"from {rate_text(plateau.low)} to {rate_text(plateau.high)}"
    return f"{last} {has}: {wide}, {ends}, are {reach}."
