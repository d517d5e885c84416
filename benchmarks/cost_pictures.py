"""Pictures of what a step costs, from the committed results.

    python -m benchmarks.cost_pictures      # in a few seconds

Draws ``figure.png`` in the folders of ``benchmarks.step_cost``, ``benchmarks.step_profile`` and
``benchmarks.scaling``, without measuring anything.
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import scaling
from benchmarks.cost_tables import OURS
from benchmarks.files import RESULTS, read_rows
from benchmarks.pictures import write_picture

MARKS = ("o", "s", "^", "D", "P")
PARTS = ("products", "activations", "params and state", "copies", "call")
COLORS = ("#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#999999")


def draw_step_cost(file: Path, picture: Path, dtypes: Sequence[str] = ("float32",)) -> None:
    """The time of a step over that of SGD: a row for each optimizer, a mark for each model."""
    every = read_rows(file)
    names = list(dict.fromkeys(row["optimizer"] for row in every))
    models = list(dict.fromkeys(row["model"] for row in every))
    height = 0.28 * len(names) + 1.2
    figure = Figure(figsize=(5.6, height * len(dtypes) + 1), layout="constrained")
    panels = figure.subplots(len(dtypes), 1, sharex=True, squeeze=False)[:, 0]
    for dtype, panel in zip(dtypes, panels, strict=True):
        for number, model in enumerate(models):
            own = [row for row in every if row["model"] == model and row["dtype"] == dtype]
            x, y = [float(row["time"]) for row in own], [names.index(r["optimizer"]) for r in own]
            panel.plot(x, y, MARKS[number], color=f"C{number}", ms=6, alpha=0.8, label=model)
        panel.set_yticks(range(len(names)), names)
        panel.get_yticklabels()[names.index(OURS)].set_fontweight("bold")
        panel.set(xscale="log", ylim=(len(names) - 0.5, -0.5), title=dtype)
        panel.set_xticks([1, 2, 3, 5, 10], ["1", "2", "3", "5", "10"])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[-1].set_xlabel("time of a step ÷ that of SGD")
    entries = panels[0].get_legend_handles_labels()
    figure.legend(*entries, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    write_picture(figure, picture)


def draw_profile(file: Path, picture: Path) -> None:
    """Where the time of a step goes, in percents of its gradients; a panel for each model."""
    every = read_rows(file)
    models = list(dict.fromkeys(row["model"] for row in every))
    figure = Figure(figsize=(5.6, 1.45 * len(models) + 0.8), layout="constrained")
    for panel, model in zip(figure.subplots(len(models), 1), models, strict=True):
        rows = [row for row in every if row["model"] == model]
        start = [0.0] * len(rows)
        for part, color in zip(PARTS, COLORS, strict=True):
            values = [float(row[part]) for row in rows]
            panel.barh([r["optimizer"] for r in rows], values, left=start, color=color, label=part)
            start = [a + b for a, b in zip(start, values, strict=True)]
        panel.axvline(100, color="black", lw=0.8)
        panel.invert_yaxis()
        panel.set_title(model, fontsize=9)
        panel.tick_params(labelsize=8)
    panel.set_xlabel("% of the time of its gradients")
    entries = panel.get_legend_handles_labels()
    figure.legend(*entries, loc="outside upper center", ncols=3, frameon=False, fontsize=8)
    write_picture(figure, picture)


def main(results: Path = RESULTS) -> None:
    """Draws them all."""
    cost, profile, grows = (results / name for name in ("step_cost", "step_profile", "scaling"))
    draw_step_cost(cost / "results.csv", cost / "figure.png", ("float32", "bfloat16"))
    draw_profile(profile / "results.csv", profile / "figure.png")
    scaling.draw(read_rows(grows / "results.csv"), grows / "figure.png")


if __name__ == "__main__":
    main()
