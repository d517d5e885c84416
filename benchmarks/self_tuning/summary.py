"""What was run, what it took, and on how many tasks ours are ahead: tables about all runs."""

import statistics

import numpy as np

from benchmarks.optimizers import AUTO, OURS, PEERS, REFERENCE, SPECTRAL
from benchmarks.self_tuning.analysis import Results, behind
from benchmarks.self_tuning.goals import FAR, NEAR
from benchmarks.self_tuning.roles import TUNED, UNTOUCHED, counted
from benchmarks.self_tuning.rows import ROLES, Rows, ahead_by
from benchmarks.self_tuning.task import DEVELOPMENT, SIDES, records
from benchmarks.self_tuning.tasks import TASKS

CALLS = {AUTO: "`mu2_auto()`", SPECTRAL: "`mu2_auto(spectral=True)`"}
BESIDE = {AUTO: "mu2_auto()", SPECTRAL: "with `spectral`", "muon_cosine": "Muon, cosine"}


def seconds(results: Results, name: str, peer: str) -> float | None:
    """The time of an optimizer's quickest run on a task: without compilation, and least disturbed.

    Runs were made at different hours of a machine that others used too, so their median would say
    more about the others.
    """
    known = [run["seconds"] for cell, run in results.runs[name].items() if cell.peer == peer]
    return min(known) if len(known) > 1 else None


def spectral_rows(results: Results) -> Rows:
    """How many times as long runs with orthogonal steps took, by kinds of tasks."""
    found: dict[str, list[float]] = {}
    for name, task in TASKS.items():
        pair = [results.of(UNTOUCHED, name, ours) for ours in OURS]
        if all(pair):
            plain, spectral = (min(run["seconds"] for run in runs) for runs in pair)
            found.setdefault(task.kind, []).append(spectral / plain)
    found["**all tasks**"] = [ratio for ratios in found.values() for ratio in ratios]
    kinds = ("transformer", "convolutional network", "dense network", "**all tasks**")
    known = {kind: f"{statistics.median(found[kind]):.1f}" for kind in kinds if found.get(kind)}
    return ["", *known], [
        ["times as long with `spectral=True`, on one core", *known.values()]
    ] if known else []


def answer_rows(results: Results, side: str) -> Rows:
    """On how many tasks each of ours, untouched, is ahead of the best peer of a role, or near."""
    body = []
    for ours in OURS:
        names = results.compared(counted(side), ours)
        by = {role: beside_the_best(results, role, names, ours) for role in ROLES}
        if not names:
            continue
        row = [CALLS[ours]]
        row += [f"{sum(b < 0 for b in found.values())} of {len(found)}" for found in by.values()]
        row += [str(sum(b <= limit for b in by[TUNED].values())) for limit in (NEAR, FAR)]
        _, last = max((b, name) for name, b in by[TUNED].items())
        pair = (
            results.figure(UNTOUCHED, last, ours),
            results.figure(TUNED, last, str(results.best_tuned(last))),
        )
        body.append([*row, f"`{last}` ({ahead_by(TASKS[last], *(f.mean for f in pair if f))})"])
    heads = ["ahead of the best untouched peer", "of the best calibrated", "of the best tuned"]
    heads += [f"within {100 * limit:g} % of it" for limit in (NEAR, FAR)]
    return [f"{side} tasks", *heads, "farthest behind"], body


def beside_the_best(results: Results, role: str, names: list[str], ours: str) -> dict[str, float]:
    """How far one of ours is behind the best peer of a role, on the tasks that have both."""
    found = {}
    for name in names:
        own, peer = results.figure(UNTOUCHED, name, ours), results.best_peer(role, name)
        best = results.figure(role, name, peer) if peer else None
        if own and best:
            found[name] = behind(TASKS[name], own.mean, best.mean)
    return found


def made_rows(results: Results) -> Rows:
    """How many runs, how long, on what, and which commit froze ``mu2_auto``."""
    count, seconds, machines, versions, frozen = 0, 0.0, set(), set(), set()
    for name, runs in results.runs.items():
        infos = records(results.folder, name).info()
        for cell, run in runs.items():
            info = infos[run["info"]]
            count, seconds = count + 1, seconds + run["seconds"]
            machines.add(info["machine"])
            versions.add(f"JAX {info['versions']['jax']}, Optax {info['versions']['optax']}")
            if TASKS[name].side != DEVELOPMENT and cell.peer in OURS:
                frozen.add(f"`{info['frozen']}`")
    on = ["; ".join(sorted(some)) for some in (machines, versions, frozen)]
    head = ["runs", "hours of one core", "machine", "versions", "`mu2_auto` frozen by the commit"]
    return head, [[str(count), f"{seconds / 3600:.1f}", *on]] if count else []


def edge_rows(results: Results) -> Rows:
    """How often the best rate is at an end of its grid, beyond which there may be a better one."""
    found = [
        (rate, PEERS[peer].rates)
        for side in SIDES
        for name in counted(side)
        for peer in PEERS
        if peer not in OURS and (rate := results.rates[TUNED, name, peer]) is not None
    ]
    ends = [sum(rate == rates[end] for rate, rates in found) for end in (0, -1)]
    head = ["rates chosen, for a peer and a task", "smallest of its grid", "largest of its grid"]
    return head, [[str(number) for number in (len(found), *ends)]]


def time_rows(results: Results) -> Rows:
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


TABLES = {
    "answer": answer_rows,
    "edges": edge_rows,
    "made": made_rows,
    "spectral_time": spectral_rows,
    "times": time_rows,
}
