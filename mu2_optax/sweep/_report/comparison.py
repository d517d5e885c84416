"""Two runs on one page: the same axes, which is better, and what else differed."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from math import isfinite
from pathlib import Path

import numpy as np

from mu2_optax.sweep._analysis.metrics import (
    Mode,
    all_rates,
    in_words,
    loss_sign,
    metric_mode,
    shared_metrics,
)
from mu2_optax.sweep._analysis.styles import make_looks, styles_of_two_runs
from mu2_optax.sweep._analysis.summary import Row, Summary, number_text, rate_text, summarize
from mu2_optax.sweep._report.figures import curves, main_figure
from mu2_optax.sweep._report.page import checked, write_page
from mu2_optax.sweep._report.tables import (
    best_settings,
    cell,
    count,
    distinct,
    html_table,
    row_head,
    run_facts,
)
from mu2_optax.sweep._results.result import Results, SweepResult, by_label

Pairs = Mapping[str, tuple[Row | None, Row | None]]  # by label; None in a run without it
_COLUMNS = (
    *("best, A", "best, B", "B − A"),
    *("rate, A", "rate, B"),
    *("plateau, A", "plateau, B", "B − A"),
)


def write_comparison(
    first: Results,
    second: Results,
    metric: str,
    path: str | Path,
    *,
    names: tuple[str, str] = ("the first run", "the second run"),
    mode: Mode | None = None,
    title: str | None = None,
    initial: float | str | None = None,
    tolerance: float | None = None,
) -> None:
    """Writes two runs as one HTML page: on the same axes, with a table of their differences.

    The runs are called A and B. Lines of one label have one colour, solid in A and dashed in B. The
    page also says what was different about the runs: rates, seeds, context, versions, machine.

    Args:
      first: Run A: a result, a list of results with distinct labels, or a dict of them by label.
      second: Run B.
      metric: The metric to compare, which both have.
      path: A file name that ends in ``.html``.
      names: What the runs are, such as their folders.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: The page's title; "Two sweeps" if None.
      initial: The metric before training, as in `write_report`.
      tolerance: How far from the best of both runs a plateau goes, as in `write_report`.

    Examples:
      >>> from mu2_optax.sweep import load_results, write_comparison
      >>> old, new = load_results("old.json"), load_results("new.json")  # doctest: +SKIP
      >>> write_comparison(old, new, "loss", "compare.html")  # doctest: +SKIP
    """
    runs = by_label(first), by_label(second)
    labels = list(dict.fromkeys([*runs[0], *runs[1]]))
    lines = [(label, run) for label in labels for run in (0, 1)]
    given = {_named(label, run): runs[run][label] for label, run in lines if label in runs[run]}
    both = checked(given, path)
    for results, which in zip(runs, ("first", "second"), strict=True):
        known = shared_metrics(results)
        if metric not in known:
            raise ValueError(
                f"`metric` must be one that both runs have, got {metric!r}; `{which}` has {known}."
            )
    styles = styles_of_two_runs(labels)
    looks = make_looks({_named(label, run): styles[run][label] for label, run in lines})
    summary = summarize(both, metric, metric_mode(metric, mode), initial, tolerance)
    rows = summary.rows
    pairs = {label: (rows.get(_named(label, 0)), rows.get(_named(label, 1))) for label in labels}
    parts = [
        main_figure(both, looks, summary),
        _differences(pairs, summary),
        _run_differences(runs),
        best_settings(both, looks, summary),
        *curves(both, looks, summary),
    ]
    facts = [f"<b>{run}</b>: {escape(name)}" for run, name in zip("AB", names, strict=True)]
    write_page(path, title or "Two sweeps", facts, _headline(pairs, summary), parts, looks)


def _named(label: str, run: int) -> str:
    return f"{label or 'sweep'} · {'AB'[run]}"


def _headline(pairs: Pairs, summary: Summary) -> str:
    """How often the second run is ahead."""
    sign = loss_sign(summary.mode)
    gains = [sign * (a.best - b.best) for a, b in pairs.values() if a and b]
    if not gains:
        return "No optimizer is in both runs."
    return (
        f"{count(len(gains), 'optimizer')} in both runs. By the best "
        f"{escape(in_words(summary.metric))}, B is ahead on {sum(gain > 0 for gain in gains)}, "
        f"behind on {sum(gain < 0 for gain in gains)}, and level on {gains.count(0)}."
    )


def _differences(pairs: Pairs, summary: Summary) -> str:
    """The best value, the best rate and the plateau of each label in both runs."""
    name, rows = escape(in_words(summary.metric)), []
    for label, pair in pairs.items():
        values = [row.best if row else np.nan for row in pair]
        rates = [_best_rate(row, summary) for row in pair]
        moved = rates[0] != rates[1] and "--" not in rates
        widths = [row.plateau.value if row and row.plateau else np.nan for row in pair]
        cells = [
            *(cell(number_text(value) if isfinite(value) else "--") for value in values),
            _change(values[1] - values[0], -loss_sign(summary.mode), number_text),
            cell(rates[0]),
            cell(rates[1], "near" if moved else ""),
            *(cell(f"{width:.1f}" if isfinite(width) else "--") for width in widths),
            _change(widths[1] - widths[0], 1.0, "{:.1f}".format),
        ]
        rows.append((row_head(escape(label) or name), cells))
    return (
        f"<h2>What is different</h2>{html_table(_COLUMNS, rows)}"
        f'<p class="facts">Best {name}, mean over seeds, and the learning rate '
        "that gives it; the plateau in decades of learning rates "
        f"{summary.within('the best of both runs')}. "
        '<span class="near">Shaded</span>: better in B, or another rate; '
        '<span class="lost">red</span>: worse in B; --: not in this run, not finished or no '
        "learning rate.</p>"
    )


def _best_rate(row: Row | None, summary: Summary) -> str:
    if row and row.flat:
        return "none"
    return "--" if row is None or row.tuned is None else rate_text(summary.rates[row.tuned])


def _change(change: float, sign: float, text: Callable[[float], str]) -> str:
    """A difference with its sign; ``sign`` is that of a change for the better."""
    if not isfinite(change) or change == 0:
        return cell("0" if change == 0 else "--", "none")
    kind = "near" if sign * change > 0 else "lost"
    return cell(f"{'+' if change > 0 else '−'}{text(abs(change))}", kind)


def _run_differences(runs: Iterable[Mapping[str, SweepResult]]) -> str:
    """What else differs: a row for each fact, with its value in each run."""
    first, second = (_facts(run) for run in runs)
    names = dict.fromkeys([*first, *second])
    same = [name for name in names if first.get(name) == second.get(name)]
    rows = [
        (row_head(escape(name)), [cell(escape(facts.get(name, "--"))) for facts in (first, second)])
        for name in names
        if name not in same
    ]
    if not rows:
        return "<h2>How the runs differ</h2><p>In nothing that was recorded.</p>"
    text = f'<p class="facts">The same in both: {escape(", ".join(same))}.</p>' if same else ""
    return f"<h2>How the runs differ</h2>{html_table(['A', 'B'], rows, 'text')}{text}"


def _facts(run: Mapping[str, SweepResult]) -> dict[str, str]:
    """What was recorded of a run, with a fact for each value of its context."""
    facts = run_facts(run.values())
    facts.pop("context", None)
    context: dict[str, list[str]] = {}
    for result in run.values():
        for name, value in (result.info.get("context") or {}).items():
            context.setdefault(name, []).append(str(value))
    return {
        "optimizers": ", ".join(run),
        "learning rates": ", ".join(map(rate_text, all_rates(run.values()))),
        "seeds": ", ".join(map(str, sorted({int(s) for r in run.values() for s in r.seeds}))),
        **{name: distinct(values) for name, values in context.items()},
        **facts,
    }
