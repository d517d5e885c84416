"""A sweep as one HTML page that needs no network and no other file."""

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from mu2_optax.sweep._charts import plot_curves, plot_sweep
from mu2_optax.sweep._files import written_whole
from mu2_optax.sweep._metrics import Mode, metric_mode, number_text, rate_text, spaced
from mu2_optax.sweep._result import Results, SweepResult, by_label
from mu2_optax.sweep._styles import COLORS, styles
from mu2_optax.sweep._summary import Row, summarize, verdict


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

    It has the verdict, the chart of `plot_sweep`, the best setting of each optimizer as a line of
    Python, the table with the measures, curves over steps, errors, and how it was run. It is dark
    if the reader's system is.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label, over
        ``learning_rate`` alone.
      metric: The metric of table and chart.
      path: A file name that ends in ``.html``.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: The page's title.
      initial: The metric before training, for `lr_sensitivity`: a number, or a metric's name.
      tolerance: How far from the best a plateau goes; if None, 0.02 for what is better high and at
        most 1, and otherwise 5 % of the way from the metric before training to the best, or of the
        best where that is not known.
    """
    if Path(path).suffix != ".html":
        raise ValueError(f"`path` must end in .html, got {str(path)!r}.")
    labelled = by_label(results)
    charts = {"": plot_sweep(labelled, metric, mode=mode)}
    import jinja2  # which Altair needs, too
    import vl_convert

    bundle: Any = vl_convert.javascript_bundle  # its argument may be left out

    summary = summarize(labelled, metric, metric_mode(metric, mode), initial, tolerance)
    tuned = {
        k: float(summary.rates[r.tuned]) for k, r in summary.rows.items() if r.tuned is not None
    }
    for name in dict.fromkeys(name for result in labelled.values() for name in result.metrics):
        curved = {
            label: result
            for label, result in labelled.items()
            if label in tuned and result.dims(name)[len(result.shape) :] == ("step",)
        }
        if curved:
            own = summary.mode if name == metric else None
            charts[spaced(name)] = plot_curves(curved, name, learning_rate=tuned, mode=own)
    sources = files(__package__).joinpath("report.html.jinja").read_text("utf-8")
    page = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(
        sources
    )
    text = page.render(
        title=title,
        metric=spaced(metric),
        summary=summary,
        verdict=verdict(summary),
        counts=counts(labelled),
        charts={
            name: chart.properties(width="container", height=340).to_dict()
            for name, chart in charts.items()
        },
        keys=styles(labelled),
        colors=COLORS,
        lines={label: _python_line(labelled[label], rate) for label, rate in tuned.items()},
        measures={label: _measures(row) for label, row in summary.rows.items()},
        rate_text=rate_text,
        errors=_errors(labelled),
        facts=_facts(labelled),
        library=bundle(),
    )
    with written_whole(path) as file:
        file.write(text.encode())


def counts(results: Mapping[str, SweepResult]) -> str:
    """How many cells have finished, and how many of them were lost."""
    each = list(results.values())
    finished, total = sum(int(r.finished.sum()) for r in each), sum(r.finished.size for r in each)
    failed = sum(int(result.failed().sum()) for result in each)
    diverged = sum(int(result.diverged().sum()) for result in each) - failed
    return f"{finished} of {total} cells finished, {diverged} diverged, {failed} failed"


def _python_line(result: SweepResult, rate: float) -> str:
    """The call that makes an optimizer, or the rate alone if ``info["python"]`` has none."""
    line = result.info.get("python")
    if isinstance(line, str):
        return re.sub(r"\blearning_rate\b", repr(rate), line)
    return f"learning_rate = {rate!r}" if result.axes else "# no learning rate to choose"


def _measures(row: Row) -> dict[str, tuple[str, str]]:
    """The measures of a row as text, each with its interval."""
    texts = {}
    for name, measure, text in (
        ("plateau", row.plateau, "{:.1f}".format),
        ("ratio", row.stability, rate_text),
        ("sensitivity", row.sensitivity, number_text),
    ):
        if measure is not None:
            texts[name] = text(measure.value), " … ".join(map(text, measure.interval))
    return texts


def _errors(results: Mapping[str, SweepResult]) -> dict[tuple[str, str], dict[str, None]]:
    """The rates at which cells failed, by label and error."""
    places: dict[tuple[str, str], dict[str, None]] = {}
    for label, result in results.items():
        for (*at, _), error in result.errors.items():
            rate = rate_text(result.learning_rates[at[0]]) if at else "no rate"
            places.setdefault((label, error), {})[rate] = None
    return places


def _facts(results: Mapping[str, SweepResult]) -> dict[str, str]:
    """How it was run: what ``info`` says, each fact once."""
    facts = {}
    for name in ("command", "date", "versions", "machine", "context"):
        known = [result.info.get(name) or "" for result in results.values()]
        texts = [
            ", ".join(f"{key} {value}" for key, value in own.items() if value is not None)
            if isinstance(own, Mapping)
            else own[: 10 if name == "date" else None]
            for own in known
        ]
        facts[name] = "; ".join(dict.fromkeys(filter(None, texts)))
    return {name: text for name, text in facts.items() if text}
