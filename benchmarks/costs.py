"""Tables and pictures of what a step costs, from the committed results.

    python -m benchmarks.costs      # in a few seconds

Draws ``figure.png`` in the folders of ``benchmarks.step_cost``, ``benchmarks.step_profile`` and
``benchmarks.scaling``, without measuring anything; the tables are for ``benchmarks.tables``.
"""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import scaling
from benchmarks.files import RESULTS, read_rows
from benchmarks.pictures import write_picture
from benchmarks.self_tuning.rows import Rows

OURS, ADAM = "mu2_auto", "Adam"
MARKS = ("o", "s", "^", "D", "P")
PARTS = ("products", "activations", "params and state", "copies", "call")
COLORS = ("#56B4E9", "#009E73", "#D55E00", "#CC79A7", "#999999")


def beside_adam_rows(file: Path, dtype: str = "float32") -> Rows:
    """A step of ``mu2_auto`` divided by one of Adam, for each model of ``benchmarks.step_cost``."""
    rows = [row for row in read_rows(file) if row["dtype"] == dtype]
    found = {(row["model"], row["optimizer"]): row for row in rows}
    body = []
    for model in dict.fromkeys(row["model"] for row in rows):
        own, adam = found[model, OURS], found[model, ADAM]
        ratio = lambda column, own=own, adam=adam: float(own[column]) / float(adam[column])
        body.append([model, *(f"{ratio(name):.2f}" for name in ("time", "state", "peak"))])
        body[-1] += [f"{ratio('compile'):.1f}", f"{float(adam['milliseconds']):.3g} ms"]
    return ["mu2_auto ÷ Adam", "time", "state", "peak memory", "compilation", "Adam's step"], body


def every_step_rows(file: Path, dtype: str = "float32") -> Rows:
    """The time of a step over that of SGD, for each optimizer and model; gradients and state too.

    State and compilation are those on the first model that is a network.
    """
    rows = [row for row in read_rows(file) if row["dtype"] == dtype]
    models = list(dict.fromkeys(row["model"] for row in rows))
    body = []
    for name in dict.fromkeys(row["optimizer"] for row in rows):
        own = {row["model"]: row for row in rows if row["optimizer"] == name}
        network = own[models[1]]
        body.append([name, network["gradients"], f"{float(network['state']):.1f}"])
        body[-1] += [network["compile"], *(own[model]["time"] for model in models)]
    return ["", "gradients", "state", "compilation", *(f"time, {model}" for model in models)], body


def pytorch_rows(folder: Path) -> Rows:
    """How many times as fast as eager PyTorch each way to train is, by the number of cores."""
    files = sorted(folder.glob("cores_*.csv"))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for file in files:
        for row in read_rows(file):
            times = [f"{float(row[f'times_{name}']):.2g}" for name in ("eager", "low", "high")]
            if row["way"] != "PyTorch, eager":
                text = f"{times[0]} ({times[1]}–{times[2]})"
                cells.setdefault((row["model"], row["way"]), {})[file.stem] = text
    body = [[*names, *(own.get(file.stem, "") for file in files)] for names, own in cells.items()]
    order = list(dict.fromkeys(line[0] for line in body))
    body.sort(key=lambda line: order.index(line[0]))
    cores = [file.stem.removeprefix("cores_") for file in files]
    return ["", "", *(f"{n} core{'s' * (n != '1')}" for n in cores)], body


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
