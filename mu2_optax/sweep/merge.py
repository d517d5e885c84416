"""Joining results: more rates, more seeds, the other half of an interrupted sweep."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep.result import SweepResult, by_label

# The values of the axes, the seed, the metrics, and the error if there was one.
CellRecord = tuple[tuple[float, ...], int, Mapping[str, npt.NDArray[Any]], str | None]


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
    return assemble(list(first.axes), cells, first.label, grids, first)


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


def assemble(
    axes: Sequence[str],
    cells: Iterable[CellRecord],
    label: str,
    grids: Sequence[tuple[Mapping[str, npt.NDArray[Any]], npt.NDArray[Any]]] = (),
    like: SweepResult | None = None,
) -> SweepResult:
    """Builds a result from single cells; the grid is the union of what they mention.

    Args:
      axes: The names of the axes.
      cells: The cells.
      label: The result's label.
      grids: Axes and seeds to include besides those of the cells.
      like: A result whose metrics' names, dtypes and info to take; read from the cells if None.

    Returns:
      The result.
    """
    records = list(cells)
    values = [{point[i] for point, *_ in records} for i in range(len(axes))]
    seeds = {seed for _, seed, *_ in records}
    for grid_axes, grid_seeds in grids:
        for own, name in zip(values, axes, strict=True):
            own.update(grid_axes[name].tolist())
        seeds.update(grid_seeds.tolist())
    sorted_axes = {name: np.asarray(sorted(own)) for name, own in zip(axes, values, strict=True)}
    shape = (*(len(own) for own in values), len(seeds))
    places = [{v: i for i, v in enumerate(axis)} for axis in sorted_axes.values()]
    seed_places = {seed: i for i, seed in enumerate(sorted(seeds))}
    finished = np.zeros(shape, dtype=bool)
    errors: dict[tuple[int, ...], str] = {}
    template = records[0][2] if like is None else _template(like)
    complete = len(records) >= finished.size
    metrics = {name: blank(shape, np.asarray(v), complete) for name, v in template.items()}
    for point, seed, outcome, error in records:
        at = (*(place[v] for place, v in zip(places, point, strict=True)), seed_places[seed])
        for name, array in metrics.items():
            value = outcome[name]
            if finished[at] and not np.array_equal(array[at], value, equal_nan=True):
                raise ValueError(
                    f"the cell {dict(zip(axes, point, strict=True))}, seed {seed}, has two outcomes"
                    f" of {name!r}; results to merge must come from the same task and code."
                )
            array[at] = value
        finished[at] = True
        if error is not None:
            errors[at] = error
    info = {} if like is None else dict(like.info)
    return SweepResult(
        metrics, sorted_axes, np.asarray(sorted(seeds), np.int64), finished, errors, label, info
    )


def blank(shape: tuple[int, ...], cell: Any, complete: bool) -> npt.NDArray[Any]:
    """An array for a metric over the grid, NaN throughout; float64 where NaN needs it.

    Args:
      shape: The grid's shape.
      cell: One cell's value, or anything with its ``shape`` and ``dtype``.
      complete: Whether every cell will be filled, so that integers may stay integers.

    Returns:
      The array.
    """
    dtype = np.dtype(cell.dtype)
    if dtype.kind in "iub":
        if complete:
            return np.zeros((*shape, *cell.shape), dtype)
        dtype = np.dtype(np.float64)
    return np.full((*shape, *cell.shape), np.nan, dtype)


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
