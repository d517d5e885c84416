"""Joining results: more rates, more seeds, the other half of an interrupted sweep."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._cells import CellRecord, assemble
from mu2_optax.sweep._labels import by_label
from mu2_optax.sweep._result import SweepResult


def merge(first: SweepResult, *others: SweepResult) -> SweepResult:
    """Joins sweeps of one thing into one result, over the union of their grids.

    The results may differ in their values along any axis and in their seeds, and may be unfinished.
    Cells that none of them has run stay unfinished in the union.

    Args:
      first: A result.
      *others: Results with the same label, axes and metrics.

    Returns:
      The joined result, its axes sorted.

    Raises:
      ValueError: If labels, axes, metrics or their shapes differ, or if a cell that two results
        have run has two outcomes.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": 2 * learning_rate}
      >>> low = sweep(train, [1.0, 2.0], seeds=1, progress=False)
      >>> high = sweep(train, [4.0], seeds=1, progress=False)
      >>> merge(low, high).metrics["loss"].tolist()
      [[2.0], [4.0], [8.0]]
    """
    for other in others:
        for what in ("label", "axes", "metrics"):
            mine, theirs = _described(first, what), _described(other, what)
            if mine != theirs:
                raise ValueError(
                    f"results to merge must have the same {what}, got {mine} and {theirs}; join "
                    "different optimizers with `merge_results`."
                )
    cells = [cell for result in (first, *others) for cell in _cells(result)]
    grids = [(result.axes, result.seeds) for result in (first, *others)]
    fields = assemble(list(first.axes), cells, grids, _template(first))
    return SweepResult(**fields, label=first.label, info=dict(first.info))


def merge_results(*groups: Any) -> dict[str, SweepResult]:
    """Joins results across optimizers: one per label, those with a common label by `merge`.

    Args:
      *groups: Results, lists of results, or dicts of results by label.

    Returns:
      The results by label, in the order in which the labels first occur.
    """
    joined: dict[str, SweepResult] = {}
    for group in groups:
        for label, result in by_label(group).items():
            joined[label] = merge(joined[label], result) if label in joined else result
    return joined


def _cells(result: SweepResult) -> Iterable[CellRecord]:
    """The finished cells of a result."""
    for cell in np.argwhere(result.finished):
        at = tuple(int(i) for i in cell)
        point = tuple(float(axis[i]) for axis, i in zip(result.axes.values(), at[:-1], strict=True))
        outcome = {name: array[at] for name, array in result.metrics.items()}
        yield point, int(result.seeds[at[-1]]), outcome, result.errors.get(at)


def _template(result: SweepResult) -> dict[str, npt.NDArray[Any]]:
    """One cell's worth of each metric, for its shape and dtype."""
    first = (0,) * len(result.shape)
    return {name: np.asarray(array[first]) for name, array in result.metrics.items()}


def _described(result: SweepResult, what: str) -> Any:
    """The part of a result that must agree with its partners."""
    if what == "label":
        return result.label
    if what == "axes":
        return list(result.axes)
    return {name: a.shape[len(result.shape) :] for name, a in result.metrics.items()}
