"""The figures of a report: charts with their legends and captions."""

from collections.abc import Iterable, Mapping
from html import escape

import numpy as np

from mu2_optax.sweep._mode import Mode, told_by
from mu2_optax.sweep._report.charts import curves_chart, rate_chart
from mu2_optax.sweep._report.words import STYLES, as_heading, in_words
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._summary import Summary, rate_text


def rates_figure(results: Mapping[str, SweepResult], metric: str, mode: Mode) -> str:
    """A metric against the learning rate."""
    edge = "upper" if mode == "min" else "lower"
    caption = (
        "Lines are means over seeds, bands go from the worst seed to the best, a dot is one seed. "
        f"× at the {edge} edge: a seed diverged there, and the line has a gap. "
        '<span class="hint">Point at a dot for its learning rate, seed and value; press a name to '
        "hide its line.</span>"
    )
    return _figure(results, _plot(rate_chart(results, metric, mode), metric), metric, caption)


def curves(
    results: Mapping[str, SweepResult], metric: str, mode: Mode, summary: Summary
) -> Iterable[str]:
    """A figure for each metric with a value per step."""
    best = _best_rates(summary, mode)
    for name in _metrics(results):
        having = {
            label: result
            for label, result in results.items()
            if name in result.metrics and result.dims(name)[len(result.shape) :] == ("step",)
        }
        if having:
            way = mode if name == metric else told_by(name) or "min"
            own = {label: rate for label, rate in best.items() if label in having}
            figure = _curves_figure(having, name, way, own, f"its best by {in_words(metric)}")
            yield f"<h2>{as_heading(name)} over steps</h2>{figure}"


def other_metrics(results: Mapping[str, SweepResult], metric: str) -> str:
    """The pictures of the metrics that the table does not show, folded away."""
    parts = ""
    for name in _metrics(results):
        having = {label: result for label, result in results.items() if name in result.metrics}
        if name == metric or len(having) < len(results):
            continue
        figure = rates_figure(having, name, told_by(name) or "min")
        parts += f"<details><summary>{as_heading(name)}</summary>{figure}</details>"
    return f"<h2>Other metrics</h2>{parts}" if parts else ""


def _best_rates(summary: Summary, mode: Mode) -> dict[str, float]:
    """The rate with the best mean, for each row that has one."""
    sign = 1.0 if mode == "min" else -1.0
    losses = {label: sign * row.means for label, row in summary.rows.items()}
    return {
        label: float(summary.rates[np.argmin(np.where(np.isfinite(loss), loss, np.inf))])
        for label, loss in losses.items()
        if np.isfinite(loss).any()
    }


def _curves_figure(
    results: Mapping[str, SweepResult],
    metric: str,
    mode: Mode,
    best: Mapping[str, float],
    which: str,
) -> str:
    """The curves of each result at its best rate, or at any other: the reader's choice."""
    choices = {f"each optimizer at {which}": best} if best else {}
    for rate in np.unique(np.concatenate([r.learning_rates for r in results.values()])).tolist():
        run = {
            label: rate
            for label, result in results.items()
            if result.finished[result.learning_rates == rate].any()
        }
        if run:
            choices[f"{rate:g}"] = run
    plots = "".join(
        _plot(
            curves_chart(results, rates, metric, mode),
            metric,
            f'class="plot switched{"" if i else " shown"}" data-choice="{i}"',
        )
        for i, rates in enumerate(choices.values())
    )
    options = "".join(f'<option value="{i}">{text}</option>' for i, text in enumerate(choices))
    select = f'<label>Learning rate: <select autocomplete="off">{options}</select></label>'
    at = ", ".join(f"{escape(label)} {rate_text(rate)}" for label, rate in best.items())
    caption = (
        "Means over seeds, with a band from the lowest to the highest; × where a seed diverged and "
        f"the line ends.{f' Best rates: {at}.' if at else ''}"
    )
    return _figure(results, plots, metric, caption, f'<p class="choice">{select}</p>')


def _figure(
    results: Mapping[str, SweepResult], plots: str, metric: str, caption: str, above: str = ""
) -> str:
    """Plots with their legend; of several, one is shown."""
    keys = "".join(
        f'<li><button type="button" aria-pressed="true" data-label="{escape(label)}">'
        f'<span class="key s{style % STYLES}"></span>{escape(label) or in_words(metric)}</button>'
        "</li>"
        for style, label in enumerate(results)
    )
    return (
        f'<figure>{above}<div>{plots}</div><ul class="legend" aria-label="lines">{keys}</ul>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _plot(chart: str, metric: str, attributes: str = 'class="plot"') -> str:
    return f'<div {attributes}><p class="yname">{in_words(metric)}</p>{chart}</div>'


def _metrics(results: Mapping[str, SweepResult]) -> list[str]:
    return list(dict.fromkeys(name for result in results.values() for name in result.metrics))
