"""Figures from runs: metrics by role, steps to a target, AlgoPerf's performance profile."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.optimizers import AUTO, OURS, PEERS, REFERENCE
from benchmarks.records import Runs
from benchmarks.self_tuning.roles import (
    CALIBRATED,
    RETUNED,
    TUNED,
    UNTOUCHED,
    best_value,
    counted,
    plays,
    role_rate,
)
from benchmarks.self_tuning.runner import POINTS
from benchmarks.self_tuning.task import TEST, VALIDATION, Cell, Task, records
from benchmarks.self_tuning.tasks import TASKS

TARGET_AT = 0.9  # the share of its steps at which the reference gives the target
LONGEST = 4.0  # times the quickest; who takes longer has not reached it
ACCURACY_PER_LOSS = 0.25  # .005 of accuracy counts as 2 % of a loss


class Figure(NamedTuple):
    """A metric over seeds."""

    mean: float
    values: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan


class Results:
    """All runs of a folder, asked by task, optimizer and role."""

    def __init__(self, folder: Path, seeds: int = 3):
        self.folder = folder
        self.runs: dict[str, Runs] = {name: records(folder, name).read() for name in TASKS}
        self.seeds = seeds

    @cached_property
    def rates(self) -> dict[tuple[str, str, str], float | None]:
        """The rate of each (role, task, optimizer)."""
        calibrated = {p: role_rate(CALIBRATED, next(iter(TASKS)), p, self.runs) for p in PEERS}
        return {
            (role, name, peer): calibrated[peer]
            if role == CALIBRATED
            else role_rate(role, name, peer, self.runs)
            for role in (UNTOUCHED, TUNED, CALIBRATED)
            for name in TASKS
            for peer in PEERS
        }

    def of(self, role: str, name: str, peer: str) -> list[dict]:
        """The runs of a role, one for each seed; none while they are not complete."""
        role = UNTOUCHED if peer in OURS else role
        rate = self.rates[role, name, peer]
        if rate is None or not plays(role, name, peer):
            return []
        return self.at(name, peer, rate)

    def at(self, name: str, peer: str, rate: float) -> list[dict]:
        """The runs with a rate, one for each seed; none while they are not complete."""
        cells = [Cell(peer, rate, seed) for seed in range(self.seeds)]
        known = [self.runs[name][cell] for cell in cells if cell in self.runs[name]]
        return known if len(known) == self.seeds else []

    def figure(self, role: str, name: str, peer: str, part: str = TEST) -> Figure | None:
        """A final metric over seeds; its mean is NaN if one seed has diverged."""
        return figure(self.of(role, name, peer), part)

    def known_peers(self, role: str, name: str) -> dict[str, Figure]:
        """The peers that were run in a role, with their validation metric."""
        found = {p: self.figure(role, name, p, VALIDATION) for p in PEERS if p not in OURS}
        return {peer: known for peer, known in found.items() if known is not None}

    def best_peer(self, role: str, name: str) -> str | None:
        """The peer that validates best in a role, of those that were run."""
        found = {peer: known.mean for peer, known in self.known_peers(role, name).items()}
        best = best_value(TASKS[name], list(found.values()))
        return next((peer for peer, value in found.items() if value == best), None)

    def best_tuned(self, name: str) -> str | None:
        """The tuned peer that validates best; None while one of ``RETUNED`` is not tuned.

        To be beside fewer peers would flatter.
        """
        complete = all(self.of(TUNED, name, peer) for peer in RETUNED)
        return self.best_peer(TUNED, name) if complete else None

    def compared(self, names: Iterable[str], ours: str = AUTO) -> list[str]:
        """The tasks that one of ours was run on and that have a best tuned peer."""
        return [n for n in names if self.of(UNTOUCHED, n, ours) and self.best_tuned(n)]

    def target(self, name: str) -> float | None:
        """What the calibrated reference validates at 90 % of its steps, on average over seeds."""
        runs = self.of(CALIBRATED, name, REFERENCE)
        point = round(TARGET_AT * POINTS) - 1
        return float(np.mean([run["curve"][point] for run in runs])) if runs else None

    def steps_to_target(self, role: str, name: str, peer: str) -> float | None:
        """Gradients until the target is reached, the median over seeds; infinite if it is not."""
        target, runs = self.target(name), self.of(role, name, peer)
        if target is None or not runs:
            return None
        reached = [first_reached(TASKS[name], run["curve"], target) for run in runs]
        return float(np.median(reached)) * TASKS[name].steps * PEERS[peer].gradients

    def scored(self, role: str, side: str, ours: str = AUTO) -> list[str]:
        """The tasks of a side that have a target and that ours and all of ``RETUNED`` were run on.

        The others may have been run on fewer; these have no score.
        """
        known = lambda name, peer: self.steps_to_target(role, name, peer) is not None
        return [n for n in counted(side) if all(known(n, peer) for peer in (ours, *RETUNED))]

    def ratios(self, role: str, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Times the quickest on each task, of the optimizers that were run on all of them."""
        steps = {p: [self.steps_to_target(role, name, p) for name in names] for p in PEERS}
        complete = {p: np.array(s, float) for p, s in steps.items() if s and None not in s}
        return ratios(complete)

    def scores(self, role: str, names: Sequence[str]) -> dict[str, float]:
        """The integral of each optimizer's profile, of those that were run on all tasks."""
        return profile_scores(self.ratios(role, names))


def figure(runs: Sequence[Mapping], part: str) -> Figure | None:
    """A final metric over runs, or None without any."""
    values = tuple(run[part] for run in runs)
    return Figure(float(np.mean(values)), values) if values else None


def first_reached(task: Task, curve: Sequence[float], target: float) -> float:
    """The share of the steps after which the target is reached first."""
    sign = 1 if task.higher_is_better else -1
    for point, value in enumerate(curve):
        if sign * value >= sign * target:
            return (point + 1) / len(curve)
    return math.inf


def ratios(steps: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Each optimizer's steps as times the quickest's; infinite where nobody reached the target."""
    if not steps:
        return {}
    quickest = np.min(list(steps.values()), axis=0)
    some = np.isfinite(quickest)
    return {
        peer: np.where(some & np.isfinite(s), s / np.where(some, quickest, 1), np.inf)
        for peer, s in steps.items()
    }


def profile(times: np.ndarray, tau: float) -> float:
    """The share of the tasks that an optimizer has done within τ times the quickest's steps."""
    return float(np.mean(times <= tau))


def profile_scores(times: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The integral of the profiles over τ from 1 to 4, divided by 3: from 0 to 1."""
    share = lambda t: np.clip(LONGEST - np.maximum(t, 1.0), 0, None) / (LONGEST - 1)
    return {peer: float(np.mean(share(np.minimum(t, LONGEST)))) for peer, t in times.items()}


def behind(task: Task, value: float, best: float) -> float:
    """How much worse than another: relative for losses and returns; accuracies count fourfold.

    Negative where it is ahead.
    """
    if math.isnan(value):
        return math.inf
    if task.metric == "accuracy":
        return (best - value) / ACCURACY_PER_LOSS
    sign = 1 if task.higher_is_better else -1
    return sign * (best - value) / abs(best)
