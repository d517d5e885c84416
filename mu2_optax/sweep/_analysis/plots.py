"""Pictures of sweeps: a metric against the learning rate, and against steps."""

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mu2_optax.sweep._analysis.metrics import (
    Band,
    Mode,
    band_of_rates,
    band_of_steps,
    check_rates_alone,
    implied_mode,
    in_words,
    is_flat,
    metric_mode,
    over_rates,
    spans_decades,
)
from mu2_optax.sweep._analysis.styles import MARKERS, Style, numbered_styles, styles
from mu2_optax.sweep._results.result import Results, SweepResult, by_label

_CROSS = {"ha": "center", "va": "center", "fontsize": 11, "fontweight": "bold"}
_RING = {"markersize": 12, "markerfacecolor": "none", "markeredgewidth": 1.8, "linestyle": ""}


def plot_sweep(
    results: Results,
    metric: str,
    path: str | Path | None = None,
    *,
    axes: Any = None,
    mode: Mode | None = None,
    title: str | None = None,
    ylim: tuple[float, float] | None = None,
) -> None:
    """Draws a metric's final value against the learning rate, a line for each result.

    A result without a learning rate is a thick line without markers, at one height. A ring marks
    the rate in ``result.info["untouched"]``, if there is one.

    The line is the mean over seeds, the band goes from the worst seed to the best. A rate at which
    a seed diverged has no point on the line; a cross at the worse edge of the picture marks it. The
    axis of the rates is logarithmic; a rate of 0 is left out, with a warning.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      metric: The metric's name.
      path: Where to write the picture; the suffix gives the format.
      axes: Matplotlib's axes to draw into, instead of ``path``; the caller then adds the legend,
        with ``axes.get_legend_handles_labels()``.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      title: A title, or None.
      ylim: The limits of the vertical axis, or None to fit the data.
    """
    labelled = over_rates(_labelled(results))
    axes = _canvas(path, axes)
    better_low = metric_mode(metric, mode) == "min"
    options = _line_options(styles(labelled).values())
    crosses: dict[float, list[str]] = {}  # the colours of what diverged at each rate
    rings = False
    for style, result in zip(options, labelled.values(), strict=True):
        check_rates_alone(result, "plot_sweep needs sweeps")
        order = np.argsort(result.learning_rates)
        if (result.learning_rates == 0).any():
            order = order[1:]
            warnings.warn(
                "the learning rate 0 has no place on a logarithmic axis and is not drawn",
                stacklevel=2,
            )
        rates = result.learning_rates[order]
        band, diverged = band_of_rates(result, metric)
        for rate in rates[diverged[order]].tolist():
            crosses.setdefault(rate, []).append(style["color"])
            axes.update_datalim([(rate, 0.0)], updatey=False)  # no line leads there
        name = result.label or metric
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
    if better_low:
        _use_log_scale_if_wide(axes)
    if ylim is not None:
        axes.set_ylim(*ylim)
    for rate, colors in crosses.items():
        _draw_crosses(axes, rate, colors, on_top=better_low)
    _finish(axes, "learning rate", metric, title, path, bool(crosses))


