"""Joining results of the same function over different rates and seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._result import SweepResult


def merge(first: SweepResult, *others: SweepResult) -> SweepResult:
    """Joins sweeps of the same function into one result, over the union of their grids.

    The results may differ in their values along any axis and in their seeds, and may be unfinished.
    Cells that none of them has run stay unfinished in the union; one that failed in one result and
    finished in another has finished.

    Args:
      first: A result.
      *others: Results with the same label, axes and metrics, or of which no cell has finished.

    Returns:
      The joined result, its axes and seeds sorted, with the ``info`` of the first.

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
    results = (first, *others)
    for other in others:
        found = _what_must_agree(other)
        for what, mine in _what_must_agree(first).items():
            theirs = found[what]
            if mine != theirs and (what != "metrics" or (mine and theirs)):  # or not known yet
                raise ValueError(
                    f"results to merge must have the same {what}, got {mine} and {theirs}; keep "
                    "those of different optimizers in a dict by label."
                )
    axes = {name: np.unique(np.concatenate([r.axes[name] for r in results])) for name in first.axes}
    return join(results, axes, np.unique(np.concatenate([r.seeds for r in results])))


def join(
    results: tuple[SweepResult, ...],
    axes: Mapping[str, npt.NDArray[np.float64]],
    seeds: npt.NDArray[np.int64],
) -> SweepResult:
    """Results as parts of a larger grid, whose other cells have not been run."""
    shape = (*map(len, axes.values()), len(seeds))
    grid = {**axes, "seed": seeds}
    done = np.zeros(shape, bool)  # finished without an error
    errors: dict[tuple[int, ...], str] = {}
    metrics = {
        name: np.zeros(
            (*shape, *array.shape[len(shape) :]),
            np.result_type(*(r.metrics[name] for r in results if r.metrics)),
        )
        for name, array in next((r.metrics for r in results if r.metrics), {}).items()
    }
    for result in results:
        places = [
            [values.tolist().index(value) for value in own.tolist()]
            for values, own in zip(
                grid.values(), (*result.axes.values(), result.seeds), strict=True
            )
        ]
        at = np.ix_(*places)
        good = result.finished & ~result.failed()
        known = good & done[at]
        for name, array in result.metrics.items():
            joined = metrics[name][at]
            for cell in map(tuple, np.argwhere(known)):
                if not np.array_equal(joined[cell], array[cell], equal_nan=True):
                    values = (v[p[i]] for v, p, i in zip(grid.values(), places, cell, strict=True))
                    where = ", ".join(f"{n}={v:g}" for n, v in zip(grid, values, strict=True))
                    raise ValueError(
                        f"the cell {where} has two outcomes of {name!r}; results to merge must "
                        "come from the same task and code."
                    )
            joined[good] = array[good]
            metrics[name][at] = joined
        done[at] |= good
        for cell, error in result.errors.items():
            errors[tuple(place[i] for place, i in zip(places, cell, strict=True))] = error
    errors = {cell: error for cell, error in errors.items() if not done[cell]}
    finished = done.copy()
    for cell in errors:
        finished[cell] = True
    metrics = {name: with_nan(array, ~done) for name, array in metrics.items()}
    label, info = results[0].label, dict(results[0].info)
    return SweepResult(metrics, dict(axes), seeds, finished, errors, label, info)


def with_nan(array: npt.NDArray[Any], where: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The array with NaN in some cells, for which integers and booleans become float64."""
    if not where.any():
        return array
    array = array.astype(np.float64 if array.dtype.kind in "iub" else array.dtype)
    array[where] = np.nan
    return array


def _what_must_agree(result: SweepResult) -> dict[str, Any]:
    """What must be the same in all results to merge."""
    shapes = {name: a.shape[len(result.shape) :] for name, a in result.metrics.items()}
    return {"label": result.label, "axes": list(result.axes), "metrics": shapes}
