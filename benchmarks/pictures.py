"""The pictures of the experiments."""

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from mu2_optax.sweep import SweepResult
from mu2_optax.sweep.plots import COLORS, plot_sweep


def against_rate(sweeps: dict[str, SweepResult], path: Path, *, title: str) -> None:
    """Test accuracy against the learning rate, a line for each optimizer."""
    plot_sweep(sweeps, "test_accuracy", path, title=title, ylim=(0.0, 1.0))


def side_by_side(panels: dict[str, dict[str, SweepResult]], path: Path, *, title: str) -> None:
    """Test accuracy against the learning rate in several panels, for more lines than colours."""
    figure = Figure(figsize=(8, 4.8), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    diverged = False
    for axes, (subtitle, sweeps) in zip(grid, panels.items(), strict=True):
        for index, (name, result) in enumerate(sweeps.items()):
            values = result.final("test_accuracy")
            style = {
                "color": COLORS[index % len(COLORS)],
                "marker": "osv^DPX*<>p"[index],
                "linestyle": "-" if index < len(COLORS) else "--",
                "linewidth": 2.2 if name.startswith("μ²") else 1.3,
                "markersize": 4.5,
                "zorder": 30 - index,
            }
            axes.plot(result.learning_rates, values.mean(axis=1), label=name, **style)
            lost = result.learning_rates[~np.isfinite(values).all(axis=1)]
            diverged |= bool(len(lost))
            axes.plot(lost, np.full(len(lost), 0.02), "x", color=style["color"], markersize=7)
        axes.set_xscale("log")
        axes.set_ylim(0, 1)
        axes.set_title(subtitle, fontsize=11)
        axes.set_xlabel("learning rate", fontsize=11)
        axes.grid(alpha=0.3, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=10)
    grid[0].set_ylabel("test accuracy", fontsize=11)
    handles, labels = grid[0].get_legend_handles_labels()
    if diverged:
        handles += grid[0].plot([], [], "x", color="#555555")
        labels.append("diverged")
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def over_steps(
    sweeps: dict[str, SweepResult],
    steps: np.ndarray,
    path: Path,
    *,
    title: str,
    rates: tuple[float, ...] = (0.01, 1.0, 100.0),
) -> None:
    """Test accuracy and test loss over the steps, at three learning rates; means over seeds."""
    known = next(iter(sweeps.values())).learning_rates
    rates = tuple(rate for rate in rates if np.isclose(known, rate).any()) or tuple(known[:3])
    figure = Figure(figsize=(8, 5), dpi=200, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(2, len(rates), sharex=True, sharey="row", squeeze=False)
    for column, rate in enumerate(rates):
        for row, metric in enumerate(("test_accuracy", "test_loss")):
            axes = grid[row, column]
            for index, (name, result) in enumerate(sweeps.items()):
                curve = result.select(learning_rate=rate).metric(metric).mean(axis=0)
                axes.plot(
                    steps,
                    np.where(np.isfinite(curve), curve, np.nan),
                    color=COLORS[index % len(COLORS)],
                    linewidth=2.2 if index == 0 else 1.4,
                    zorder=20 - index,
                    label=name if row == column == 0 else None,
                )
            axes.grid(alpha=0.3, linewidth=0.6)
            axes.spines[["top", "right"]].set_visible(False)
            axes.tick_params(labelsize=10)
        grid[0, column].set_title(f"learning rate {rate:g}", fontsize=11)
        grid[1, column].set_xlabel("step", fontsize=11)
    for axes in grid[1]:
        axes.set_yscale("log")
        axis = axes.yaxis
        low, high = grid[1, 0].get_ylim()
        between = (1.0,) if high > 100 * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=between, numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    grid[0, 0].set_ylabel("test accuracy", fontsize=11)
    grid[1, 0].set_ylabel("test loss", fontsize=11)
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
