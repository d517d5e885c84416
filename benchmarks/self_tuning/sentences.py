"""Sentences about the results, which tables do not say."""

import functools
import statistics

from benchmarks.self_tuning.analysis import Results, behind
from benchmarks.self_tuning.goals import FAR, NEAR
from benchmarks.self_tuning.peers import AUTO, OURS, PEERS, SPECTRAL
from benchmarks.self_tuning.records import Records
from benchmarks.self_tuning.roles import TUNED, UNTOUCHED, counted
from benchmarks.self_tuning.rows import ROLES, ahead_by
from benchmarks.self_tuning.task import DEVELOPMENT, SIDES
from benchmarks.self_tuning.tasks import TASKS

CALLS = {AUTO: "`mu2_auto()`", SPECTRAL: "`mu2_auto(spectral=True)`"}


def answer(results: Results, side: str, ours: str = AUTO) -> str:
    """On how many tasks one of ours, untouched, is ahead of the best peer of each role, or near."""
    compared = results.compared(counted(side))
    names = [name for name in compared if results.of(UNTOUCHED, name, ours)]
    if not names:
        return f"On {side} tasks nothing is known yet of {CALLS[ours]}.\n"
    pairs = {role: beside_the_best(results, role, names, ours) for role in ROLES}
    by = {
        role: {name: behind(TASKS[name], *pair) for name, pair in found.items()}
        for role, found in pairs.items()
    }
    ahead = ", ".join(
        f"the best {role} peer on {sum(b < 0 for b in found.values())} of {len(found)}"
        for role, found in by.items()
        if found
    )
    near, far = (sum(b <= limit for b in by[TUNED].values()) for limit in (NEAR, FAR))
    worst, last = max((b, name) for name, b in by[TUNED].items())
    difference = ahead_by(TASKS[last], *pairs[TUNED][last])
    most = f"the worst is `{last}` ({difference})" if worst > 0 else "it is behind on none"
    return (
        f"On {len(names)} {side} tasks, {CALLS[ours]} as it comes is ahead of {ahead}. It is "
        f"within 2 % of the best tuned peer on {near} and within 10 % on {far}; {most}.\n"
    )


def beside_the_best(
    results: Results, role: str, names: list[str], ours: str
) -> dict[str, tuple[float, float]]:
    """The metrics of one of ours and of the best peer of a role, on the tasks that have both."""
    found = {}
    for name in names:
        own, peer = results.figure(UNTOUCHED, name, ours), results.best_peer(role, name)
        best = results.figure(role, name, peer) if peer else None
        if own and best:
            found[name] = own.mean, best.mean
    return found


def coverage(results: Results, side: str) -> str:
    """How many tasks, peers and roles have been run."""
    names = results.compared(counted(side))
    text = f"Run: {len(names)} of the {len(counted(side))} {side} tasks"
    if not names:
        return f"{text}.\n"
    of = len(PEERS) - len(OURS)
    parts = []
    for role in ROLES:
        counts = [len(results.known_peers(role, name)) for name in names]
        low, high = min(counts), max(counts)
        parts.append(f"{role} {low}" if low == high else f"{role} {low} to {high}")
    return f"{text}; of {of} peers, {', '.join(parts)} on each, with {results.seeds} seeds.\n"


def spectral_time(results: Results) -> str:
    """How much longer runs with orthogonal steps took: the quickest of each."""
    ratios: dict[str, list[float]] = {}
    for name, task in TASKS.items():
        pair = [results.of(UNTOUCHED, name, ours) for ours in (AUTO, SPECTRAL)]
        if all(pair):
            plain, spectral = (min(run["seconds"] for run in runs) for runs in pair)
            ratios.setdefault(task.kind, []).append(spectral / plain)
    if not ratios:
        return "How long runs with orthogonal steps take is not known yet.\n"
    every = [ratio for found in ratios.values() for ratio in found]
    shown = [f"{statistics.median(every):.1f} times as long on the median task"]
    kinds = [k for k in ("transformer", "convolutional network", "dense network") if k in ratios]
    shown += [f"{statistics.median(ratios[kind]):.1f} times on a {kind}" for kind in kinds]
    return (
        "On one core of a CPU, training with `spectral=True` took "
        f"{', '.join(shown)} (the quickest of the seeds).\n"
    )


def made(results: Results) -> str:
    """How many runs, how long, on what, and which commit froze ``mu2_auto``."""
    count, seconds, machines, versions, frozen = 0, 0.0, set(), set(), set()
    for name, runs in results.runs.items():
        infos = Records(results.folder, name).info()
        for cell, run in runs.items():
            info = infos[run["info"]]
            count, seconds = count + 1, seconds + run["seconds"]
            machines.add(info["machine"])
            versions.add(f"JAX {info['versions']['jax']}, Optax {info['versions']['optax']}")
            if TASKS[name].side != DEVELOPMENT and cell.peer in OURS:
                frozen.add(str(info["frozen"]))
    if not count:
        return "Nothing has been run.\n"
    on = "; ".join(sorted(machines) + sorted(versions))
    commits = ", ".join(f"`{commit}`" for commit in sorted(frozen))
    lock = f"frozen by the commit {commits}" if frozen else "not run there yet"
    return (
        f"{count} runs, {seconds / 3600:.1f} hours of one core ({on}). "
        f"`mu2_auto` on confirmation and fresh tasks: {lock}.\n"
    )


def edges(results: Results) -> str:
    """How often the best rate is at an end of its grid, beyond which there may be a better one."""
    found = [
        (rate, PEERS[peer].rates)
        for side in SIDES
        for name in counted(side)
        for peer in PEERS
        if peer not in OURS and (rate := results.rates[TUNED, name, peer]) is not None
    ]
    low, high = (sum(rate == rates[end] for rate, rates in found) for end in (0, -1))
    return (
        f"Of {len(found)} rates that were chosen for a peer and a task, {low} are the smallest and "
        f"{high} the largest of their grid.\n"
    )


SENTENCES = {
    "edges": edges,
    "answer": answer,
    "spectral": functools.partial(answer, ours=SPECTRAL),
    "coverage": coverage,
    "spectral_time": spectral_time,
    "made": made,
}
