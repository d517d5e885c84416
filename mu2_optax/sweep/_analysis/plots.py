"""Pictures of sweeps: a metric against the learning rate, and against steps."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mu2_optax.sweep._analysis.metrics import (
    Band,
    Mode,
    band_of_rates,
    band_of_steps,
    in_words,
    is_flat,
    metric_mode,
    over_rates,
    spans_decades,
    told_by,
)
from mu2_optax.sweep._analysis.styles import MARKERS, Style, in_order, styles
from mu2_optax.sweep._results.result import SweepResult, by_label

_RING = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 1.8, "linestyle": ""}


def plot_sweep(
    results: Any,
    metric: str,
    path: str | Path | None = None,
    *,
    axes: Any = None,
    mode: Mode | None = None,
    title: str | None = None,
    ylim: tuple[float, float] | None = None,
) -> None:
    """Draws a metric's final value against the learning rate, a line for each result.

    A result without a learning rate is a thick line without markers, at one height. A ring is
    around the rate that ``result.info["untouched"]`` names, if it does.

    The line is the mean over seeds, the band goes from the worst seed to the best. A rate at which
    a seed diverged has no point on the line; a cross at the worse edge of the picture marks it. The
    axis of the rates is logarithmic; a rate of 0 is left out, with a warning.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      metric: The metric's name.
      path: Where to write the picture; the suffix gives the format.
      axes: Matplotlib's axes to draw into, instead of ``path``; the legend is then the caller's, by
        ``axes.get_legend_handles_labels()``.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: A title, or None.
      ylim: The limits of the vertical axis, or None to fit the data.
    """
    labelled = over_rates(_check(results))
    figure, axes = _canvas(path, axes)
    better_low = metric_mode(metric, mode) == "min"
    looks = [_style(i, look) for i, look in enumerate(styles(labelled).values())]
    crosses: list[tuple[float, int]] = []
    rings = False
    for index, result in enumerate(labelled.values()):
        if len(result.axes) > 1:
            raise ValueError(
                f"plot_sweep needs sweeps over `learning_rate` alone, got the axes "
                f"{list(result.axes)}; fix the others with `result.select(...)`."
            )
        order = np.argsort(result.learning_rates)
        if (result.learning_rates == 0).any():
            order = order[1:]
            warnings.warn(
                "the learning rate 0 has no place on a logarithmic axis and is not drawn",
                stacklevel=2,
            )
        rates = result.learning_rates[order]
        band, diverged = band_of_rates(result, metric)
        lost = rates[diverged[order]]
        crosses.extend((float(rate), index) for rate in lost)
        axes.update_datalim([(rate, 0.0) for rate in lost], updatey=False)  # no line leads there
        style, name = dict(looks[index]), result.label or metric
        if is_flat(result):
            style |= {"marker": "", "linewidth": 3.0}
            name += " (no rate)"
        _draw(axes, rates, band.take(order), name, style)
        untouched = rates == result.info.get("untouched")
        if untouched.any():
            at, height = rates[untouched], _drawable(band.mean[order][untouched])
            axes.plot(at, height, "o", color=style["color"], zorder=30, **_RING)
            rings = True
    if rings:
        axes.plot([], [], "o", color="#555555", label="published default", **_RING)
    axes.set_xscale("log")
    if better_low and spans_decades(_drawn(axes)):
        axes.set_yscale("log")
    if ylim is not None:
        axes.set_ylim(*ylim)
    for rate, index in crosses:  # side by side, so that each optimizer's cross is seen
        together = [i for r, i in crosses if r == rate]
        shift = (together.index(index) - (len(together) - 1) / 2) * 7
        axes.annotate(
            "×",
            (rate, 1.0 if better_low else 0.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(shift, -6 if better_low else 6),
            textcoords="offset points",
            color=looks[index]["color"],
            ha="center",
            va="center",
            fontsize=11,
            fontweight="bold",
        )
    _finish(figure, axes, "learning rate", metric, title, path, bool(crosses))


def plot_curves(
    results: Any,
    metric: str,
    path: str | Path | None = None,
    *,
    axes: Any = None,
    learning_rate: float | None = None,
    steps: Sequence[float] | None = None,
    mode: Mode | None = None,
    title: str | None = None,
) -> None:
    """Draws a metric that is a curve against steps, at one learning rate, a line for each result.

    The line is the mean over seeds, the band goes from the lowest seed to the highest; a line ends
    where a seed diverges.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      metric: The metric's name.
      path: Where to write the picture; the suffix gives the format.
      axes: Matplotlib's axes to draw into, instead of ``path``; the legend is then the caller's, by
        ``axes.get_legend_handles_labels()``.
      learning_rate: The rate; if None, each rate of a single result is a line.
      steps: The step of each value of the curve; 1, 2, ... if None.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
        What is better high, such as an accuracy, gets no logarithmic axis.
      title: A title, or None.
    """
    labelled = _check(results)
    if learning_rate is not None:
        lines = {
            name: result.select(learning_rate=learning_rate) for name, result in labelled.items()
        }
    elif len(labelled) == 1:
        (result,) = labelled.values()
        lines = {
            f"{rate:g}": result.select(learning_rate=float(rate)) for rate in result.learning_rates
        }
    else:
        raise ValueError(
            "`learning_rate` must be given to compare several results, for example "
            f"learning_rate={next(iter(labelled.values())).learning_rates[0]:g}."
        )
    figure, axes = _canvas(path, axes)
    cut = False
    by_rate = learning_rate is None
    looks = in_order(len(lines)) if by_rate else list(styles(lines).values())
    for index, (name, line) in enumerate(lines.items()):
        if not line.metrics or not line.finished.any():  # nothing to draw yet, or ever
            continue
        band, ends = band_of_steps(line, metric)
        length, end = line.metric(metric).shape[-1], len(band.mean)
        if steps is not None and len(steps) != length:
            raise ValueError(
                f"`steps` must have a number for each of the {length} values of {metric!r}, got "
                f"{len(steps)}."
            )
        cut |= ends
        at = np.asarray(range(1, end + 1) if steps is None else steps[:end])
        style = _style(index, looks[index]) | {"marker": ""}
        _draw(axes, at, band, name, style)
        if ends and end:
            last = _drawable(band.mean[-1])
            axes.plot(at[-1], last, "x", color=style["color"], markersize=8)
    if (mode or told_by(metric)) != "max" and spans_decades(_drawn(axes)):
        axes.set_yscale("log")
    heading = "learning rate" if learning_rate is None else None
    _finish(figure, axes, "step", metric, title, path, cut, heading)


def _check(results: Any) -> dict[str, SweepResult]:
    labelled = by_label(results)
    if not labelled:
        raise ValueError("there is nothing to plot: `results` is empty.")
    return labelled


def _style(place: int, look: Style) -> dict[str, Any]:
    """A look in Matplotlib's words; the first line is in front."""
    return {
        "color": look.color,
        "marker": MARKERS[look.marker][0],
        "linestyle": (0, look.dash) if look.dash else "-",
        "markersize": 5,
        "linewidth": 2.2 if place == 0 else 1.6,
        "zorder": 20 - place,
    }


