"""A result's arrays from single cells; what a result is made of, before it is one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

# The values of the axes, the seed, the metrics, and the error if there was one.
CellRecord = tuple[tuple[float, ...], int, Mapping[str, npt.NDArray[Any]], str | None]
# The fields of a `SweepResult` by name.
Fields = dict[str, Any]


def assemble(
    axes: Sequence[str],
    cells: Iterable[CellRecord],
    grids: Sequence[tuple[Mapping[str, npt.NDArray[Any]], npt.NDArray[Any]]] = (),
    template: Mapping[str, npt.NDArray[Any]] | None = None,
) -> Fields:
    """Builds a result's arrays from single cells; the grid is the union of what they mention.

    Args:
      axes: The names of the axes.
      cells: The cells.
      grids: Axes and seeds to include besides those of the cells.
      template: One cell's worth of each metric, for names, shapes and dtypes; that of the first
        cell if None.

    Returns:
      The fields ``metrics``, ``axes`` (sorted), ``seeds`` (sorted), ``finished`` and ``errors``.

    Raises:
      ValueError: If a cell occurs twice with two outcomes.
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
    complete = len(records) >= finished.size
    one = records[0][2] if template is None else template
    metrics = {name: blank(shape, np.asarray(v), complete) for name, v in one.items()}
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
    return {
        "metrics": metrics,
        "axes": sorted_axes,
        "seeds": np.asarray(sorted(seeds), np.int64),
        "finished": finished,
        "errors": errors,
    }


def blank(shape: tuple[int, ...], cell: Any, complete: bool) -> npt.NDArray[Any]:
    """An array for a metric over the grid, to be filled.

    Floats start as NaN. Integers and booleans, which have no NaN, start as 0 if every cell will be
    filled, and otherwise become NaN in float64.

    Args:
      shape: The grid's shape.
      cell: One cell's value, or anything with its ``shape`` and ``dtype``.
      complete: Whether every cell will be filled.

    Returns:
      The array.
    """
    dtype = np.dtype(cell.dtype)
    if dtype.kind in "iub":
        if complete:
            return np.zeros((*shape, *cell.shape), dtype)
        dtype = np.dtype(np.float64)
    return np.full((*shape, *cell.shape), np.nan, dtype)
