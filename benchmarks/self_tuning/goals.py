"""The goals, decided by code: each is met, missed, or not known yet."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from benchmarks.optimizers import AUTO, OURS, PEERS
from benchmarks.self_tuning.analysis import Results, behind, figure
from benchmarks.self_tuning.roles import CALIBRATED, TUNED, UNTOUCHED, counted
from benchmarks.self_tuning.task import DEVELOPMENT, SIDES, TEST
from benchmarks.self_tuning.tasks import TASKS, VARIANTS

NEAR, FAR, COLLAPSED = 0.02, 0.1, 0.5
FACTOR_LIMITS = {0.1: 0.02, 10.0: 0.02, 0.01: 0.05, 100.0: 0.05}
VARIANT_LIMIT = 0.03


class Goal(NamedTuple):
    """A goal: what it says, whether it is met (None: not known yet), and the figures."""

    text: str
    met: bool | None
    figures: str

    @property
    def verdict(self) -> str:
        """Whether it is met, in words."""
        return {True: "met", False: "MISSED", None: "not known yet"}[self.met]

    def __str__(self) -> str:
        return f"{self.text}: {self.verdict}. {self.figures}"


def goals(results: Results, ours: str = AUTO) -> list[Goal]:
    """All of them, for every side.

    They are about ``mu2_auto()``. Of ``mu2_auto(spectral=True)`` the same can be asked.
    """
    roles = (UNTOUCHED, CALIBRATED)
    return [
        *(_ahead(results, side, role, ours) for side in SIDES for role in roles),
        *(goal for side in SIDES for goal in _beside_tuned(results, side, ours)),
        _flat(results, ours),
        _variants(results, ours),
    ]


def _ahead(results: Results, side: str, role: str, ours: str) -> Goal:
    """By the tasks that ours and the strongest peers were run on, and the peers run on all of them.

    While tasks or peers are missing it is not met; it is missed once all tasks have been run and a
    peer is ahead.
    """
    text = f"(a) {side}: a higher profile score than every {role} peer"
    names = results.scored(role, side, ours)
    scores = results.scores(role, names)
    others = {peer: score for peer, score in scores.items() if peer not in OURS}
    peers = f"{len(others)} of {len(PEERS) - len(OURS)} peers"
    if ours not in scores or not others:
        return Goal(text, None, f"{peers} are complete")
    best = max(others, key=others.__getitem__)
    shown = f"{scores[ours]:.3f} against {others[best]:.3f} ({PEERS[best].title}), the best of "
    shown += f"{peers}, on {len(names)} of {len(counted(side))} tasks"
    if len(names) < len(counted(side)):
        return Goal(text, None, shown)
    complete = len(others) == len(PEERS) - len(OURS)
    return Goal(text, decided(scores[ours] > others[best], complete), shown)


def margins(
    results: Results, names: Iterable[str], ours: str = AUTO
) -> dict[str, tuple[float, float]]:
    """How far behind the best tuned peer: the mean, and the worst seed."""
    found = {}
    for name in results.compared(names, ours):
        own, peer = results.figure(UNTOUCHED, name, ours), results.best_tuned(name)
        best = peer and results.figure(TUNED, name, peer)
        if own and best:
            of = lambda value, name=name, best=best: behind(TASKS[name], value, best.mean)
            found[name] = (of(own.mean), max(of(value) for value in own.values))
    return found


def decided(possible: bool, complete: bool) -> bool | None:
    """Missed as soon as what has not been run cannot save it; met once everything has been run."""
    if not possible:
        return False
    return True if complete else None


def _beside_tuned(results: Results, side: str, ours: str) -> Iterator[Goal]:
    names = list(counted(side))
    found = margins(results, names, ours)
    missing = len(names) - len(found)

    def goal(text: str, possible: bool, figures: str) -> Goal:
        return Goal(f"(b) {side}: {text}", decided(possible, missing == 0), figures)

    def on_share(text: str, limit: float, share: float) -> Goal:
        count = sum(mean < limit for mean, _ in found.values())
        shown = f"on {count} of the {len(found)} tasks that were run, of {len(names)}"
        return goal(text, count + missing >= share * len(names), shown)

    yield on_share("ahead of the best tuned peer on a third", 0, 1 / 3)
    yield on_share("within 2 % on four fifths", NEAR, 4 / 5)
    means = [mean for mean, _ in found.values()]
    yield goal("within 10 % on all", all(m <= FAR for m in means), _listed(found, FAR))
    lost = {name: (worst, worst) for name, (_, worst) in found.items()}
    yield goal("no seed collapses", all(w <= COLLAPSED for w, _ in lost.values()), _listed(lost))


def _listed(found: dict[str, tuple[float, float]], limit: float = COLLAPSED) -> str:
    beyond = {name: mean for name, (mean, _) in found.items() if mean > limit}
    if not beyond:
        return f"none of {len(found)} tasks beyond {limit:.0%}" if found else ""
    return "beyond: " + ", ".join(f"{name} {mean:+.1%}" for name, mean in beyond.items())


def factor_margins(results: Results) -> dict[str, dict[float, float]]:
    """How far behind the factor 1 each other one is, on the development tasks."""
    found = {}
    for name, task in counted(DEVELOPMENT).items():
        one = figure(results.at(name, AUTO, 1.0), TEST)
        others = {f: figure(results.at(name, AUTO, f), TEST) for f in FACTOR_LIMITS}
        if one and all(others.values()):
            found[name] = {f: behind(task, o.mean, one.mean) for f, o in others.items() if o}
    return found


def _flat(results: Results, ours: str) -> Goal:
    text = "(c) flat within 2 % from factor .1 to 10, within 5 % from .01 to 100"
    if ours != AUTO:
        return Goal(text, None, "its factor is not varied")
    found = factor_margins(results)
    worst = {
        f: max(((abs(m[f]), name) for name, m in found.items()), default=(0.0, ""))
        for f in FACTOR_LIMITS
    }
    flat = all(worst[f][0] <= limit for f, limit in FACTOR_LIMITS.items())
    complete = len(found) == len(counted(DEVELOPMENT))
    shown = "; ".join(f"×{f:g} at most {by:.1%} ({name})" for f, (by, name) in worst.items())
    return Goal(text, decided(flat, complete), shown if found else "")


def _variants(results: Results, ours: str) -> Goal:
    names: Sequence[str] = list(VARIANTS)
    found = margins(results, names, ours)
    near = all(mean <= VARIANT_LIMIT for mean, _ in found.values())
    text = "(d) batch sizes and horizons: at most 3 % behind peers retuned there"
    complete = len(found) == len(names)
    return Goal(text, decided(near, complete), _listed(found, VARIANT_LIMIT))
