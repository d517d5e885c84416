"""Pictures of the results: profiles, factors, and one for the front page."""

from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from benchmarks.optimizers import AUTO, OURS, PEERS, REFERENCE, SPECTRAL
from benchmarks.pictures import (
    BLUE,
    COLORS,
    GREEN,
    ORANGE,
    SKY,
    Look,
    axis,
    data,
    lines,
    looks,
    write_picture,
)
from benchmarks.self_tuning.analysis import LONGEST, Results, behind, profile
from benchmarks.self_tuning.goals import VARIANT_LIMIT, factor_margins, margins
from benchmarks.self_tuning.roles import CALIBRATED, TUNED, UNTOUCHED, counted
from benchmarks.self_tuning.rows import ROLES
from benchmarks.self_tuning.task import CONFIRMATION, SIDES
from benchmarks.self_tuning.tasks import TASKS, VARIANTS

EDGE = 0.3  # marks end at 30 % behind, and at 30 % ahead
BEST = "best"  # in the place of a peer: the one that validates best in a role
LEVELS = "% behind the best tuned peer"
# The marks of a picture: whose, in which role, its name there, its shape, colour and size, and how
# far below the line of its task it is drawn, so that marks at the same place are all seen.
Marks = tuple[tuple[str, str, str, tuple[str, str, int], int], ...]
CROSS = ("cross", "#7B2D8B", 100)
FRONT: Marks = (
    (AUTO, UNTOUCHED, "mu2_auto()", ("circle", ORANGE, 90), 0),
    (SPECTRAL, UNTOUCHED, "mu2_auto(spectral=True)", CROSS, 0),
    (BEST, UNTOUCHED, "the best other at its defaults", ("triangle-up", GREEN, 60), 6),
    (REFERENCE, CALIBRATED, "AdamW with cosine, one rate for all", ("square", SKY, 50), -6),
)
BESIDE: Marks = (
    (AUTO, UNTOUCHED, "mu2_auto(), untouched", ("circle", ORANGE, 90), 0),
    (SPECTRAL, UNTOUCHED, "mu2_auto(spectral=True), untouched", CROSS, 0),
    (REFERENCE, CALIBRATED, "AdamW with cosine, calibrated", ("diamond", BLUE, 60), 0),
    (REFERENCE, UNTOUCHED, "AdamW with cosine, untouched", ("square", SKY, 50), -6),
    ("prodigy_cosine", UNTOUCHED, "Prodigy with cosine, untouched", ("triangle-up", GREEN, 60), 6),
)


def draw(results: Results, folder: Path) -> None:
    """Draws all pictures into a folder."""
    draw_front(results, folder / "front.png")
    draw_beside(results, folder / "beside.png")
    draw_profiles(results, folder / "profiles.png")
    draw_factors(results, folder / "factors.png")


def behind_tuned(results: Results, side: str, marks: Marks) -> dict[str, list[float | None]]:
    """How far each mark is behind the best tuned peer, on the tasks of a side that have it.

    None where an optimizer was not run.
    """
    found = {}
    for name in margins(results, counted(side)):
        best = results.figure(TUNED, name, str(results.best_tuned(name)))
        assert best is not None  # or there would be no margin
        peers = [(results.best_peer(role, name) if p == BEST else p, role) for p, role, *_ in marks]
        figures = [results.figure(role, name, peer) if peer else None for peer, role in peers]
        found[name] = [f and behind(TASKS[name], f.mean, best.mean) for f in figures]
    return found


def draw_front(results: Results, file: Path) -> None:
    """Few marks, and only the tasks that nothing was chosen on; can be read on a phone."""
    found = behind_tuned(results, CONFIRMATION, FRONT)
    write_picture(marks_chart(found, FRONT, 1, f"← better · {LEVELS}"), file)


def draw_beside(results: Results, file: Path) -> None:
    """The tasks of every side, with the marks of more peers."""
    panels = []
    for side in SIDES:
        found = behind_tuned(results, side, BESIDE)
        title = f"{side} tasks: {len(found)} of {len(counted(side))}"
        panels.append(marks_chart(found, BESIDE, 2, "").properties(title=title))
    below = [f"{LEVELS}; left of 0: ahead of it", "(.0025 of accuracy is 1 %)"]
    note = alt.Title(below, orient="bottom", anchor="middle", fontWeight="normal", fontSize=12)
    write_picture(alt.vconcat(*panels, title=note), file)


