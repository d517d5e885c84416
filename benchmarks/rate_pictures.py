"""Pictures of what sweeps gave: one as `mu2_optax.sweep` draws it, or panels with one legend."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from benchmarks.experiment import Results
from benchmarks.pictures import axis, lines, looks, write_picture
from mu2_optax.sweep import plot_sweep

Range = tuple[float, float]


def draw_rates(
    panels: Mapping[str, Results], title: str, file: Path, ylim: Range = (0.0, 1.0)
) -> None:
    """Draws the test accuracy against the learning rate, in panels with these titles."""
    if len(panels) == 1:
        (results,) = panels.values()
        write_picture(plot_sweep(results, "test_accuracy", ylim=ylim), file, title)
        return
    rows = [
        row
        for panel, results in panels.items()
        for name, result in results.items()
        for row in points(panel, name, result.learning_rates, result.metric("test_accuracy"))
    ]
    x = axis(alt.X, "x", "learning rate", log=True)
    y = axis(alt.Y, "y", "test accuracy", ylim)
    styles = looks(list(next(iter(panels.values()))))
    size = (600 // len(panels), 230)
    chart = lines(rows, x, y, styles, size=size, columns=len(panels), marks=True, legend=5)
    write_picture(chart, file, title)


def draw_curves(results: Results, title: str, file: Path) -> None:
    """Draws test accuracy and test loss over the steps, at each learning rate."""
    charts = []
    for metric, ylim in (("test accuracy", (0.0, 1.0)), ("test loss", None)):
        rows = []
        for name, result in results.items():
            curves = result.metric(f"{metric.replace(' ', '_')}_curve")
            steps = np.linspace(0, result.info["context"]["steps"], curves.shape[-1])
            for rate, own in zip(result.learning_rates, curves, strict=True):
                rows += points(f"learning rate {rate:g}", name, steps, own.T)
        x = axis(alt.X, "x", "step")
        y = axis(alt.Y, "y", metric, ylim, log=ylim is None)
        own = {"size": (190, 150), "columns": len(result.learning_rates), "legend": 7}
        charts.append(lines(rows, x, y, looks(list(results)), **own))
    write_picture(alt.vconcat(*charts), file, title)


def points(panel: str, line: str, x: Any, values: Any) -> list[dict[str, Any]]:
    """Rows of a chart: the mean over the last axis at each x, and a gap where it is not finite."""
    means = np.mean(values, axis=-1)
    heights = [float(mean) if np.isfinite(mean) else None for mean in means]
    places = zip(x, heights, strict=True)
    return [{"panel": panel, "line": line, "x": float(a), "y": b} for a, b in places]
