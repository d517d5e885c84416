"""The two charts: a metric against the learning rate, and against steps."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mu2_optax.sweep._drawing import Axis, draw, fitted_axis, padded
from mu2_optax.sweep._metrics import (
    Band,
    Mode,
    all_rates,
    band_of_rates,
    band_of_steps,
    check_rates_alone,
    implied_mode,
    is_flat,
    metric_mode,
    over_rates,
    spaced,
)
from mu2_optax.sweep._result import Results, SweepResult, by_label
from mu2_optax.sweep._styles import numbered_styles, styles

if TYPE_CHECKING:
    import altair as alt

_VALUES, _MARKERS = 300, 22  # how many values of a curve are drawn, and how many have a marker


def plot_sweep(
    results: Results,
    metric: str,
    *,
    mode: Mode | None = None,
    title: str | None = None,
    ylim: tuple[float, float] | None = None,
) -> "alt.LayerChart":
    """Draws a metric's final value against the learning rate, a line for each result.

    The line is the mean over seeds, the band goes from the worst seed to the best. A result without
    a learning rate is a thick line at one height. A ring marks the rate that was published as the
    default (``result.info["untouched"]``). A rate at which a seed diverged has no point on the
    line, but a cross at the worse edge; so has one that is over ten thousand times as bad as the
    best quarter, for which the axis does not reach.

    A notebook shows the chart: point at a marker for its values, press a name in the legend to hide
    its line, drag to move, turn the wheel with Shift to zoom, and double-click to return.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      metric: The metric's name.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: A title, or None.
      ylim: The ends of the vertical axis, or None to fit the data.

    Returns:
      An Altair chart. ``chart.save("sweep.png")`` writes PNG, SVG, PDF or HTML by the suffix,
      ``chart.properties(width=300)`` changes its size, and ``a | b`` puts two side by side.

    Raises:
      ModuleNotFoundError: If Altair is not installed.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": learning_rate + 1 / learning_rate}
      >>> result = sweep(train, [0.1, 1.0, 10.0], seeds=2, progress=False)
      >>> plot_sweep(result, "loss").save("sweep.svg")  # doctest: +SKIP
    """
    labelled = over_rates(_labelled(results))
    for result in labelled.values():
        check_rates_alone(result, "plot_sweep needs sweeps")
    rates = all_rates(labelled.values())
    if (rates == 0).any():
        warnings.warn(
            "the learning rate 0 has no place on a logarithmic axis and is not drawn", stacklevel=2
        )
    rates = rates[rates > 0]
    bands = {label: band_of_rates(result, metric)[0] for label, result in labelled.items()}
    y = fitted_axis(spaced(metric), bands.values(), metric_mode(metric, mode), ylim=ylim)
    points, marks = [], []
    names, bold = {}, []
    for label, result in labelled.items():
        names[label] = label or spaced(metric)
        if is_flat(result):
            names[label] += " (no rate)"
            bold.append(names[label])
        band, order = bands[label], np.argsort(result.learning_rates)
        for i in order[result.learning_rates[order] > 0]:
            rate = float(result.learning_rates[i])
            point = _point(names[label], rate, band, i, y) | {"bare": is_flat(result)}
            points.append(point)
            if result.finished[i].any() and not y.holds(band.mean[i]):
                reasons = {error for (at, _), error in result.errors.items() if at == i}
                said = "; ".join(sorted(reasons)) or point["mean"] or "not finite"
                marks.append(point | {"kind": "diverged", "y": y.worse, "mean": said})
            elif rate == result.info.get("untouched") and np.isfinite(band.mean[i]):
                marks.append(point | {"kind": "published default"})
    _spread([mark for mark in marks if mark["kind"] == "diverged"], rates)
    looks = dict(zip(names.values(), styles(labelled), strict=True))
    ends = padded(rates.tolist() or [1.0], log=True)
    x = Axis("learning rate", *ends, log=True, ticks=tuple(rates) if len(rates) <= 16 else ())
    return draw(points, marks, looks, x, y, title=title, bold=bold)


def plot_curves(
    results: Results,
    metric: str,
    *,
    learning_rate: float | Mapping[str, float] | None = None,
    steps: Sequence[float] | None = None,
    mode: Mode | None = None,
    title: str | None = None,
) -> "alt.LayerChart":
    """Draws a metric that is a curve against steps, a line for each result.

    The line is the mean over seeds, the band goes from the lowest seed to the highest; a line ends,
    with a cross at the edge, where a seed diverged.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      metric: The metric's name.
      learning_rate: The rate, or a dict with a rate for each label. If None, each rate of a single
        result is a line.
      steps: The step of each value of the curve; if None, those in ``result.info["curve_steps"]``,
        or 1, 2, ...
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
        What is better high, such as an accuracy, gets no logarithmic axis.
      title: A title, or None.

    Returns:
      An Altair chart, as from `plot_sweep`.
    """
    labelled = _labelled(results)
    if learning_rate is not None:
        given = learning_rate if isinstance(learning_rate, Mapping) else {}
        lines = {
            label: result.select(learning_rate=given.get(label, learning_rate))
            if result.axes
            else result
            for label, result in labelled.items()
        }
        looks, legend = dict(zip(lines, styles(lines), strict=True)), None
    elif len(labelled) == 1:
        (result,) = labelled.values()
        rates = result.learning_rates.tolist()
        lines = {f"{rate:g}": result.select(learning_rate=rate) for rate in rates}
        looks, legend = dict(zip(lines, numbered_styles(len(lines)), strict=True)), "learning rate"
    else:
        raise ValueError(
            "`learning_rate` must be given to compare several results, for example "
            f"learning_rate={next(iter(labelled.values())).learning_rates[0]:g}."
        )
    drawn = {name: r for name, r in lines.items() if r.metrics and r.finished.any()}
    bands = {name: band_of_steps(result, metric) for name, result in drawn.items()}
    y = fitted_axis(
        spaced(metric.removesuffix("_curve")),
        [band for band, _ in bands.values()],
        mode or implied_mode(metric) or "min",
        typical=[band.mean[:1] for band, _ in bands.values()],
    )
    points, marks, ends = [], [], [0.0, 1.0]
    for name, (band, diverged) in bands.items():
        at = _steps(drawn[name], metric, steps)
        ends = [min(ends[0], at[0]), max(ends[1], at[-1])]
        marked = _evenly_spaced(len(band.mean), _MARKERS)
        for i in sorted({*_evenly_spaced(len(band.mean), _VALUES), *marked}):
            points.append(_point(name, at[i], band, i, y) | {"bare": i not in marked})
        if diverged:
            place = {"line": name, "x": at[len(band.mean)], "at": f"{at[len(band.mean)]:g}"}
            marks.append(place | {"kind": "diverged", "y": y.worse, "mean": "not finite"})
    return draw(points, marks, looks, Axis("step", *ends), y, title=title, legend=legend)


def _labelled(results: Results) -> dict[str, SweepResult]:
    labelled = by_label(results)
    if not labelled:
        raise ValueError("there is nothing to plot: `results` is empty.")
    return labelled


def _point(line: str, x: float, band: Band, i: int, y: Axis) -> dict[str, Any]:
    """A point of a line: where it is drawn, and what a pointer at it shows."""
    mean, low, high = (float(values[i]) for values in band)
    point = {"line": line, "x": x, "y": y.place(mean), "low": y.place(low), "high": y.place(high)}
    known = np.isfinite(mean)
    texts = {"mean": f"{mean:.4g}", "seeds": f"{low:.4g} to {high:.4g}"} if known else {"mean": ""}
    return point | {"at": f"{x:g}"} | texts


def _spread(crosses: Sequence[dict[str, Any]], rates: Any) -> None:
    """Puts the crosses of several lines at one rate side by side."""
    for rate in {cross["x"] for cross in crosses}:
        sharing = [cross for cross in crosses if cross["x"] == rate]
        for i, cross in enumerate(sharing):
            cross["x"] *= (10 * rates[-1] / rates[0]) ** (0.014 * (i - (len(sharing) - 1) / 2))


def _steps(result: SweepResult, metric: str, steps: Sequence[float] | None) -> list[float]:
    """The step of each value of a curve."""
    count = result.metric(metric).shape[-1]
    if steps is None:
        known = result.info.get("curve_steps") or ()
        steps = known if len(known) == count else range(1, count + 1)
    if len(steps) != count:
        raise ValueError(
            f"`steps` must have a number for each of the {count} values of {metric!r}, got "
            f"{len(steps)}."
        )
    return [float(step) for step in steps]


def _evenly_spaced(end: int, count: int) -> list[int]:
    """At most ``count`` of the indices up to ``end``, the first and the last among them."""
    spaced_out = np.linspace(0, max(end - 1, 0), min(end, count)).round().astype(int)
    return [int(i) for i in np.unique(spaced_out)]