def _canvas(path: str | Path | None, axes: Any) -> tuple[Any, Any]:
    """A new figure and its axes, or no figure and the axes that were given.

    The figure is 1600 pixels wide and has its own canvas: pyplot's state and backend stay as
    they are.
    """
    if (path is None) == (axes is None):
        raise ValueError(
            f"`path` or `axes` must be given, one of the two, got {path!r} and {axes!r}."
        )
    if axes is not None:
        return None, axes
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModuleNotFoundError("plots need matplotlib: `pip install matplotlib`") from error
    figure = Figure(figsize=(8, 4.4), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _draw(axes: Any, at: Any, band: Band, label: str, style: dict[str, Any]) -> None:
    """Draws a line through the means and a band around it."""
    middle, low, high = map(_drawable, band)
    axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(at, middle, label=label, **style)


def _drawable(values: Any) -> Any:
    """Keeps numbers within the reach of Matplotlib, which computes with their differences."""
    return np.clip(values, -1e300, 1e300)


def _drawn(axes: Any) -> Any:
    """The values of all lines."""
    lines = [np.asarray(line.get_ydata(), np.float64) for line in axes.get_lines()]
    return np.concatenate(lines) if lines else np.zeros(0)


def _finish(
    figure: Any,
    axes: Any,
    xlabel: str,
    metric: str,
    title: str | None,
    path: str | Path | None,
    diverged: bool,
    heading: str | None = None,
) -> None:
    """Labels and grid; for a figure of our own a legend beside the data, and the file."""
    axes.set_xlabel(xlabel, fontsize=12)
    axes.set_ylabel(in_words(metric), fontsize=12)
    axes.tick_params(labelsize=11)
    axes.grid(alpha=0.3, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        axes.set_title(title, fontsize=12, loc="left")
    if diverged:
        axes.plot([], [], "x", color="#555555", label="diverged", markersize=7)
    if path is None:
        return
    figure.legend(loc="outside right upper", frameon=False, fontsize=11, title=heading)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
