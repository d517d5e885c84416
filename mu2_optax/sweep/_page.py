"""A sweep as one HTML page that needs no network and no other file."""

import re
from collections.abc import Mapping
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from mu2_optax.sweep._charts import plot_curves, plot_sweep
from mu2_optax.sweep._files import written_whole
from mu2_optax.sweep._metrics import Mode, metric_mode, rate_text, spaced
from mu2_optax.sweep._result import Results, SweepResult, by_label
from mu2_optax.sweep._styles import COLORS, styles
from mu2_optax.sweep._summary import summarize, verdict


def write_report(
    path: str | Path,
    results: Results,
    metric: str,
    *,
    mode: Mode | None = None,
    title: str = "Sweep",
    tolerance: float | None = None,
) -> None:
    """Writes results as one HTML page that needs no network and no other file.

    It has the verdict, the chart of `plot_sweep`, the best setting of each optimizer as a line of
    Python, the table with the measures, curves over steps, errors, and how it was run. It is dark
    if the reader's system is.

    Args:
      path: A file name that ends in ``.html``.
      results: A result, a list of results with distinct labels, or a dict of them by label, over
        ``learning_rate`` alone.
      metric: The metric of table and chart.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: The page's title.
      tolerance: How far from the best a plateau goes; if None, 0.02 for what is better high and at
        most 1, and otherwise 5 % of the best.
    """
    if Path(path).suffix != ".html":
        raise ValueError(f"`path` must end in .html, got {str(path)!r}.")
    labelled = by_label(results)
    charts = {"": plot_sweep(labelled, metric, mode=mode)}
    import jinja2  # which Altair needs, too

    vl_convert: Any = import_module("vl_convert")
    summary = summarize(labelled, metric, metric_mode(metric, mode), tolerance)
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
    drawn = {k: c.properties(width="container", height=340).to_dict() for k, c in charts.items()}
    source = files(__package__).joinpath("report.html.jinja").read_text("utf-8")
    jinja = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = jinja.from_string(source).render(
        title=title,
        metric=spaced(metric),
        summary=summary,
        verdict=verdict(summary),
        counts=counts(labelled),
        charts=drawn,
        keys=styles(labelled),
        colors=COLORS,
        lines={label: _python_line(labelled[label], rate) for label, rate in tuned.items()},
        rate_text=rate_text,
        errors={label: sorted(set(result.errors.values())) for label, result in labelled.items()},
        facts=_facts(labelled),
        library=vl_convert.javascript_bundle(),
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


def _facts(results: Mapping[str, SweepResult]) -> dict[str, str]:
    """How it was run: what ``info`` says, each fact once."""
    facts: dict[str, dict[str, None]] = {}
    for result in results.values():
        for name in ("command", "date", "versions", "machine", "context"):
            told = result.info.get(name)
            if isinstance(told, Mapping):
                told = ", ".join(f"{k} {value}" for k, value in told.items() if value is not None)
            if told:
                facts.setdefault(name, {})[told[:10] if name == "date" else told] = None
    return {name: "; ".join(texts) for name, texts in facts.items()}
