"""Pictures of the results: profiles, tasks, factors, and one for the front page."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.optimizers import AUTO, OURS, PEERS, REFERENCE, SPECTRAL
from benchmarks.pictures import write_picture
from benchmarks.self_tuning.analysis import LONGEST, Results, behind, profile
from benchmarks.self_tuning.goals import factor_margins, margins
from benchmarks.self_tuning.roles import CALIBRATED, TUNED, UNTOUCHED, counted
from benchmarks.self_tuning.rows import ROLES
from benchmarks.self_tuning.task import CONFIRMATION, SIDES
from benchmarks.self_tuning.tasks import TASKS, VARIANTS

SHOWN = 0.1  # the colours end at 10 % behind
EDGE = 0.3  # marks end at 30 % behind, and at 30 % ahead
BEST = "best"  # in the place of a peer: the one that validates best in a role
LEVELS = "% behind the best tuned peer"
# The marks of a picture: whose, in which role, its name there, its shape, colour and size, and how
# far below the line of its task it is drawn, so that marks at the same place are all seen.
Marks = tuple[tuple[str, str, str, tuple[str, str, int], float], ...]
FRONT: Marks = (
    (REFERENCE, CALIBRATED, "AdamW with cosine, one rate for all", ("s", "#56B4E9", 7), -0.24),
    (BEST, UNTOUCHED, "the best other at its defaults", ("^", "#009E73", 7), 0.24),
    (SPECTRAL, UNTOUCHED, "mu2_auto(spectral=True)", ("P", "#7B2D8B", 9), 0.0),
    (AUTO, UNTOUCHED, "mu2_auto()", ("o", "#D55E00", 9), 0.0),
)
BESIDE: Marks = (
    ("prodigy_cosine", UNTOUCHED, "Prodigy with cosine, untouched", ("^", "#009E73", 7), 0.22),
    (REFERENCE, UNTOUCHED, "AdamW with cosine, untouched", ("s", "#56B4E9", 7), -0.22),
    (REFERENCE, CALIBRATED, "AdamW with cosine, calibrated", ("D", "#0072B2", 7), 0.0),
    (SPECTRAL, UNTOUCHED, "mu2_auto(spectral=True), untouched", ("P", "#7B2D8B", 9), 0.0),
    (AUTO, UNTOUCHED, "mu2_auto(), untouched", ("o", "#D55E00", 10), 0.0),
)


def draw(results: Results, folder: Path) -> None:
    """Draws all pictures into a folder."""
    draw_front(results, folder / "front.png")
    draw_beside(results, folder / "beside.png")
    draw_profiles(results, folder / "profiles.png")
    draw_tasks(results, folder / "tasks.png")
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
    figure = Figure(figsize=(5, 0.28 * max(len(found), 1) + 1.75), layout="constrained")
    axes = figure.subplots()
    _draw_marks(axes, found, FRONT)
    axes.set_xlabel(f"← better     {LEVELS}", loc="right")  # centred, it would be cut off
    axes.set_xticks([-10, 0, 10, 20, 30], ["−10", "0", "10", "20", "30\nor more"])
    figure.legend(*_entries(axes), loc="outside upper left", frameon=False)
    write_picture(figure, file)


def draw_beside(results: Results, file: Path) -> None:
    """The tasks of every side, with the marks of more peers."""
    points = {side: behind_tuned(results, side, BESIDE) for side in SIDES}
    sizes = [max(len(points[side]), 1) for side in SIDES]
    figure = Figure(figsize=(6.4, 0.4 * sum(sizes) + 2.6), layout="constrained")
    panels = figure.subplots(len(SIDES), 1, sharex=True, height_ratios=sizes)
    for side, axes in zip(SIDES, panels, strict=True):
        _draw_marks(axes, points[side], BESIDE)
        axes.set_title(f"{side} tasks: {len(points[side])} of {len(counted(side))}", fontsize=11)
    panels[-1].set_xlabel(
        f"{LEVELS}; left of 0: ahead of it\n"
        f"(.0025 of accuracy is 1 %;\n{100 * EDGE:.0f} % and more are at the edge)"
    )
    figure.legend(*_entries(panels[0]), loc="outside upper center", ncols=2, frameon=False)
    write_picture(figure, file)


def _draw_marks(axes: Axes, found: dict[str, list[float | None]], marks: Marks) -> None:
    """A row for each task, the marks in it; what is beyond the edge is drawn on it."""
    for number, (_, _, label, (mark, color, size), below) in enumerate(marks):
        known = [(i + below, row[number]) for i, row in enumerate(found.values())]
        places = [(i, 100 * float(np.clip(v, -EDGE, EDGE))) for i, v in known if v is not None]
        y, x = np.reshape(places, (-1, 2)).T
        axes.plot(x, y, mark, color=color, ms=size, mec="white", mew=0.6, label=label)
    axes.axvline(0, color="black", lw=1, zorder=1)
    kinds = [TASKS[name].kind.replace(" without", "\nwithout") for name in found]
    axes.set_yticks(range(len(found)), kinds)
    axes.set_ylim(max(len(found), 1) - 0.5, -0.5)
    axes.set_xlim(right=100 * EDGE + 1.5)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _entries(axes: Axes) -> list[list[Any]]:
    """What a legend shows: ours first, which are drawn last."""
    return [entry[::-1] for entry in axes.get_legend_handles_labels()]


def _style(number: int, peer: str) -> dict[str, object]:
    if peer in OURS:
        style = "-" if peer == AUTO else "--"
        return {"color": "black", "linestyle": style, "linewidth": 2.5, "zorder": 3}
    return {"color": f"C{number % 10}", "linestyle": ("-", "--")[number // 10], "linewidth": 1.2}


def draw_profiles(results: Results, file: Path) -> None:
    """The share of the tasks done within τ times the steps of the quickest."""
    figure = Figure(figsize=(11, 9), layout="constrained")
    panels = figure.subplots(len(SIDES), 3, sharex=True, sharey=True)
    taus = np.linspace(1, LONGEST, 301)
    entries = {}
    for side, row in zip(SIDES, panels, strict=True):
        for role, axes in zip(ROLES, row, strict=True):
            names = results.scored(role, side)
            times = results.ratios(role, names)
            for number, peer in enumerate(PEERS):
                if peer in times:
                    shares = [profile(times[peer], tau) for tau in taus]
                    (line,) = axes.step(taus, shares, where="post", **_style(number, peer))
                    entries[PEERS[peer].title] = line
            axes.set(title=f"{side}, {role}: {len(names)} tasks", xlim=(1, LONGEST), ylim=(0, 1.02))
            axes.grid(alpha=0.3)
        row[0].set_ylabel("share of the tasks")
    for axes in panels[-1]:
        axes.set_xlabel("times the steps of the quickest")
    if entries:
        figure.legend(
            entries.values(),
            entries,
            loc="outside lower center",
            ncols=6,
            fontsize=8,
            frameon=False,
        )
    write_picture(figure, file)


def draw_tasks(results: Results, file: Path) -> None:
    """How far each optimizer is behind the best tuned peer, task by task and role by role."""
    names = [name for side in SIDES for name in counted(side)]
    figure = Figure(figsize=(13, 11), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    image = None
    for role, axes in zip(ROLES, panels, strict=True):
        table = np.full((len(names), len(PEERS)), np.nan)
        for i, name in enumerate(names):
            peer = results.best_tuned(name)
            best = results.figure(TUNED, name, peer) if peer else None
            for j, other in enumerate(PEERS):
                known = results.figure(role, name, other)
                if best and known:
                    table[i, j] = min(behind(TASKS[name], known.mean, best.mean), 9.99)
        image = axes.imshow(table, cmap="RdYlGn_r", vmin=-SHOWN, vmax=SHOWN, aspect="auto")
        for (i, j), value in np.ndenumerate(table):
            if not np.isnan(value):
                axes.text(j, i, f"{100 * value:.0f}", ha="center", va="center", fontsize=5.5)
        axes.set_xticks(range(len(PEERS)), [p.title for p in PEERS.values()], rotation=90, size=7)
        axes.set_yticks(range(len(names)), names, size=7)
        for height in np.cumsum([len(counted(side)) for side in SIDES[:-1]]):
            axes.axhline(height - 0.5, color="black")
        axes.set_title(role, fontsize=10)
    figure.suptitle("% behind the best tuned peer (.0025 of accuracy is 1 %)", fontsize=11)
    if image is not None:
        figure.colorbar(image, ax=panels, shrink=0.5)
    write_picture(figure, file)


def draw_factors(results: Results, file: Path) -> None:
    """The factor of ``mu2_auto``, and batch sizes and horizons beside retuned peers."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, found) in enumerate(factor_margins(results).items()):
        known = {1.0: 0.0, **found}
        factors = sorted(known)
        values = [known[factor] for factor in factors]
        left.plot(factors, values, label=name, marker=".", **_style(number, name))
    left.set(xscale="log", xlabel="factor", ylabel="behind the factor 1")
    if left.lines:
        left.legend(fontsize=6, ncols=2, loc="lower left")
    names = sorted({*VARIANTS, *(str(t.variant_of) for t in VARIANTS.values())})
    behind_by = {name: 100 * mean for name, (mean, _) in margins(results, names).items()}
    right.barh(list(behind_by), list(behind_by.values()), color="black")
    right.axvline(3, color="C3", linestyle="--")
    right.set_xlabel("mu2_auto, % behind the best retuned peer")
    write_picture(figure, file)
