"""The figures of a report: charts of a metric, with their legends and captions."""

from collections.abc import Iterable, Mapping
from html import escape

from mu2_optax.sweep._analysis.metrics import (
    Mode,
    all_rates,
    as_heading,
    implied_mode,
    in_words,
    is_flat,
)
from mu2_optax.sweep._analysis.styles import Looks
from mu2_optax.sweep._analysis.summary import Summary, rate_text
from mu2_optax.sweep._report.charts import curve_charts, rate_charts
from mu2_optax.sweep._results.result import SweepResult

_NEAR = 3.0  # the chart of the best part reaches this many times as far as the plateau


def main_figure(results: Mapping[str, SweepResult], looks: Looks, summary: Summary) -> str:
    """The metric of the page against the learning rate, and what is near its best."""
    near = summary.best, _NEAR * summary.tolerance
    return _rates_figure(results, looks, summary.metric, summary.mode, near)


def _rates_figure(
    results: Mapping[str, SweepResult],
    looks: Looks,
    metric: str,
    mode: Mode,
    near: tuple[float, float] | None = None,
) -> str:
    """A metric against the learning rate; perhaps also what is ``near`` its best, a value."""
    edge = "upper" if mode == "min" else "lower"
    charts = rate_charts(results, looks, metric, mode, near)
    zoomed = "The second chart is the best part of the first, enlarged. " if charts[1:] else ""
    ringed = any(result.info.get("untouched") for result in results.values())
    rings = "A ring is around the rate that was published as the default. " if ringed else ""
    caption = (
        "Lines are means over seeds, bands go from the worst seed to the best, a marker is one "
        f"seed. × at the {edge} edge: a seed diverged there, and the line has a gap. "
        f"{rings}{zoomed}"
        '<span class="hint">Point at a marker for its learning rate, seed and value; press a name '
        "to hide its line.</span>"
    )
    return _figure(results, looks, _plots(charts, metric), metric, caption)


def curves(results: Mapping[str, SweepResult], looks: Looks, summary: Summary) -> Iterable[str]:
    """A figure for each metric that is a curve, of the results that have it."""
    for name in _metrics(results):
        curved = {
            label: result
            for label, result in results.items()
            if name in result.metrics and result.dims(name)[len(result.shape) :] == ("step",)
        }
        if curved:
            title = escape(as_heading(name.removesuffix("_curve")))
            yield f"<h2>{title} over steps</h2>{_curves_figure(curved, looks, name, summary)}"


def other_metrics(results: Mapping[str, SweepResult], looks: Looks, metric: str) -> str:
    """The pictures of the metrics that the table does not show, folded away."""
    parts = ""
    names = _metrics(results)
    for name in names:
        everywhere = all(name in result.metrics for result in results.values() if result.metrics)
        final = name.removesuffix("_curve")  # a curve ends with this value, which is shown instead
        if name != metric and everywhere and (final == name or final not in names):
            figure = _rates_figure(results, looks, name, implied_mode(name) or "min")
            parts += f"<details><summary>{escape(as_heading(name))}</summary>{figure}</details>"
    return f"<h2>Other metrics</h2>{parts}" if parts else ""


def _curves_figure(
    results: Mapping[str, SweepResult], looks: Looks, metric: str, summary: Summary
) -> str:
    """The curves of each result at its best rate, or at any other: the reader's choice."""
    mode = summary.mode if metric == summary.metric else implied_mode(metric) or "min"
    best = {label: rate for label, rate in summary.best_rates.items() if label in results}
    choices = {}
    if best:
        choices[f"each optimizer at its best by {escape(in_words(summary.metric))}"] = best
    for rate in all_rates(results.values()).tolist():
        finished = {
            label: rate
            for label, result in results.items()
            if result.finished[result.learning_rates == rate].any()
        }
        if finished:
            choices[f"{rate:g}"] = finished
    plots = options = ""
    for i, (text, rates) in enumerate(choices.items()):
        charts = curve_charts(results, looks, rates, metric, mode, zoomed=rates is best)
        shown = "" if i else " shown"
        plots += (
            f'<div class="switched{shown}" data-choice="{i}"><p class="printed">Learning rate: '
            f"{text}</p>{_plots(charts, metric)}</div>"
        )
        options += f'<option value="{i}">{text}</option>'
    select = f'<label>Learning rate: <select autocomplete="off">{options}</select></label>'
    at = ", ".join(
        f"{escape(label)} {rate_text(rate)}"
        for label, rate in best.items()
        if not is_flat(results[label])
    )
    caption = (
        "Means over seeds, with a band from the lowest to the highest; × where a seed diverged and "
        f"the line ends.{f' Best rates: {at}.' if at else ''}"
    )
    return _figure(results, looks, plots, metric, caption, f'<p class="choice">{select}</p>')


def _figure(
    labels: Iterable[str], looks: Looks, plots: str, metric: str, caption: str, above: str = ""
) -> str:
    """Plots with their legend; of several choices, one is shown."""
    keys = "".join(
        f'<li><button type="button" aria-pressed="true" data-label="{escape(label)}">'
        f"{looks[label].key()}<span>{escape(label or in_words(metric))}</span></button></li>"
        for label in labels
    )
    return (
        f'<figure>{above}<div class="plots">{plots}</div>'
        f'<ul class="legend" aria-label="lines">{keys}</ul>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _plots(charts: Iterable[str], metric: str) -> str:
    """Charts with the name of their vertical axis; the second is of what is near the best."""
    name = escape(in_words(metric.removesuffix("_curve")))
    return "".join(
        f'<div class="plot{" zoom" if i else ""}"><p class="yname">{name}'
        f"{', near the best' if i else ''}</p>{chart}</div>"
        for i, chart in enumerate(charts)
    )


def _metrics(results: Mapping[str, SweepResult]) -> list[str]:
    return list(dict.fromkeys(name for result in results.values() for name in result.metrics))
