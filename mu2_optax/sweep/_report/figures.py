"""The figures of a report: charts of a metric, with their legends and captions."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from math import log10

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._analysis.metrics import (
    Array,
    Band,
    Mode,
    as_heading,
    band_of_rates,
    band_of_steps,
    in_words,
    spans_decades,
    told_by,
)
from mu2_optax.sweep._analysis.summary import Summary, rate_text
from mu2_optax.sweep._report.svg import STYLES, Axis, Line, Point, chart
from mu2_optax.sweep._results.result import SweepResult

_TINY = 1e-300  # no logarithmic axis goes below it, or above its inverse
_HUGE = sys.float_info.max
_VALUES, _DOTS = 300, 40  # how many of a curve's values are drawn, and how many can be pointed at


def rates_figure(results: Mapping[str, SweepResult], metric: str, mode: Mode) -> str:
    """A metric against the learning rate."""
    edge = "upper" if mode == "min" else "lower"
    caption = (
        "Lines are means over seeds, bands go from the worst seed to the best, a dot is one seed. "
        f"× at the {edge} edge: a seed diverged there, and the line has a gap. "
        '<span class="hint">Point at a dot for its learning rate, seed and value; press a name to '
        "hide its line.</span>"
    )
    return _figure(results, _plot(_rate_chart(results, metric, mode), metric), metric, caption)


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
            which = f"its best by {escape(in_words(metric))}"
            figure = _curves_figure(results, having, name, way, own, which)
            yield f"<h2>{escape(as_heading(name))} over steps</h2>{figure}"


def other_metrics(results: Mapping[str, SweepResult], metric: str) -> str:
    """The pictures of the metrics that the table does not show, folded away."""
    parts = ""
    for name in _metrics(results):
        if name == metric or any(r.metrics and name not in r.metrics for r in results.values()):
            continue
        figure = rates_figure(results, name, told_by(name) or "min")
        parts += f"<details><summary>{escape(as_heading(name))}</summary>{figure}</details>"
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
    having: Mapping[str, SweepResult],
    metric: str,
    mode: Mode,
    best: Mapping[str, float],
    which: str,
) -> str:
    """The curves of each result at its best rate, or at any other: the reader's choice."""
    choices = {f"each optimizer at {which}": best} if best else {}
    for rate in np.unique(np.concatenate([r.learning_rates for r in having.values()])).tolist():
        run = {
            label: rate
            for label, result in having.items()
            if result.finished[result.learning_rates == rate].any()
        }
        if run:
            choices[f"{rate:g}"] = run
    plots = "".join(
        _plot(
            _curves_chart(results, rates, metric, mode),
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
        f'<span class="key s{style % STYLES}"></span>{escape(label or in_words(metric))}</button>'
        "</li>"
        for style, label in enumerate(results)
    )
    return (
        f'<figure>{above}<div>{plots}</div><ul class="legend" aria-label="lines">{keys}</ul>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _plot(chart: str, metric: str, attributes: str = 'class="plot"') -> str:
    return f'<div {attributes}><p class="yname">{escape(in_words(metric))}</p>{chart}</div>'


def _metrics(results: Mapping[str, SweepResult]) -> list[str]:
    return list(dict.fromkeys(name for result in results.values() for name in result.metrics))


def _rate_chart(results: Mapping[str, SweepResult], metric: str, mode: Mode) -> str:
    """A metric's final value against the learning rate: the mean, the band, a dot for each seed.

    Crosses are at the edge that is worse.
    """
    lines = [_rate_line(label, i, r, metric) for i, (label, r) in enumerate(results.items())]
    rates = np.unique(np.concatenate([result.learning_rates for result in results.values()]))
    rates = rates[rates > 0]
    few = rates.tolist() if len(rates) <= 16 else ()
    x = _axis(rates, log=True, pad=0.02, text=rate_text, ticks=few)
    return _chart(lines, x, "learning rate", metric, mode)


def _curves_chart(
    results: Mapping[str, SweepResult], rates: Mapping[str, float], metric: str, mode: Mode
) -> str:
    """A metric that is a curve, against its steps, at a learning rate for each result drawn."""
    lines = [
        _curve(label, i, results[label].select(learning_rate=rates[label]), metric, rates[label])
        for i, label in enumerate(results)
        if label in rates
    ]
    longest = max(results[label].metric(metric).shape[-1] for label in rates)
    return _chart(lines, Axis(1.0, float(longest)), "step, as recorded", metric, mode)


def _rate_line(label: str, style: int, result: SweepResult, metric: str) -> Line:
    """The final values of one result; a cross where a seed diverged, and no point on the line."""
    band, diverged = band_of_rates(result, metric)
    final, dots, crosses = result.final(metric), [], []
    order = np.argsort(result.learning_rates)
    order = order[result.learning_rates[order] > 0]  # 0 has no place on the axis
    for i in order:
        rate = float(result.learning_rates[i])
        seeds = np.flatnonzero(result.finished[i])
        for seed, value in zip(result.seeds[seeds], final[i, seeds], strict=True):
            dots.append(((rate, float(value)), _told(label, rate, f"seed {seed}", metric, value)))
        if diverged[i]:
            which = f"{(~np.isfinite(final[i, seeds])).sum()} of {len(seeds)} seeds"
            reasons = sorted({e for (at, _), e in result.errors.items() if at == i})
            why = f"failed: {'; '.join(reasons)}" if reasons else ""
            crosses.append((rate, _told(label, rate, which, metric, np.nan, why)))
    at = result.learning_rates[order].tolist()
    return _line(label, style, at, band.take(order), dots, crosses)


def _curve(label: str, style: int, result: SweepResult, metric: str, rate: float) -> Line:
    """The curve of one result at one rate, up to where a seed diverges."""
    band, cut = band_of_steps(result, metric)
    end = len(band.mean)
    means = {int(i) + 1: float(band.mean[i]) for i in _spread(end, _DOTS)}
    dots = [
        ((float(step), value), _told(label, rate, f"step {step}", f"mean {metric}", value))
        for step, value in means.items()
    ]
    told = _told(label, rate, f"from step {end + 1} on", metric, np.nan)
    drawn = _spread(end, _VALUES)
    crosses = [(end + 1.0, told)] if cut else []
    return _line(label, style, (drawn + 1.0).tolist(), band.take(drawn), dots, crosses)


def _spread(end: int, count: int) -> npt.NDArray[np.int64]:
    """At most ``count`` of the indices up to ``end``, the first and the last among them."""
    return np.unique(np.linspace(0, max(end - 1, 0), min(end, count)).round().astype(int))


def _line(
    label: str,
    style: int,
    at: Sequence[float],
    band: Band,
    dots: Sequence[tuple[Point, str]],
    crosses: Sequence[tuple[float, str]],
) -> Line:
    """A line through the means of a band, one for each of the places; a gap where there is none."""
    pieces: list[list[tuple[float, ...]]] = [[]]
    for point in zip(at, *(values.tolist() for values in band), strict=True):
        if np.isfinite(point[1]):
            pieces[-1].append(point)
        else:
            pieces.append([])
    return Line(
        label,
        style % STYLES,
        [[(x, mean) for x, mean, _, _ in piece] for piece in pieces],
        [
            [(x, low) for x, _, low, _ in piece] + [(x, high) for x, _, _, high in piece[::-1]]
            for piece in pieces
        ],
        dots,
        crosses,
    )


def _chart(lines: Sequence[Line], x: Axis, xlabel: str, metric: str, mode: Mode) -> str:
    """The chart, its vertical axis fitted to what is drawn."""
    drawn = [b for line in lines for part in (*line.mean, *line.band) for _, b in part]
    drawn += [b for line in lines for (_, b), _ in line.dots]
    values = np.asarray([b for b in drawn if np.isfinite(b)] or [0.0, 1.0])
    log = mode == "min" and spans_decades(values)
    y = _axis(values, log=log, pad=0.06, text=_tick_text)
    return chart(lines, x, y, xlabel, in_words(metric), crosses_on_top=mode == "min")


def _axis(
    values: Array,
    *,
    log: bool,
    pad: float,
    text: Callable[[float], str],
    ticks: Sequence[float] = (),
) -> Axis:
    """A scale with a margin around the values."""
    low, high = float(values.min()), float(values.max())
    if log:
        margin = pad * ((log10(high) - log10(low)) or 1.0)
        low, high = max(low / 10**margin, _TINY), min(high * 10**margin, 1 / _TINY)
        return Axis(low, high, True, text, ticks)
    margin = pad * (min(high - low, _HUGE) or abs(low) or 1.0)
    return Axis(max(low - margin, -_HUGE), min(high + margin, _HUGE), False, text, ticks)


def _tick_text(value: float) -> str:
    mantissa, e, exponent = f"{value:g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def _told(label: str, rate: float, which: str, metric: str, value: float, why: str = "") -> str:
    """What a dot or a cross stands for, in three lines."""
    name = in_words(metric)
    what = f"{name} {value:.6g}" if np.isfinite(value) else f"{name} not finite: diverged"
    return f"{label or name}\nlearning rate {rate:g}, {which}\n{why or what}"