def marks_chart(
    found: dict[str, list[float | None]], marks: Marks, legend: int, title: str
) -> alt.LayerChart:
    """A row for each task, the marks in it; what is beyond the edge is drawn on it."""
    names, shapes = [mark[2] for mark in marks], [mark[3] for mark in marks]
    rows = [
        {"task": TASKS[task].kind, "mark": names[i], "by": 100 * min(max(v, -EDGE), EDGE), "at": i}
        for task, values in found.items()
        for i, v in enumerate(values)
        if v is not None
    ]
    kinds = [TASKS[task].kind for task in found]
    low = min((row["by"] for row in rows), default=0.0)
    places = alt.Axis(
        values=[-30, -20, -10, 0, 10, 20, 30], labelExpr="datum.value == 30 ? '≥ 30' : datum.label"
    )
    scale = alt.Scale(domain=[min(low, -10) - 2, 100 * EDGE + 2], nice=False)
    x = alt.X("by:Q", title=title, scale=scale, axis=places)
    rows_axis = alt.Axis(grid=True, labelLimit=300, ticks=False, domain=False)
    y = alt.Y("task:N", title=None, sort=kinds, axis=rows_axis)
    entry = alt.Legend(title=None, orient="top", columns=legend, labelLimit=400)
    of = lambda values: alt.Scale(domain=names, range=values)
    layers = [alt.Chart(data([{"by": 0}])).mark_rule(strokeWidth=1).encode(x=x)]
    for i in reversed(range(len(marks))):  # ours are drawn last
        drawn = alt.Chart(data([row for row in rows if row["at"] == i]))
        drawn = drawn.mark_point(
            filled=True, opacity=1, stroke="white", strokeWidth=0.7, yOffset=marks[i][4]
        )
        drawn = drawn.encode(
            x=x,
            y=y,
            color=alt.Color("mark:N", scale=of([c for _, c, _ in shapes]), legend=entry),
            shape=alt.Shape("mark:N", scale=of([shape for shape, _, _ in shapes]), legend=entry),
            size=alt.value(marks[i][3][2]),
        )
        layers.append(drawn)
    return alt.layer(*layers, width=280, height=alt.Step(24))


def styles() -> dict[str, Look]:
    """How the lines of all optimizers look: ours black, the others in colours."""
    others = looks([PEERS[peer].title for peer in PEERS if peer not in OURS], COLORS[:6])
    ours = {PEERS[peer].title: ("#000000", (4, 2) * i) for i, peer in enumerate(OURS)}
    return ours | others


def draw_profiles(results: Results, file: Path) -> None:
    """The share of the tasks done within τ times the steps of the quickest."""
    taus = np.linspace(1, LONGEST, 121)
    rows = []
    for side in SIDES:
        for role in ROLES:
            names = results.scored(role, side)
            panel = f"{side}, {role}: {len(names)} tasks"
            for peer, times in results.ratios(role, names).items():
                shares = [(tau, profile(times, tau)) for tau in taus.tolist()]
                title = PEERS[peer].title
                rows += [{"panel": panel, "line": title, "x": x, "y": y} for x, y in shares]
    x = axis(alt.X, "x", "times the steps of the quickest", (1, LONGEST))
    y = axis(alt.Y, "y", "share of the tasks", (0, 1))
    write_picture(lines(rows, x, y, styles(), columns=3, legend=6), file)


def draw_factors(results: Results, file: Path) -> None:
    """The factor of ``mu2_auto``, and batch sizes and horizons beside retuned peers."""
    rows = []
    for name, found in factor_margins(results).items():
        known = sorted({1.0: 0.0, **found}.items())
        rows += [{"line": name, "x": factor, "y": value} for factor, value in known]
    x = axis(alt.X, "x", "factor", log=True)
    y = axis(alt.Y, "y", "behind the factor 1")
    names = list(dict.fromkeys(row["line"] for row in rows))
    left = lines(rows, x, y, looks(names), size=(330, 240), marks=True, legend=3)
    names = sorted({*VARIANTS, *(str(t.variant_of) for t in VARIANTS.values())})
    bars: list[dict[str, Any]] = [
        {"task": name, "by": 100 * mean} for name, (mean, _) in margins(results, names).items()
    ]
    if not rows or not bars:
        return
    title = "mu2_auto, % behind the best retuned peer"
    right = alt.Chart(data(bars), width=300, height=240).mark_bar(color="black")
    right = right.encode(alt.X("by:Q", title=title), alt.Y("task:N", title=None))
    limit = alt.Chart(data([{"by": 100 * VARIANT_LIMIT}])).mark_rule(color=ORANGE, strokeDash=[4])
    write_picture(left | (right + limit.encode(x="by:Q")), file)
