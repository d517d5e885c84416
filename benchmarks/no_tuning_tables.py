"""The tables of ``benchmarks.no_tuning``: each task, the factors of ``mu2_auto``, and the goals."""

from collections.abc import Iterator

import numpy as np

from benchmarks.experiment import Results
from benchmarks.no_tuning import (
    AUTO,
    FACTORS,
    SPECTRAL,
    TASKS,
    Outcome,
    outcomes,
    title_of,
    tuned,
    untouched,
)
from mu2_optax.sweep import SweepResult

Rows = tuple[list[str], list[list[str]]]


def task_table(results: Results) -> Rows:
    """Each optimizer untouched and at its best rate, the best untouched first."""
    judged_by = _judged_by(results)
    steps = _steps(results)
    found = {
        title_of(result, steps): (first, tuned(result))
        for result in results.values()
        if (first := untouched(result)) is not None
    }
    order = sorted(found.items(), key=lambda item: -item[1][0].judged(judged_by))
    tops = [max(pair[i].judged(judged_by) for pair in found.values()) for i in (0, 1)]
    body = []
    for title, pair in order:
        row = [title]
        for outcome, top in zip(pair, tops, strict=True):
            best = _shown(outcome, judged_by) == _shown_value(top, judged_by)
            cells = {
                "test_accuracy": _accuracy(outcome.test_accuracy),
                "test_loss": _loss(outcome.test_loss),
            }
            if best:
                cells[judged_by] = f"**{cells[judged_by]}**"
            row += [cells["test_accuracy"], cells["test_loss"], f"{outcome.rate:g}"]
        body.append(row)
    head = ["", "untouched: accuracy", "loss", "rate", "tuned: accuracy", "loss", "rate"]
    return head, body


def factors_table(results: dict[str, Results], variants: bool = False) -> Rows:
    """The factors on the first rate of ``mu2_auto``, and how far the worst is from the best."""
    body = []
    for title, task, result in ours(results, variants):
        judged_by = TASKS[task].judged_by
        by_rate = {outcome.rate: outcome for outcome in outcomes(result)}
        values = {rate: outcome.judged(judged_by) for rate, outcome in by_rate.items()}
        top = max(values.values())
        spreads = [
            f"{max(top - values[rate] for rate in rates):.4f}" if values.keys() >= {*rates} else "–"
            for rates in ((0.1, 1.0, 10.0), FACTORS)
        ]
        cells = [
            _shown(by_rate[rate], judged_by) if rate in by_rate else "not run" for rate in FACTORS
        ]
        body.append([title, *cells, *spreads])
    head = ["", *(f"{factor:g}" for factor in FACTORS), "0.1 … 10", "0.01 … 100"]
    return head, body


def goals_table(results: dict[str, Results], variants: bool = False) -> Rows:
    """Untouched ``mu2_auto`` beside the best untouched and the best tuned peer of each task."""
    body = []
    for title, task, result in ours(results, variants):
        judged_by = TASKS[task].judged_by
        own_outcome = untouched(result)
        assert own_outcome is not None
        mine = own_outcome.judged(judged_by)
        row = [title, _shown(own_outcome, judged_by)]
        for name, outcome in (best_untouched_peer(results[task]), best_tuned_peer(results[task])):
            ahead = f"{mine - outcome.judged(judged_by):+.4f}".replace("-", "−")
            row += [f"{name} {_shown(outcome, judged_by)}", ahead.replace("−0.0000", "0.0000")]
        body.append(row)
    head = ["", "mu2_auto()", "best untouched peer", "ahead by", "best tuned peer", "ahead by"]
    return head, body


def ours(results: dict[str, Results], variants: bool) -> Iterator[tuple[str, str, SweepResult]]:
    """The title of a row, the task and the result, of ``mu2_auto`` and with orthogonal steps.

    Of the tasks themselves, or of their variants alone.
    """
    for task, own in results.items():
        if TASKS[task].variant != variants:
            continue
        for optimizer, addition in ((AUTO, ""), (SPECTRAL, ", `spectral`")):
            found = (r for r in own.values() if r.info["context"]["optimizer"] == optimizer)
            yield from ((TASKS[task].title + addition, task, result) for result in found)


def peers(results: Results) -> Results:
    """The results of all others that were run, by their titles."""
    steps = _steps(results)
    return {
        title_of(result, steps): result
        for result in results.values()
        if result.info["context"]["optimizer"] not in (AUTO, SPECTRAL)
    }


def best_untouched_peer(results: Results) -> tuple[str, Outcome]:
    """The title and the outcome of the best peer that nobody tuned."""
    found = {title: untouched(result) for title, result in peers(results).items()}
    known = {title: outcome for title, outcome in found.items() if outcome is not None}
    return max(known.items(), key=lambda item: item[1].judged(_judged_by(results)))


def best_tuned_peer(results: Results) -> tuple[str, Outcome]:
    """The title and the outcome of the best peer at its best rate."""
    found = {title: tuned(result) for title, result in peers(results).items()}
    return max(found.items(), key=lambda item: item[1].judged(_judged_by(results)))


def _judged_by(results: Results) -> str:
    return next(iter(results.values())).info["context"]["judged_by"]


def _steps(results: Results) -> int:
    return max(result.info["context"]["steps"] for result in results.values())


def _shown(outcome: Outcome, judged_by: str) -> str:
    return _shown_value(outcome.judged(judged_by), judged_by)


def _shown_value(judged: float, judged_by: str) -> str:
    return _accuracy(judged) if judged_by == "test_accuracy" else _loss(-judged)


def _accuracy(value: float) -> str:
    return f"{value:.4f}".lstrip("0") if np.isfinite(value) else "–"


def _loss(value: float) -> str:
    if not np.isfinite(value):
        return "–"
    return f"{value:.3f}" if value < 100 else f"{value:.0e}"