def plot_curves(
    results: Results,
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
      axes: Matplotlib's axes to draw into, instead of ``path``; the caller then adds the legend,
        with ``axes.get_legend_handles_labels()``.
      learning_rate: The rate; if None, each rate of a single result is a line.
      steps: The step of each value of the curve; 1, 2, ... if None.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
        What is better high, such as an accuracy, gets no logarithmic axis.
      title: A title, or None.
    """
    labelled = _labelled(results)
    if learning_rate is not None:
        lines = {name: r.select(learning_rate=learning_rate) for name, r in labelled.items()}
    elif len(labelled) == 1:
        (result,) = labelled.values()
        rates = result.learning_rates.tolist()
        lines = {f"{rate:g}": result.select(learning_rate=rate) for rate in rates}
    else:
        raise ValueError(
            "`learning_rate` must be given to compare several results, for example "
            f"learning_rate={next(iter(labelled.values())).learning_rates[0]:g}."
        )
    axes = _canvas(path, axes)
    cut = False
    heading = "learning rate" if learning_rate is None else None
    options = _line_options(numbered_styles(len(lines)) if heading else styles(lines).values())
    for style, (name, line) in zip(options, lines.items(), strict=True):
        if not line.metrics or not line.finished.any():  # nothing to draw yet, or ever
            continue
        band, diverged = band_of_steps(line, metric)
        length, end = line.metric(metric).shape[-1], len(band.mean)
        if steps is not None and len(steps) != length:
            raise ValueError(
                f"`steps` must have a number for each of the {length} values of {metric!r}, got "
                f"{len(steps)}."
            )
        cut |= diverged
        at = np.arange(1, end + 1) if steps is None else np.asarray(steps[:end])
        _draw(axes, at, band, name, style | {"marker": ""})
        if diverged and end:
            axes.plot(at[-1], _drawable(band.mean[-1]), "x", color=style["color"], markersize=8)
    if (mode or implied_mode(metric)) != "max":
        _use_log_scale_if_wide(axes)
    _finish(axes, "step", metric, title, path, cut, heading)


def _labelled(results: Results) -> dict[str, SweepResult]:
    labelled = by_label(results)
    if not labelled:
        raise ValueError("there is nothing to plot: `results` is empty.")
    return labelled


def _line_options(looks: Iterable[Style]) -> list[dict[str, Any]]:
    """The looks of a picture's lines as Matplotlib's options; the first line is in front."""
    return [
        {
            "color": style.color,
            "marker": MARKERS[style.marker][0],
            "linestyle": (0, style.dash) if style.dash else "-",
            "markersize": 5,
            "linewidth": 1.6 if place else 2.2,
            "zorder": 20 - place,
        }
        for place, style in enumerate(looks)
    ]


def _canvas(path: str | Path | None, axes: Any) -> Any:
    """The axes that were given, or those of a new figure, 1600 pixels wide.

    The figure has its own canvas: pyplot's state and backend stay as they are.
    """
    if (path is None) == (axes is None):
        raise ValueError(
            f"`path` or `axes` must be given, one of the two, got {path!r} and {axes!r}."
        )
    if axes is not None:
        return axes
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModuleNotFoundError("plots need matplotlib: `pip install matplotlib`") from error
    figure = Figure(figsize=(8, 4.4), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def _draw(axes: Any, at: Any, band: Band, label: str, style: dict[str, Any]) -> None:
    """Draws a line through the means and a band around it."""
    middle, low, high = map(_drawable, band)
    axes.fill_between(at, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.plot(at, middle, label=label, **style)


def _draw_crosses(axes: Any, rate: float, colors: Sequence[str], *, on_top: bool) -> None:
    """Draws crosses side by side at the edge of the picture."""
    edge, lift = (1.0, -6) if on_top else (0.0, 6)
    units = (axes.get_xaxis_transform(), "offset points")
    for place, color in enumerate(colors):
        shift = (place - (len(colors) - 1) / 2) * 7
        axes.annotate("×", (rate, edge), (shift, lift), *units, color=color, **_CROSS)


def _drawable(values: Any) -> Any:
    """Keeps numbers small enough for Matplotlib, which computes differences of them."""
    return np.clip(values, -1e300, 1e300)


def _use_log_scale_if_wide(axes: Any) -> None:
    if spans_decades([value for line in axes.get_lines() for value in line.get_ydata()]):
        axes.set_yscale("log")


def _finish(
    axes: Any,
    xlabel: str,
    metric: str,
    title: str | None,
    path: str | Path | None,
    diverged: bool,
    heading: str | None = None,
) -> None:
    """Adds labels and a grid; to a figure of our own also a legend, and writes the file."""
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
    axes.figure.legend(loc="outside right upper", frameon=False, fontsize=11, title=heading)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    axes.figure.savefig(path)
