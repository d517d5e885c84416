"""A sweep as one HTML page that needs no network and no other file."""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from mu2_optax.sweep._charts import plot_curves, plot_sweep
from mu2_optax.sweep._files import written_whole
from mu2_optax.sweep._metrics import Mode, is_flat, metric_mode, number_text, rate_text, spaced
from mu2_optax.sweep._result import Results, SweepResult, by_label
from mu2_optax.sweep._styles import COLORS, styles
from mu2_optax.sweep._summary import Row, Summary, summarize
from mu2_optax.sweep._table import verdict


def write_report(
    results: Results,
    metric: str,
    path: str | Path,
    *,
    mode: Mode | None = None,
    title: str = "Sweep",
    initial: float | str | None = None,
    tolerance: float | None = None,
) -> None:
    """Writes results as one HTML page that needs no network and no other file.

    It has the verdict in words, the chart of `plot_sweep`, the best setting of each optimizer as a
    line of Python, the table with the measures, curves over steps for each metric that has them,
    why cells failed, and how and when it was run. It is dark if the reader's system is.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label, over
        ``learning_rate`` alone.
      metric: The metric of table and chart.
      path: A file name that ends in ``.html``.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: The page's title.
      initial: The metric before training, for the learning-rate sensitivity: a number, or the name
        of the metric that holds it. If None, the sensitivity is shown if ``metric`` is a curve.
      tolerance: How far from the best a plateau goes, in the metric's unit; if None, 0.02 for what
        is better high and at most 1, and otherwise 5 % of the way from the metric before training
        to the best, or of the best where that is not known.

    Raises:
      ModuleNotFoundError: If Altair or vl-convert is not installed.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": learning_rate + 1 / learning_rate}
      >>> result = sweep(train, [0.1, 1.0, 10.0], seeds=2, progress=False)
      >>> write_report(result, "loss", "report.html")  # doctest: +SKIP
    """
    if Path(path).suffix != ".html":
        raise ValueError(f"`path` must end in .html, got {str(path)!r}.")
    labelled = by_label(results)
    chart = plot_sweep(labelled, metric, mode=mode)
    try:
        import jinja2
        import vl_convert
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pages need Altair and vl-convert: `pip install altair vl-convert-python`"
        ) from error
    summary = summarize(labelled, metric, metric_mode(metric, mode), initial, tolerance)
    looks = dict(zip(labelled, styles(labelled), strict=True))
    settings = [
        {
            "label": label,
            "value": _value(row, summary),
            "python": _python_line(labelled[label], label, rate),
        }
        for label, rate in summary.best_rates.items()
        for row in [summary.rows[label]]
    ]
    source = (files(__package__) / "report.html.jinja").read_text("utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    page = environment.from_string(source).render(
        title=title,
        counts=_counts(labelled, summary),
        verdict=verdict(summary),
        metric=spaced(metric),
        chart=_spec(chart),
        keys={label: (look.color, COLORS[look.color]) for label, look in looks.items()},
        settings=settings,
        columns=[*map(rate_text, summary.rates), *_measures(summary)],
        rows={label: _cells(row, summary) for label, row in summary.rows.items()},
        summary=summary,
        curves=_curves(labelled, summary),
        errors=_errors(labelled),
        facts=_facts(list(labelled.values())),
        dark=COLORS,
        library=vl_convert.javascript_bundle(),
    )
    with written_whole(path) as file:
        file.write(page.encode())


def _spec(chart: Any) -> dict[str, Any]:
    """A chart as Vega-Lite, as wide as the page."""
    spec: dict[str, Any] = chart.properties(width="container", height=340).to_dict()
    return spec


def _curves(results: Mapping[str, SweepResult], summary: Summary) -> dict[str, dict[str, Any]]:
    """For each metric that is a curve, its chart: each optimizer at its best rate."""
    charts = {}
    for name in dict.fromkeys(name for result in results.values() for name in result.metrics):
        rates = summary.best_rates
        curved = {
            label: result
            for label, result in results.items()
            if label in rates
            and name in result.metrics
            and result.dims(name)[len(result.shape) :] == ("step",)
        }
        if curved:
            mode = summary.mode if name == summary.metric else None
            charts[spaced(name.removesuffix("_curve"))] = _spec(
                plot_curves(curved, name, learning_rate=rates, mode=mode)
            )
    return charts


