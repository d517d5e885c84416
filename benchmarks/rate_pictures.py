"""Pictures of what sweeps gave, as `mu2_optax.sweep` draws them."""

from collections.abc import Mapping
from pathlib import Path

import altair as alt

from benchmarks.experiment import Results
from benchmarks.pictures import write_picture
from mu2_optax.sweep import plot_curves, plot_sweep

CURVES = ("test_accuracy_curve", "test_loss_curve")


def draw_rates(
    panels: Mapping[str, Results], title: str, file: Path, ylim: tuple[float, float] = (0.0, 1.0)
) -> None:
    """Draws the test accuracy against the learning rate, panels with these titles side by side."""
    width = 480 if len(panels) == 1 else 600 // len(panels)
    charts = [
        plot_sweep(results, "test_accuracy", title=name or None, ylim=ylim).properties(width=width)
        for name, results in panels.items()
    ]
    write_picture(alt.hconcat(*charts), file, title)


def draw_curves(results: Results, title: str, file: Path) -> None:
    """Draws test accuracy and test loss over the steps, at each learning rate."""
    first = next(iter(results.values()))
    last, count = first.info["context"]["steps"], first.metric(CURVES[0]).shape[-1]
    steps = [last * i / (count - 1) for i in range(count)]
    rows = []
    for curve in CURVES:
        charts = [
            plot_curves(
                results, curve, learning_rate=rate, steps=steps, title=f"learning rate {rate:g}"
            ).properties(width=200, height=150)
            for rate in first.learning_rates.tolist()
        ]
        rows.append(alt.hconcat(*charts))
    write_picture(alt.vconcat(*rows), file, title)
