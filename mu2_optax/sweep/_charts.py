"""The two charts: a metric against the learning rate, and against steps."""

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2_optax.sweep._drawing import Axis, draw, fitted_axis, padded
from mu2_optax.sweep._metrics import (
    Band,
    Mode,
    all_rates,
    band_of_rates,
    implied_mode,
    metric_mode,
    over_rates,
    spaced,
)
from mu2_optax.sweep._result import Results, SweepResult, by_label
from mu2_optax.sweep._styles import styles

if TYPE_CHECKING:
    from altair import LayerChart

_VALUES, _MARKERS = 300, 20  # how many values of a curve are drawn, and about how many are marked


def plot_sweep(
    results: Results,
    metric: str,
    *,
    mode: Mode | None = None,
    title: str | None = None,
    ylim: tuple[float, float] | None = None,
) -> "LayerChart":
    """Draws a metric's final value against the learning rate, a line for each result.

    The line is the mean over seeds, the band goes from the worst seed to the best. A result without
    a learning rate is a thick line at one height. A ring marks the rate that was published as the
    default (``result.info["untouched"]``). A rate at which a seed diverged has no point on the
    line, but a cross at the worse edge; so has one that is over ten thousand times as bad as the
    best quarter, for which the axis does not reach. In a notebook, press a name to hide its line,
    drag to move, turn the wheel with Shift to zoom, and double-click to return.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: A title, or None.
      ylim: The ends of the vertical axis, or None to fit the data.

    Returns:
      An Altair chart. ``chart.save("sweep.png")`` writes PNG, SVG, PDF or HTML by the suffix,
      ``chart.properties(width=300)`` changes its size, and ``a | b`` puts two side by side.
    """
    labelled = over_rates(by_label(results))
    mode = metric_mode(metric, mode)
    rates = all_rates(labelled)
    if (rates == 0).any():
        warnings.warn("the learning rate 0 has no place on a logarithmic axis", stacklevel=2)
    rates = rates[rates > 0]
    bands = {label: band_of_rates(result, metric) for label, result in labelled.items()}
    y = fitted_axis(spaced(metric), bands.values(), mode, ylim=ylim)
    names, points, marks, bold = {}, [], [], []
    for label, result in labelled.items():
        names[label] = label or y.title
        if flat := result.info.get("flat", False):
            names[label] += " (no rate)"
            bold.append(names[label])
        order = np.argsort(result.learning_rates)
        for i in order[result.learning_rates[order] > 0]:
            rate = float(result.learning_rates[i])
            point = _point(names[label], rate, bands[label], i, y) | {"bare": flat}
            points.append(point)
            value = bands[label].mean[i]
            held = value <= y.high if mode == "min" else value >= y.low  # NaN is not
            if result.finished[i].any() and not held:
                reasons = {error for (at, _), error in result.errors.items() if at == i}
                said = "; ".join(sorted(reasons)) or point["mean"]
                marks.append(point | {"kind": "diverged", "y": _edge(y, mode), "mean": said})
            elif rate == result.info.get("untouched") and np.isfinite(value):
                marks.append(point | {"kind": "published default"})
    ends = padded(rates[0], rates[-1], log=True) if rates.size else (0.1, 10.0)
    x = Axis("learning rate", *ends, log=True, ticks=rates.tolist() if len(rates) <= 16 else ())
    looks = {names[label]: look for label, look in styles(labelled).items()}
    return draw(points, marks, looks, x, y, title=title, bold=bold)


def plot_curves(
    results: Results,
    metric: str,
    *,
    learning_rate: float | Mapping[str, float] | None = None,
    mode: Mode | None = None,
) -> "LayerChart":
    """Draws a metric that is a curve against steps, a line for each result.

    The line is the mean over seeds, the band goes from the lowest seed to the highest; a line ends,
    with a cross at the edge, where a seed diverged. The steps are 1, 2, ..., or those in
    ``result.info["curve_steps"]``, such as [0, 10, 20].

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      metric: The metric's name.
      learning_rate: The rate, or a dict with a rate for each label; not needed for results without
        axes, as `SweepResult.select` gives them.
      mode: Whether low (``"min"``) or high (``"max"``) is better; if None, by the metric's name,
        or low. What is better high, such as an accuracy, gets no logarithmic axis.

    Returns:
      An Altair chart, as from `plot_sweep`.
    """
    mode = mode or implied_mode(metric) or "min"
    labelled = by_label(results)
    lines, rates = dict[str, SweepResult](), learning_rate
    for label, result in labelled.items():
        if result.axes and rates is None:
            raise ValueError("`learning_rate` must be given, such as learning_rate=0.1.")
        rate: Any = rates[label] if isinstance(rates, Mapping) and result.axes else rates
        lines[label] = result.select(learning_rate=rate) if result.axes else result
    drawn = {name: line for name, line in lines.items() if line.metrics and line.finished.any()}
    bands = {name: _band_of_steps(line, metric) for name, line in drawn.items()}
    y = fitted_axis(spaced(metric), bands.values(), mode)
    points, marks, last = [], [], 1.0
    for name, band in bands.items():
        count, known = drawn[name].metric(metric).shape[-1], drawn[name].info.get("curve_steps", ())
        at = list(known if len(known) == count else range(1, count + 1))
        last, end = max(last, at[-1]), len(band.mean)
        drawn_at = np.unique(np.linspace(0, max(end - 1, 0), min(end, _VALUES)).astype(int))
        every = -(-len(drawn_at) // _MARKERS)
        points += [
            _point(name, at[i], band, i, y) | {"bare": bool(place % every)}
            for place, i in enumerate(drawn_at.tolist())
        ]
        if end < len(at):
            place = {"line": name, "x": at[end], "at": f"{at[end]:g}", "mean": "diverged"}
            marks.append(place | {"kind": "diverged", "y": _edge(y, mode)})
    return draw(points, marks, styles(lines), Axis("step", 0.0, last), y)


def _point(line: str, x: float, band: Band, i: int, y: Axis) -> dict[str, Any]:
    """A point of a line: where it is drawn, and what a pointer at it shows."""
    values = [float(array[i]) for array in band]
    point = {"line": line, "x": x, "at": f"{x:g}"}
    if not np.isfinite(values[0]):
        return point | {"y": None, "low": None, "high": None, "mean": "not finite"}
    places = dict(zip(("y", "low", "high"), np.clip(values, y.low, y.high).tolist(), strict=True))
    return (
        point | places | {"mean": f"{values[0]:.4g}", "seeds": "{1:.4g} to {2:.4g}".format(*values)}
    )


def _edge(y: Axis, mode: Mode) -> float:
    """Where a cross is drawn: just inside the worse end of the vertical axis."""
    worse, better = (y.high, y.low) if mode == "min" else (y.low, y.high)
    return worse * (better / worse) ** 0.03 if y.log else worse + 0.03 * (better - worse)


def _band_of_steps(result: SweepResult, metric: str) -> Band:
    """A metric that is a curve, at one learning rate, up to the step at which a seed diverges."""
    curves = result.metric(metric)[result.finished].astype(np.float64)
    if curves.ndim != 2:
        raise ValueError(
            f"curves need a metric with one value per step, but {metric!r} has the axes "
            f"{result.dims(metric)}."
        )
    alive = np.logical_and.accumulate(np.isfinite(curves).all(axis=0))
    curves = curves[:, alive]
    return Band(curves.mean(axis=0), curves.min(axis=0), curves.max(axis=0))
