"""What a step costs in time, by the runs themselves."""

import numpy as np

from benchmarks.self_tuning.analysis import Results
from benchmarks.self_tuning.peers import AUTO, REFERENCE, SPECTRAL
from benchmarks.self_tuning.roles import counted
from benchmarks.self_tuning.task import SIDES

BESIDE = {AUTO: "mu2_auto()", SPECTRAL: "with `spectral`", "muon_cosine": "Muon, cosine"}


def seconds(results: Results, name: str, peer: str) -> float | None:
    """The time of an optimizer's quickest run on a task: without compilation, and least disturbed.

    Runs were made at different hours of a machine that others used too, so their median would say
    more about the others.
    """
    known = [run["seconds"] for cell, run in results.runs[name].items() if cell.peer == peer]
    return min(known) if len(known) > 1 else None


def time_rows(results: Results) -> tuple[list[str], list[list[str]]]:
    """The time of a step with AdamW, and how many times as long the others take."""
    body = []
    ratios: dict[str, list[float]] = {peer: [] for peer in BESIDE}
    for name, task in {n: t for side in SIDES for n, t in counted(side).items()}.items():
        first = seconds(results, name, REFERENCE)
        if first is None:
            continue
        row = [name, f"{1e3 * first / task.steps:.2g} ms"]
        for peer in BESIDE:
            own = seconds(results, name, peer)
            row.append("not run" if own is None else f"{own / first:.1f}")
            ratios[peer] += [] if own is None else [own / first]
        body.append(row)
    if body:
        body.append(["**median** (quartiles)", "", *map(_spread, ratios.values())])
    return ["", "AdamW, cosine", *(f"× {title}" for title in BESIDE.values())], body


def _spread(ratios: list[float]) -> str:
    if not ratios:
        return "not run"
    low, middle, high = np.percentile(ratios, (25, 50, 75))
    return f"**{middle:.1f}** ({low:.1f}–{high:.1f})"
