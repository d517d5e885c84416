"""The charts of a report: from results to lines and scales."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._analysis.metrics import (
    Array,
    Band,
    Mode,
    all_rates,
    band_of_rates,
    band_of_steps,
    in_words,
    loss_sign,
    spans_decades,
)
from mu2_optax.sweep._analysis.styles import Look, Looks
from mu2_optax.sweep._analysis.summary import rate_text
from mu2_optax.sweep._report.svg import Axis, Line, Mark, chart, fitted_axis
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
    rates = all_rates(results.values())
    rates = rates[rates > 0]
    ticks = rates.tolist() if len(rates) <= 16 else ()
    x = fitted_axis("learning rate", rates, log=True, pad=0.02, text=rate_text, ticks=ticks)
    return _charts(lines, x, metric, mode, near)


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
        _curve(label, looks[label], results[label].select(learning_rate=rate), metric, rate)
        for label, rate in rates.items()
    ]
    steps = [_steps(results[label], metric) for label in rates]
    name = "step" if all(known for _, known in steps) else "step, as recorded"
    x = Axis(name, min(at[0] for at, _ in steps), max(at[-1] for at, _ in steps))
    return _charts(lines, x, metric, mode, _near_best_end(lines, mode) if zoomed else None)


def _steps(result: SweepResult, metric: str) -> tuple[list[float], bool]:
    """The step of each value of a curve, or 1, 2, ... if ``info["curve_steps"]`` does not say.

    Also returns whether it does.
    """
    count = result.metric(metric).shape[-1]
    steps = result.info.get("curve_steps") or []
    known = len(steps) == count
    return [float(step) for step in (steps if known else range(1, count + 1))], known


def _near_best_end(lines: Sequence[Line], mode: Mode) -> tuple[float, float] | None:
    """The best end of a curve, and a tenth of the way to it."""
    sign = loss_sign(mode)
    pieces = [line.pieces[0] for line in lines if line.pieces[0]]
    if not pieces:
        return None
    start = float(np.median([piece[0][1] for piece in pieces]))
    best = sign * min(sign * piece[-1][1] for piece in pieces)
    return best, max(sign * (start - best), 0.0) / 10


def _rate_line(label: str, look: Look, result: SweepResult, metric: str) -> Line:
    """The final values of one result; a cross where a seed diverged, and no point on the line."""
    band, diverged = band_of_rates(result, metric)
    final = result.final(metric)
    dots, crosses, rings = [], [], []
    order = np.argsort(result.learning_rates)
    order = order[result.learning_rates[order] > 0]  # 0 has no place on the axis
    for i in order:
        rate, mean = float(result.learning_rates[i]), float(band.mean[i])
        values = final[i, result.finished[i]].tolist()
        for seed, value in zip(result.seeds[result.finished[i]], values, strict=True):
            tooltip = _tooltip(label, rate, f"seed {seed}", metric, value)
            dots.append(Mark(rate, value, tooltip))
        if diverged[i]:
            seeds = f"{np.sum(~np.isfinite(values))} of {len(values)} seeds"
            reasons = sorted({error for (at, _), error in result.errors.items() if at == i})
            why = f"failed: {'; '.join(reasons)}" if reasons else ""
            crosses.append((rate, _tooltip(label, rate, seeds, metric, np.nan, why)))
        if rate == result.info.get("untouched") and np.isfinite(mean):
            tooltip = _tooltip(label, rate, "the published default", f"mean {metric}", mean)
            rings.append(Mark(rate, mean, tooltip))
    pieces = _pieces(result.learning_rates[order].tolist(), band.take(order))
    return Line(label, look, pieces, dots, crosses, rings)


def _curve(label: str, look: Look, result: SweepResult, metric: str, rate: float) -> Line:
    """The curve of one result at one rate, up to where a seed diverges."""
    band, diverged = band_of_steps(result, metric)
    steps, _ = _steps(result, metric)
    end, dots, crosses = len(band.mean), [], []
    for i in _evenly_spaced(end, _DOTS):
        mean = float(band.mean[i])
        tooltip = _tooltip(label, rate, f"step {steps[i]:g}", f"mean {metric}", mean)
        dots.append(Mark(steps[i], mean, tooltip))
    if diverged:
        tooltip = _tooltip(label, rate, f"from step {steps[end]:g} on", metric, np.nan)
        crosses.append((steps[end], tooltip))
    drawn = _evenly_spaced(end, _VALUES)
    return Line(label, look, _pieces([steps[i] for i in drawn], band.take(drawn)), dots, crosses)


def _evenly_spaced(end: int, count: int) -> npt.NDArray[np.int64]:
    """At most ``count`` of the indices up to ``end``, the first and the last among them."""
    return np.unique(np.linspace(0, max(end - 1, 0), min(end, count)).round().astype(int))


def _pieces(at: Sequence[float], band: Band) -> list[list[tuple[float, ...]]]:
    """The points (x, mean, low, high) of a band, parted where the mean is not finite."""
    pieces: list[list[tuple[float, ...]]] = [[]]
    for point in zip(at, *(values.tolist() for values in band), strict=True):
        if np.isfinite(point[1]):
            pieces[-1].append(point)
        else:
            pieces.append([])
    return pieces


def _charts(
    lines: Sequence[Line], x: Axis, metric: str, mode: Mode, near: tuple[float, float] | None
) -> list[str]:
    """The chart, its vertical axis fitted to what is drawn, and perhaps one of its best part."""
    drawn = [y for line in lines for piece in line.pieces for point in piece for y in point[1:]]
    drawn += [dot.y for line in lines for dot in line.dots]
    values = np.asarray([y for y in drawn if np.isfinite(y)] or [0.0, 1.0])
    name, on_top = in_words(metric), mode == "min"
    y = fitted_axis(name, values, log=on_top and spans_decades(values), pad=0.06)
    charts = [chart(lines, x, y, crosses_on_top=on_top)]
    part = None if near is None else _best_part(lines, values, mode, *near)
    if part is not None:
        y = fitted_axis(f"{name} near the best", part, log=False, pad=0.03)
        charts.append(chart(lines, x, y, crosses_on_top=on_top, cut=True))
    return charts


def _best_part(
    lines: Sequence[Line], values: Array, mode: Mode, best: float, reach: float
) -> Array | None:
    """The ends of the best part of a vertical axis; None if it shows nothing new."""
    sign = loss_sign(mode)
    far = sign * best + reach  # as a loss, whichever way is better
    closest = (sign * values).min()
    if not np.isfinite(far) or closest > far:
        return None
    height = far / 2 - closest / 2  # halved, as in `Axis`
    crowded = values.max() / 2 - values.min() / 2 > _CROWDED * height > 0
    inside = [
        any(sign * mean <= far for piece in line.pieces for _, mean, *_ in piece) for line in lines
    ]
    return sign * np.array([closest, far]) if crowded and sum(inside) > 1 else None


def _tooltip(label: str, rate: float, which: str, metric: str, value: float, why: str = "") -> str:
    """What a dot or a cross stands for, in three lines; ``which`` is its seed or step."""
    name = in_words(metric)
    what = f"{name} {value:.6g}" if np.isfinite(value) else f"{name} not finite: diverged"
    return f"{label or name}\nlearning rate {rate:g}, {which}\n{why or what}"
