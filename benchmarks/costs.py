"""Tables and pictures of what a step costs, from the committed results.

    python -m benchmarks.costs      # in a few seconds

Draws ``figure.png`` in the folders of ``benchmarks.step_cost`` and ``benchmarks.scaling``, without
 measuring anything; the tables are for ``benchmarks.tables``.
"""

from collections.abc import Sequence
from pathlib import Path

import altair as alt

from benchmarks.files import RESULTS, read_rows
from benchmarks.pictures import (
    COLORS,
    Row,
    axis,
    data,
    lines,
    looks,
    write_picture,
)
from benchmarks.self_tuning.rows import Rows

OURS, ADAM = "mu2_auto", "Adam"
GROWTH = {
    "params": ("params", "ms for a step"),
    "t": ("t", "µs for a step"),
    "leaves": ("leaves", "s to compile"),
    "lanes": ("rates side by side", "ms a rate, for 100 steps"),
}


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


def draw_step_cost(rows: Sequence[Row], file: Path, dtypes: Sequence[str]) -> None:
    """The time of a step over that of SGD: a row for each optimizer, a mark for each model."""
    names = list(dict.fromkeys(row["optimizer"] for row in rows))
    models = list(dict.fromkeys(row["model"] for row in rows))
    numbers = [row | {"time": float(row["time"])} for row in rows]
    scale = alt.Scale(type="log", domain=[0.85, 12.5])
    x = alt.X(
        "time:Q",
        title="time of a step ÷ that of SGD",
        scale=scale,
        axis=alt.Axis(values=[1, 2, 3, 5, 10], format="~g"),
    )
    entry = alt.Legend(title=None, orient="bottom", columns=3, labelLimit=300)
    looks = {"scale": alt.Scale(domain=models, range=COLORS), "legend": entry}
    marks = alt.Scale(domain=models)
    chart = alt.Chart(width=330, height=alt.Step(18)).mark_point(filled=True, size=70, opacity=0.85)
    chart = chart.encode(
        x,
        alt.Y("optimizer:N", title=None, sort=names, axis=alt.Axis(grid=True, ticks=False)),
        color=alt.Color("model:N", **looks),
        shape=alt.Shape("model:N", scale=marks, legend=entry),
    )
    facet = alt.Facet("dtype:N", sort=list(dtypes), header=alt.Header(title=None, labelFontSize=12))
    write_picture(chart.facet(facet, data=data(numbers), columns=1), file)


def draw_growth(rows: Sequence[Row], file: Path) -> None:
    """A panel for each study, both axes logarithmic."""
    points = [
        {"study": row["study"], "line": row["optimizer"], "x": float(row["at"])}
        | {"y": float(row["value"])}
        for row in rows
    ]
    styles = looks(list(dict.fromkeys(row["optimizer"] for row in rows)))
    panels = []
    for study, (x_title, y_title) in GROWTH.items():
        own = [point for point in points if point["study"] == study]
        values = [point["y"] for point in own]
        # Flat over t: a scale that would show a factor of two.
        ends = (min(values) / 3, 3 * max(values)) if study == "t" and values else None
        x = axis(alt.X, "x", x_title, log=True)
        y = axis(alt.Y, "y", y_title, ends, log=True)
        panels.append(lines(own, x, y, styles, marks=True, legend=3))
    rows_of_two = [alt.hconcat(*panels[i : i + 2]) for i in (0, 2)]
    write_picture(alt.vconcat(*rows_of_two), file)


def main(results: Path = RESULTS) -> None:
    """Draws them all."""
    of = lambda name: (read_rows(results / name / "results.csv"), results / name / "figure.png")
    draw_step_cost(*of("step_cost"), ("float32", "bfloat16"))
    draw_growth(*of("scaling"))


if __name__ == "__main__":
    main()
