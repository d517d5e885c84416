"""The charts of a report: from results to lines and scales."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._analysis.metrics import (
    Array,
    Band,
    Mode,
    band_of_rates,
    band_of_steps,
    in_words,
    spans_decades,
)
from mu2_optax.sweep._analysis.styles import Look, Looks
from mu2_optax.sweep._analysis.summary import rate_text
from mu2_optax.sweep._report.svg import Axis, Line, Point, chart, fitted_axis, tick_text
from mu2_optax.sweep._results.result import SweepResult

_VALUES, _DOTS = 300, 40  # how many of a curve's values are drawn, and how many can be pointed at
_CROWDED = 3.0  # a chart this many times as high as its best part may get another of it


def rate_charts(
    results: Mapping[str, SweepResult],
    looks: Looks,
    metric: str,
    mode: Mode,
    near: tuple[float, float] | None = None,
) -> list[str]:
    """A metric's final value against the learning rate: the mean, the band, a dot for each seed.

    Crosses are at the edge that is worse. Returns the chart, and if lines overlap near the best,
    another of that part; ``near`` is the best value, and how far from it values are near.
    """
    lines = [_rate_line(label, looks[label], r, metric) for label, r in results.items()]
    rates = np.unique(np.concatenate([result.learning_rates for result in results.values()]))
    rates = rates[rates > 0]
    few = rates.tolist() if len(rates) <= 16 else ()
    x = fitted_axis(rates, log=True, pad=0.02, text=rate_text, ticks=few)
    return _charts(lines, x, "learning rate", metric, mode, near)


def curve_charts(
    results: Mapping[str, SweepResult],
    looks: Looks,
    rates: Mapping[str, float],
    metric: str,
    mode: Mode,
    *,
    zoomed: bool,
) -> list[str]:
    """A metric that is a curve, against its steps, at a learning rate for each result drawn.

    Returns the chart, and if ``zoomed`` and lines overlap near the best, another of the last tenth
    of the way to the best end.
    """
    lines = [
        _curve(label, looks[label], results[label].select(learning_rate=rates[label]), metric, rate)
        for label, rate in rates.items()
    ]
    last = [steps_of(results[label], metric)[-1] for label in rates]
    first = [steps_of(results[label], metric)[0] for label in rates]
    x = Axis(min(first), max(last))
    known = all(_recorded(results[label], metric) for label in rates)
    name = "step" if known else "step, as recorded"
    return _charts(lines, x, name, metric, mode, _ends(lines, mode) if zoomed else None)


def steps_of(result: SweepResult, metric: str) -> list[float]:
    """The step of each value of a curve, as ``info["curve_steps"]`` says, or 1, 2, ..."""
    recorded = _recorded(result, metric)
    return recorded or [float(i + 1) for i in range(result.metric(metric).shape[-1])]


def _recorded(result: SweepResult, metric: str) -> list[float]:
    """The steps that are known, if there is one for each value."""
    steps = result.info.get("curve_steps") or []
    return list(map(float, steps)) if len(steps) == result.metric(metric).shape[-1] else []


def _ends(lines: Sequence[Line], mode: Mode) -> tuple[float, float] | None:
    """The best end of a curve, and a tenth of the way to it."""
    sign = 1.0 if mode == "min" else -1.0
    pieces = [line.mean[0] for line in lines if line.mean and line.mean[0]]
    if not pieces:
        return None
    start = float(np.median([piece[0][1] for piece in pieces]))
    best = sign * min(sign * piece[-1][1] for piece in pieces)
    return best, max(sign * (start - best), 0.0) / 10


def _rate_line(label: str, look: Look, result: SweepResult, metric: str) -> Line:
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
    line = _line(label, look, at, band.take(order), dots, crosses)
    default = result.info.get("untouched")
    rings = [
        ((x, y), _told(label, x, "the published default", f"mean {metric}", y))
        for piece in line.mean
        for x, y in piece
        if x == default
    ]
    return replace(line, rings=rings)


def _curve(label: str, look: Look, result: SweepResult, metric: str, rate: float) -> Line:
    """The curve of one result at one rate, up to where a seed diverges."""
    band, cut = band_of_steps(result, metric)
    end, steps = len(band.mean), steps_of(result, metric)
    dots = [
        (
            (steps[i], float(band.mean[i])),
            _told(label, rate, f"step {steps[i]:g}", f"mean {metric}", band.mean[i]),
        )
        for i in _spread(end, _DOTS).tolist()
    ]
    drawn = _spread(end, _VALUES)
    crosses = []
    if cut:
        told = _told(label, rate, f"from step {steps[end]:g} on", metric, np.nan)
        crosses.append((steps[end], told))
    return _line(label, look, [steps[i] for i in drawn], band.take(drawn), dots, crosses)


def _spread(end: int, count: int) -> npt.NDArray[np.int64]:
    """At most ``count`` of the indices up to ``end``, the first and the last among them."""
    return np.unique(np.linspace(0, max(end - 1, 0), min(end, count)).round().astype(int))


def _line(
    label: str,
    look: Look,
    at: Sequence[float],
    band: Band,
    dots: Sequence[tuple[Point, str]],
    crosses: Sequence[tuple[float, str]],
) -> Line:
    """A line through the means of a band at the given places, with gaps where there is none."""
    pieces: list[list[tuple[float, ...]]] = [[]]
    for point in zip(at, *(values.tolist() for values in band), strict=True):
        if np.isfinite(point[1]):
            pieces[-1].append(point)
        else:
            pieces.append([])
    return Line(
        label,
        look,
        [[(x, mean) for x, mean, _, _ in piece] for piece in pieces],
        [
            [(x, low) for x, _, low, _ in piece] + [(x, high) for x, _, _, high in piece[::-1]]
            for piece in pieces
        ],
        dots,
        crosses,
    )


def _charts(
    lines: Sequence[Line],
    x: Axis,
    xlabel: str,
    metric: str,
    mode: Mode,
    near: tuple[float, float] | None,
) -> list[str]:
    """The chart, its vertical axis fitted to what is drawn, and perhaps one of its best part."""
    drawn = [b for line in lines for part in (*line.mean, *line.band) for _, b in part]
    drawn += [b for line in lines for (_, b), _ in line.dots]
    values = np.asarray([b for b in drawn if np.isfinite(b)] or [0.0, 1.0])
    log = mode == "min" and spans_decades(values)
    y = fitted_axis(values, log=log, pad=0.06, text=tick_text)
    name, on_top = in_words(metric), mode == "min"
    charts = [chart(lines, x, y, xlabel, name, crosses_on_top=on_top)]
    part = None if near is None else _best_part(lines, values, mode, *near)
    if part is not None:
        y = fitted_axis(part, log=False, pad=0.03, text=tick_text)
        name = f"{name} near the best"
        charts.append(chart(lines, x, y, xlabel, name, crosses_on_top=on_top, cut=True))
    return charts


def _best_part(
    lines: Sequence[Line], values: Array, mode: Mode, best: float, reach: float
) -> Array | None:
    """The ends of the best part of a vertical axis; None if it shows nothing new."""
    sign = 1.0 if mode == "min" else -1.0
    far = sign * best + reach  # as a loss, whichever way is better
    inside = sign * values <= far
    if not np.isfinite(far) or not inside.any():
        return None
    ends = np.array([values[inside][(sign * values[inside]).argmin()], sign * far])
    crowd = [any(sign * b <= far for part in line.mean for _, b in part) for line in lines]
    height = abs(ends[1] / 2 - ends[0] / 2)  # halved, as in `Axis`
    crowded = values.max() / 2 - values.min() / 2 > _CROWDED * height > 0
    return ends if crowded and sum(crowd) > 1 else None


def _told(label: str, rate: float, which: str, metric: str, value: float, why: str = "") -> str:
    """What a dot or a cross stands for, in three lines."""
    name = in_words(metric)
    what = f"{name} {value:.6g}" if np.isfinite(value) else f"{name} not finite: diverged"
    return f"{label or name}\nlearning rate {rate:g}, {which}\n{why or what}"
