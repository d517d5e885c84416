"""Results from single cells: of a run, of a table, or of several results to be joined."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._results.result import SweepResult

# The values of the axes, the seed, the metrics, and the error if there was one.
CellRecord = tuple[tuple[float, ...], int, Mapping[str, npt.NDArray[Any]], str | None]


def merge(first: SweepResult, *others: SweepResult) -> SweepResult:
    """Joins sweeps of the same function into one result, over the union of their grids.

    The results may differ in their values along any axis and in their seeds, and may be unfinished.
    Cells that none of them has run stay unfinished in the union; one that failed in one result and
    finished in another has finished.

    Args:
      first: A result.
      *others: Results with the same label, axes and metrics, or of which no cell has finished.

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
            if mine != theirs and (what != "metrics" or (mine and theirs)):  # or not known yet
                raise ValueError(
                    f"results to merge must have the same {what}, got {mine} and {theirs}; keep "
                    "those of different optimizers in a dict by label."
                )
    results = (first, *others)
    return assemble(
        {name: np.unique(np.concatenate([r.axes[name] for r in results])) for name in first.axes},
        np.unique(np.concatenate([result.seeds for result in results])),
        [cell for result in results for cell in finished_cells(result)],
        [_template(result) for result in results],
        label=first.label,
        info=dict(first.info),
    )


def in_grid(
    result: SweepResult,
    axes: Mapping[str, npt.NDArray[np.float64]],
    seeds: npt.NDArray[np.int64],
) -> SweepResult:
    """A result as a part of a larger grid, whose other cells have not been run."""
    cells, template = finished_cells(result), _template(result)
    return assemble(axes, seeds, cells, [template], label=result.label, info=dict(result.info))


def assemble(
    axes: Mapping[str, npt.NDArray[np.float64]],
    seeds: npt.NDArray[np.int64],
    cells: Iterable[CellRecord],
    templates: Sequence[Mapping[str, Any]] = (),
    *,
    label: str,
    info: dict[str, Any],
) -> SweepResult:
    """Builds a result from single cells, which may come in any order.

    A cell that failed once and finished another time has finished; one with two outcomes is
    refused. ``templates`` are metrics of single cells, for the names, shapes and dtypes of those
    that no cell has.
    """
    records = list(cells)
    shape = (*(len(axis) for axis in axes.values()), len(seeds))
    places = [{v: i for i, v in enumerate(axis.tolist())} for axis in (*axes.values(), seeds)]
    finished = np.zeros(shape, dtype=bool)
    errors: dict[tuple[int, ...], str] = {}
    complete = len({(point, seed) for point, seed, _, error in records if error is None})
    metrics = {
        name: _blank(shape, one, complete == finished.size)
        for name, one in _common([*templates, *(outcome for _, _, outcome, _ in records)]).items()
    }
    for point, seed, outcome, error in records:
        at = tuple(place[v] for place, v in zip(places, (*point, seed), strict=True))
        known = finished[at] and at not in errors
        if error is not None and finished[at]:
            continue
        for name, value in outcome.items():
            if known and not np.array_equal(metrics[name][at], value, equal_nan=True):
                raise ValueError(
                    f"the cell {dict(zip(axes, point, strict=True))}, seed {seed}, has two outcomes"
                    f" of {name!r}; results to merge must come from the same task and code."
                )
            metrics[name][at] = value
        errors.pop(at, None)
        if error is not None:
            errors[at] = error
        finished[at] = True
    return SweepResult(metrics, dict(axes), seeds, finished, errors, label, info)


def _common(outcomes: Sequence[Mapping[str, Any]]) -> dict[str, npt.NDArray[Any]]:
    """One cell's worth of each metric, in a dtype that holds those of all outcomes."""
    kinds: dict[str, tuple[tuple[int, ...], set[np.dtype[Any]]]] = {}
    for outcome in outcomes:
        for name, value in outcome.items():
            kinds.setdefault(name, (value.shape, set()))[1].add(np.dtype(value.dtype))
    return {n: np.empty(shape, np.result_type(*dtypes)) for n, (shape, dtypes) in kinds.items()}


def _blank(shape: tuple[int, ...], cell: npt.NDArray[Any], complete: bool) -> npt.NDArray[Any]:
    """An array for a metric over the grid, to be filled with values like that of a cell.

    Floats start as NaN. Integers and booleans, which have no NaN, start as 0 if every cell will be
    filled, and otherwise become NaN in float64.
    """
    dtype = cell.dtype
    if dtype.kind in "iub":
        if complete:
            return np.zeros((*shape, *cell.shape), dtype)
        dtype = np.dtype(np.float64)
    return np.full((*shape, *cell.shape), np.nan, dtype)


def finished_cells(result: SweepResult) -> Iterator[CellRecord]:
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
    """The part of a result that must be the same in all results to merge."""
    if what == "label":
        return result.label
    if what == "axes":
        return list(result.axes)
    return {name: a.shape[len(result.shape) :] for name, a in result.metrics.items()}
