"""Which runs a role needs: untouched, tuned on a task, or calibrated over all development tasks.

Everything is chosen by the validation metric; the test metric is never looked at here.
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.optimizers import AUTO, OURS, PEERS
from benchmarks.records import Runs
from benchmarks.self_tuning.task import DEVELOPMENT, VALIDATION, Cell, Task, records
from benchmarks.self_tuning.tasks import TASKS

UNTOUCHED, TUNED, CALIBRATED, FACTOR = ROLES = ("untouched", "tuned", "calibrated", "factor")
GRID_SEED = 0
# Those that are tuned anew for every batch size and horizon.
RETUNED = (
    "adamw_cosine",
    "schedule_free_adamw",
    "nadamw_cosine",
    "muon_cosine",
    "sgd_cosine",
    "prodigy_cosine",
)
WORST = 1.0  # what a run counts at most in a mean of deficits: e times the loss of the best


def counted(side: str) -> dict[str, Task]:
    """The tasks of one side without variants."""
    return {n: task for n, task in TASKS.items() if task.side == side and task.variant_of is None}


def deficit(task: Task, value: float, best: float) -> float:
    """How far a metric is from the best, without a unit.

    The logarithm of the ratio for losses and errors, and for the errors that accuracies leave; the
    relative difference for returns.
    """
    if math.isnan(value):
        return math.inf
    if task.metric == "return":
        return (best - value) / max(abs(best), 1e-9)
    if task.metric == "accuracy":
        value, best = 1 - value, 1 - best
    return math.log(max(value, 1e-9) / max(best, 1e-9))


def grid(peer: str) -> list[Cell]:
    """The runs that an optimizer is tuned with."""
    return [Cell(peer, rate, GRID_SEED) for rate in PEERS[peer].rates]


def best_value(task: Task, values: list[float]) -> float:
    """The best of some values; NaN if they all are."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    return max(known) if task.higher_is_better else min(known)


def tuned_rate(task: Task, peer: str, runs: Runs) -> float | None:
    """The rate that validates best on a task, or None while the grid is not complete."""
    cells = grid(peer)
    if any(cell not in runs for cell in cells):
        return None
    values = [runs[cell][VALIDATION] for cell in cells]
    best = best_value(task, values)
    if math.isnan(best):
        return PEERS[peer].untouched
    return cells[values.index(best)].rate


def calibrated_rate(peer: str, runs: Mapping[str, Runs]) -> float | None:
    """The one rate with the least mean deficit over the development tasks.

    On each task a deficit is to the best of the optimizer's own rates, and counts for at most
    ``WORST``, so that no task decides alone. None while a grid is not complete.
    """
    means = dict.fromkeys(PEERS[peer].rates, 0.0)
    for name, task in counted(DEVELOPMENT).items():
        if any(cell not in runs[name] for cell in grid(peer)):
            return None
        values = {cell.rate: runs[name][cell][VALIDATION] for cell in grid(peer)}
        best = best_value(task, list(values.values()))
        if not math.isnan(best):
            for rate, value in values.items():
                means[rate] += min(deficit(task, value, best), WORST)
    return min(means, key=means.__getitem__)


def role_rate(role: str, name: str, peer: str, runs: Mapping[str, Runs]) -> float | None:
    """The rate of an optimizer in a role on a task, or None if it is not known yet."""
    if role == UNTOUCHED or peer in OURS:
        return PEERS[peer].untouched
    if role == TUNED:
        return tuned_rate(TASKS[name], peer, runs[name])
    return calibrated_rate(peer, runs)


def plays(role: str, name: str, peer: str) -> bool:
    """Whether there is such a role: ``mu2_auto`` is not tuned, and variants are for the tuned."""
    if peer in OURS:
        flat = role == FACTOR and peer == AUTO and TASKS[name].side == DEVELOPMENT
        return role == UNTOUCHED or flat
    if TASKS[name].variant_of is not None:
        return role == TUNED and peer in RETUNED
    return role != FACTOR


def wanted(role: str, name: str, peer: str, seeds: int, folder: Path) -> Iterator[Cell]:
    """The runs that a role still needs, one after another: what is chosen depends on the first."""
    if not plays(role, name, peer):
        return
    own = records(folder, name)
    if role == FACTOR:
        cells = [Cell(peer, rate, s) for rate in PEERS[peer].rates for s in range(seeds)]
        yield from (cell for cell in cells if cell not in own.read())
        return
    if role == TUNED:
        yield from (cell for cell in grid(peer) if cell not in own.read())
    every = {name: own.read()}
    if role == CALIBRATED:
        every |= {other: records(folder, other).read() for other in counted(DEVELOPMENT)}
    rate = role_rate(role, name, peer, every)
    if rate is not None:
        cells = [Cell(peer, rate, seed) for seed in range(seeds)]
        yield from (cell for cell in cells if cell not in own.read())