def _measures(summary: Summary) -> list[str]:
    """The names of the measures in the table."""
    sensitive = any(row.sensitivity for row in summary.rows.values())
    return ["plateau", "ratio", *(["sensitivity"] if sensitive else [])]


def _cells(row: Row, summary: Summary) -> list[tuple[str, str, str]]:
    """For each cell of a row its text, the interval below it, and its class."""
    cells = []
    for mean, text in zip(row.means.tolist(), row.texts, strict=True):
        near = abs(mean - summary.best) <= summary.tolerance * (1 + 1e-6)
        cells.append((text, "", "near" if near else "lost" if text in ("div", "err") else ""))
    known = (
        (row.plateau, "{:.1f}".format),
        (row.stability, rate_text),
        (row.sensitivity, number_text),
    )
    for (measure, written), _ in zip(known, _measures(summary), strict=False):
        ends = [written(end) for end in measure.interval] if measure and summary.seeds > 1 else []
        cells.append((written(measure.value) if measure else "", " … ".join(ends), ""))
    return cells


def _value(row: Row, summary: Summary) -> str:
    """What a row gives at its best rate, and at the published default."""
    assert row.tuned is not None  # it has a best rate
    if row.flat:
        return f"{row.texts[row.tuned]} without a learning rate"
    text = f"{row.texts[row.tuned]} at {rate_text(summary.rates[row.tuned])}"
    if row.untouched is None or row.untouched == row.tuned:
        return text
    default = rate_text(summary.rates[row.untouched])
    return f"{text}; {row.texts[row.untouched]} at the published default, {default}"


def _python_line(result: SweepResult, label: str, rate: float) -> str:
    """The call that makes an optimizer, or the rate alone if ``info["python"]`` has none."""
    line = result.info.get("python")
    if isinstance(line, str):
        return re.sub(r"\blearning_rate\b", repr(rate), line)
    comment = " ".join(label.split()) or "this sweep"
    return (
        f"# {comment}: no learning rate"
        if is_flat(result)
        else f"learning_rate = {rate!r}  # {comment}"
    )


def _counts(results: Mapping[str, SweepResult], summary: Summary) -> str:
    """How much was swept, and how much of it failed."""
    finished = sum(int(result.finished.sum()) for result in results.values())
    total = sum(result.finished.size for result in results.values())
    failed = sum(int(result.failed().sum()) for result in results.values())
    diverged = sum(int(result.diverged().sum()) for result in results.values()) - failed
    cells = f"{finished} cells" if finished == total else f"{finished} of {total} cells finished"
    return (
        f"optimizers: {len(results)} · learning rates: {len(summary.rates)} · seeds: {summary.seeds} · "
        f"{cells} · {diverged} diverged · {failed} failed"
    )


def _errors(results: Mapping[str, SweepResult]) -> list[str]:
    """Each error with the label and the rates at which cells failed with it."""
    places: dict[tuple[str, str], list[str]] = {}
    for label, result in results.items():
        for (*at, _), error in result.errors.items():
            rates = [rate_text(result.learning_rates[i]) for i in at]
            places.setdefault((label, error), []).extend(rates)
    return [
        f"{label}{' at ' if rates else ''}{', '.join(dict.fromkeys(rates))}: {error}"
        for (label, error), rates in places.items()
    ]


def _facts(results: Sequence[SweepResult]) -> dict[str, str]:
    """How it was run: what ``info`` says, each fact once."""
    facts: dict[str, list[str]] = {}
    for info in (result.info for result in results):
        for name in ("command", "date"):
            facts.setdefault(name, []).append(str(info.get(name) or ""))
        for name in ("versions", "machine", "context"):
            own = (info.get(name) or {}).items()
            listed = ", ".join(f"{key} {value}" for key, value in own if value is not None)
            facts.setdefault(name, []).append(listed)
    joined = {name: "; ".join(dict.fromkeys(filter(None, own))) for name, own in facts.items()}
    seconds = [r.info.get("compile_seconds", 0) + r.info.get("run_seconds", 0) for r in results]
    joined["time"] = f"{np.sum(seconds):.0f} s" if any(seconds) else ""
    return {name: text for name, text in joined.items() if text}
