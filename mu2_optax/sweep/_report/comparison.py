"""Two runs on one page: the same axes, which is better, and what else differed."""

from collections.abc import Mapping
from html import escape
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from mu2_optax.sweep._analysis.metrics import Mode, in_words, loss_sign, metric_mode, shared_metrics
from mu2_optax.sweep._analysis.styles import make_looks, of_two_runs
from mu2_optax.sweep._analysis.summary import Summary, number_text, rate_text, summarize
from mu2_optax.sweep._report.figures import curves, main_figure
from mu2_optax.sweep._report.page import checked, document
from mu2_optax.sweep._report.tables import best_settings, count, run_facts, wide_table
from mu2_optax.sweep._results.disk import write_atomically
from mu2_optax.sweep._results.result import Results, SweepResult, by_label

Runs = tuple[dict[str, SweepResult], dict[str, SweepResult]]
_COLUMNS = (
    "best, A",
    "best, B",
    "B − A",
    "rate, A",
    "rate, B",
    "plateau, A",
    "plateau, B",
    "B − A",
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
    if Path(path).suffix != ".html":
        raise ValueError(f"`path` must end in .html, got {str(path)!r}.")
    runs = by_label(first), by_label(second)
    for run, which in zip(runs, ("first", "second"), strict=True):
        known = shared_metrics(run)
        if metric not in known:
            raise ValueError(
                f"`metric` must be one that both runs have, got {metric!r}; `{which}` has {known}."
            )
    both = checked(
        {_named(label, run): result for run in (0, 1) for label, result in runs[run].items()}
    )
    labels = list(dict.fromkeys([*runs[0], *runs[1]]))
    both = {name: both[name] for label in labels for run in (0, 1)
            if (name := _named(label, run)) in both}  # fmt: skip
    styles = of_two_runs(labels)
    looks = make_looks(
        {_named(label, run): styles[run][label] for label in labels for run in (0, 1)}
    )
    summary = summarize(both, metric, metric_mode(metric, mode), initial, tolerance)
    body = [
        _header(runs, summary, names, title or "Two sweeps"),
        main_figure(both, looks, summary),
        _differences(labels, summary),
        _circumstances(runs),
        best_settings(both, looks, summary),
        *curves(both, looks, summary),
    ]
    page = document(title or "Two sweeps", "\n".join(part for part in body if part), looks)
    write_atomically(path, page)


def _named(label: str, run: int) -> str:
    return f"{label or 'sweep'} · {'AB'[run]}"


def _header(runs: Runs, summary: Summary, names: tuple[str, str], title: str) -> str:
    shared = [label for label in runs[0] if label in runs[1]]
    pairs = [[_best(summary, _named(label, run)) for run in (0, 1)] for label in shared]
    gains = [loss_sign(summary.mode) * (a - b) for a, b in pairs if isfinite(a - b)]
    judged = [sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)]
    name = escape(in_words(summary.metric))
    told = (
        f"{count(len(shared), 'optimizer')} in both runs. By the best {name}, "
        f"B is ahead with {judged[0]}, behind with {judged[1]}, and the same with "
        f"{len(gains) - sum(judged)}."
        if shared
        else "No optimizer is in both runs."
    )
    lines = "".join(
        f'<p class="facts"><b>{letter}</b>: {escape(name)}</p>'
        for letter, name in zip("AB", names, strict=True)
    )
    return f'<header><h1>{escape(title)}</h1>{lines}<p class="headline">{told}</p></header>'


def _best(summary: Summary, label: str) -> float:
    """The best mean of a row; NaN if there is none."""
    row = summary.rows.get(label)
    return float(row.means[row.tuned]) if row and row.tuned is not None else np.nan


