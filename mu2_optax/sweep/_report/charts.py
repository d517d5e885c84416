"""The charts of a report: a metric against the learning rate, and against steps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log10

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._mode import Mode
from mu2_optax.sweep._report.svg import Axis, Line, Point, chart
from mu2_optax.sweep._report.words import STYLES
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._summary import rate_text

Array = npt.NDArray[np.float64]

_TINY = 1e-300  # no logarithmic axis goes below it, or above its inverse
_VALUES, _DOTS = 300, 40  # how many of a curve's values are drawn, and how many can be pointed at


def rate_chart(results: Mapping[str, SweepResult], metric: str, mode: Mode) -> str:
    """A metric's final value against the learning rate: the mean, the band, a dot for each seed.

    Args:
      results: The results by label, over ``learning_rate`` alone.
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better; crosses are at the worse edge.

    Returns:
      An ``<svg>`` element.
    """
    lines = [_rate_line(label, i, r, metric) for i, (label, r) in enumerate(results.items())]
    rates = np.unique(np.concatenate([result.learning_rates for result in results.values()]))
    rates = rates[rates > 0]
    few = rates.tolist() if len(rates) <= 16 else ()
    x = _axis(rates, log=True, pad=0.02, text=rate_text, ticks=few)
    return _chart(lines, x, "learning rate", metric, mode)


def curves_chart(
    results: Mapping[str, SweepResult], rates: Mapping[str, float], metric: str, mode: Mode
) -> str:
    """A metric that is a curve, against its steps: the mean over seeds and the band.

    Args:
      results: The results by label.
      rates: The learning rate of each result that is drawn.
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better.

    Returns:
      An ``<svg>`` element.
    """
    lines = [
        _curve(label, i, results[label].select(learning_rate=rates[label]), metric, rates[label])
        for i, label in enumerate(results)
        if label in rates
    ]
    longest = max(results[label].metric(metric).shape[-1] for label in rates)
    return _chart(lines, Axis(1.0, float(longest)), "step, as recorded", metric, mode)


def _rate_line(label: str, style: int, result: SweepResult, metric: str) -> Line:
    """The final values of one result; a cross where a seed diverged, and no point on the line."""
    final, points, dots, crosses = result.final(metric), [], [], []
    for i in np.argsort(result.learning_rates):
        rate = float(result.learning_rates[i])
        seeds = np.flatnonzero(result.finished[i])
        values = final[i, seeds]
        lost = int((~np.isfinite(values)).sum())
        if rate == 0:  # which has no place on the axis
            continue
        points.append((rate, values if len(values) and not lost else None))
        for seed, value in zip(result.seeds[seeds], values, strict=True):
            dots.append(((rate, float(value)), _told(label, rate, f"seed {seed}", metric, value)))
        if lost:
            which = f"{lost} of {len(values)} seeds"
            crosses.append((rate, _told(label, rate, which, metric, np.nan)))
    return _line(label, style, points, dots, crosses)


def _curve(label: str, style: int, result: SweepResult, metric: str, rate: float) -> Line:
    """The curve of one result at one rate, up to where a seed diverges."""
    values: Array = result.metric(metric)[result.finished].astype(np.float64)
    broken = np.flatnonzero(~np.isfinite(values).all(axis=0))
    end = int(broken[0]) if len(broken) else values.shape[1]
    means = values[:, :end].mean(axis=0)
    dots = [
        ((i + 1.0, means[i]), _told(label, rate, f"step {i + 1}", f"mean {metric}", means[i]))
        for i in _spread(end, _DOTS)
    ]
    points = [(i + 1.0, values[:, i]) for i in _spread(end, _VALUES)]
    told = _told(label, rate, f"from step {end + 1} on", metric, np.nan)
    return _line(label, style, points, dots, [(end + 1.0, told)] if len(broken) else [])


def _spread(end: int, count: int) -> list[int]:
    """At most ``count`` of the indices up to ``end``, the first and the last among them."""
    return np.unique(np.linspace(0, end - 1, count).round().astype(int)).tolist() if end else []


def _line(
    label: str,
    style: int,
    values: Iterable[tuple[float, Array | None]],
    dots: Sequence[tuple[Point, str]],
    crosses: Sequence[tuple[float, str]],
) -> Line:
    """A line through the means and a band from the lowest to the highest; a gap where None."""
    pieces: list[list[tuple[float, Array]]] = [[]]
    for at, seen in values:
        if seen is None:
            pieces.append([])
        else:
            pieces[-1].append((at, seen))
    return Line(
        label,
        style % STYLES,
        [[(at, float(seen.mean())) for at, seen in piece] for piece in pieces],
        [
            [(at, float(seen.min())) for at, seen in piece]
            + [(at, float(seen.max())) for at, seen in piece[::-1]]
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
    log = bool(mode == "min" and values.min() > 0 and values.max() > 30 * values.min())
    y = _axis(values, log=log, pad=0.06, text=_tick_text)
    name = metric.replace("_", " ")
    return chart(lines, x, y, xlabel, name, crosses_on_top=mode == "min")


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
    margin = pad * ((high - low) or abs(low) or 1.0)
    return Axis(low - margin, high + margin, False, text, ticks)


def _tick_text(value: float) -> str:
    mantissa, e, exponent = f"{value:g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if e else mantissa


def _told(label: str, rate: float, which: str, metric: str, value: float) -> str:
    """What a dot or a cross stands for, in three lines."""
    name = metric.replace("_", " ")
    what = f"{name} {value:.6g}" if np.isfinite(value) else f"{name} not finite: diverged"
    return f"{label or name}\nlearning rate {rate:g}, {which}\n{what}"