def _differences(labels: list[str], summary: Summary) -> str:
    """The best value, the best rate and the plateau of each label in both runs."""
    name, rows = escape(in_words(summary.metric)), []
    for label in labels:
        pair = [summary.rows.get(_named(label, run)) for run in (0, 1)]
        values = [_best(summary, _named(label, run)) for run in (0, 1)]
        rates = [_best_rate(summary, _named(label, run)) for run in (0, 1)]
        widths = [row.plateau.value if row and row.plateau else np.nan for row in pair]
        cells = [
            *(f"<td>{_text(value)}</td>" for value in values),
            _change(values[1] - values[0], -loss_sign(summary.mode), number_text),
            f"<td>{rates[0]}</td>",
            f'<td class="{"near" if _moved(*rates) else ""}">{rates[1]}</td>',
            *(f"<td>{_text(width, '{:.1f}'.format)}</td>" for width in widths),
            _change(widths[1] - widths[0], 1.0, "{:.1f}".format),
        ]
        rows.append((f'<tr><th scope="row">{escape(label) or name}</th>', cells))
    rule = f" ({summary.rule})" if summary.rule else ""
    return (
        f"<h2>What is different</h2>{wide_table(_COLUMNS, rows)}"
        f'<p class="facts">Best {name}, mean over seeds, and the learning rate '
        "that gives it; the plateau in decades of learning rates within "
        f"{summary.reach} of the best of both runs{rule}. "
        '<span class="near">Shaded</span>: better in B, or another rate; '
        '<span class="lost">red</span>: worse in B; --: not in this run, not finished or no '
        "learning rate.</p>"
    )


def _best_rate(summary: Summary, label: str) -> str:
    row, rate = summary.rows.get(label), summary.best_rates.get(label)
    return "none" if row and row.flat else "--" if rate is None else rate_text(rate)


def _moved(first: str, second: str) -> bool:
    return first != second and "--" not in (first, second)


def _text(value: float, text: Any = number_text) -> str:
    return text(value) if isfinite(value) else "--"


def _change(change: float, sign: float, text: Any) -> str:
    """A difference with its sign, and whether it is for the better."""
    if not isfinite(change):
        return '<td class="none">--</td>'
    if change == 0:
        return '<td class="none">0</td>'
    kind = "near" if sign * change > 0 else "lost"
    return f'<td class="{kind}">{"+" if change > 0 else "−"}{text(abs(change))}</td>'


def _circumstances(runs: Runs) -> str:
    """What else differs: a row for each fact, with its value in each run."""
    facts = [_facts(run) for run in runs]
    names = dict.fromkeys([*facts[0], *facts[1]])
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f"<td>{escape(own.get(name, '--'))}</td>" for own in facts)
        + "</tr>"
        for name in names
        if facts[0].get(name) != facts[1].get(name)
    )
    if not rows:
        return "<h2>How the runs differ</h2><p>In nothing that was recorded.</p>"
    same = [name for name in names if facts[0].get(name) == facts[1].get(name)]
    told = f'<p class="facts">The same in both: {escape(", ".join(same))}.</p>' if same else ""
    return (
        '<h2>How the runs differ</h2><div class="scroll"><table class="text"><thead><tr><th></th>'
        f'<th scope="col">A</th><th scope="col">B</th></tr></thead><tbody>{rows}</tbody></table>'
        f"</div>{told}"
    )


def _facts(run: Mapping[str, SweepResult]) -> dict[str, str]:
    """What was recorded of a run, with a fact for each value of its context."""
    facts = run_facts(run.values())
    facts.pop("context", None)
    swept = [result.axes["learning_rate"] for result in run.values() if result.axes]
    rates = np.unique(np.concatenate(swept)).tolist() if swept else []
    context: dict[str, list[str]] = {}
    for result in run.values():
        for name, value in (result.info.get("context") or {}).items():
            context.setdefault(name, []).append(str(value))
    return {
        "optimizers": ", ".join(run),
        "learning rates": ", ".join(map(rate_text, rates)),
        "seeds": ", ".join(map(str, sorted({int(s) for r in run.values() for s in r.seeds}))),
        **{name: "; ".join(dict.fromkeys(values)) for name, values in context.items()},
        **facts,
    }
