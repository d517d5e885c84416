"""Results from single cells: of a run, of a table, or of several results to be joined."""

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import Cell, Grid
from mu2_optax.sweep._results.journal import Journal, Outcome, Outputs
from mu2_optax.sweep._results.result import SweepResult

# The values of the axes, the seed, the metrics, and the error if there was one.
CellRecord = tuple[tuple[float, ...], int, Mapping[str, npt.NDArray[Any]], str | None]


def in_grid(
    results: Sequence[SweepResult],
    axes: Mapping[str, npt.NDArray[np.float64]],
    seeds: npt.NDArray[np.int64],
) -> SweepResult:
    """Results as parts of a larger grid, whose other cells have not been run."""
    cells = [cell for result in results for cell in finished_cells(result)]
    templates = [
        {name: array[(0,) * len(result.shape)] for name, array in result.metrics.items()}
        for result in results
    ]
    label, info = results[0].label, dict(results[0].info)
    return assemble(axes, seeds, cells, templates, label=label, info=info)


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
    that no cell has. Where cells are missing, floats are NaN, and integers and booleans become
    float64.
    """
    records = list(cells)
    shape = (*(len(axis) for axis in axes.values()), len(seeds))
    places = [{v: i for i, v in enumerate(axis.tolist())} for axis in (*axes.values(), seeds)]
    finished = np.zeros(shape, dtype=bool)
    errors: dict[tuple[int, ...], str] = {}
    succeeded = {(point, seed) for point, seed, _, error in records if error is None}
    outcomes = [*templates, *(outcome for _, _, outcome, _ in records)]
    metrics: dict[str, npt.NDArray[Any]] = {}
    for name in dict.fromkeys(name for outcome in outcomes for name in outcome):
        values = [outcome[name] for outcome in outcomes if name in outcome]
        dtype = np.result_type(*{np.dtype(value.dtype) for value in values})
        if dtype.kind in "iub" and len(succeeded) < finished.size:  # which have no NaN
            dtype = np.dtype(np.float64)
        blank = 0 if dtype.kind in "iub" else np.nan
        metrics[name] = np.full((*shape, *values[0].shape), blank, dtype)
    for point, seed, outcome, error in records:
        at = tuple(place[v] for place, v in zip(places, (*point, seed), strict=True))
        if error is not None and finished[at]:
            continue
        known = finished[at] and at not in errors
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


def finished_cells(result: SweepResult) -> Iterator[CellRecord]:
    """The finished cells of a result."""
    for at in map(tuple, np.argwhere(result.finished).tolist()):
        point = tuple(float(axis[i]) for axis, i in zip(result.axes.values(), at[:-1], strict=True))
        outcome = {name: array[at] for name, array in result.metrics.items()}
        yield point, int(result.seeds[at[-1]]), outcome, result.errors.get(at)


class Outcomes:
    """The outcome of each finished cell.

    A cell that failed in an earlier run counts as finished in the result, but runs again: perhaps
    it failed because of the machine.

    ``outputs`` are the metrics of one cell; if None, those of the first cell that finishes.
    ``check`` is called with them as soon as they are known, and may raise. The journal, if there is
    one, may hold outcomes of an earlier run.

    Attributes:
      cells: The outcome of each cell that need not run again.
    """

    def __init__(
        self,
        grid: Grid,
        outputs: Outputs | None,
        check: Callable[[Outputs], None] | None,
        journal: Journal | None,
        label: str,
    ):
        self._grid, self._check, self._journal, self._label = grid, check, journal, label
        self._outputs = journal.outputs if journal else outputs
        if self._outputs is not None and check:
            check(self._outputs)
        recorded = journal.cells if journal else {}
        self.cells = {cell: o for cell, o in recorded.items() if o[1] is None}
        self._failed = {cell: o for cell, o in recorded.items() if cell not in self.cells}
        if journal and self._failed:
            cell, (_, error) = next(iter(self._failed.items()))
            warnings.warn(
                f"{journal.path}: cells that failed before run again, {len(self._failed)} of them; "
                f"{grid.describe(*cell)}: {error}",
                stacklevel=3,
            )

    def add(self, finished: Mapping[Cell, tuple[Mapping[str, Any], str | None]]) -> None:
        """Records the cells of a call that has finished: their metrics, or why a cell failed."""
        outcomes: dict[Cell, Outcome] = {
            cell: (self._conform(cell, metrics) if error is None else {}, error)
            for cell, (metrics, error) in finished.items()
        }
        self.cells.update(outcomes)
        if self._journal:
            self._journal.record(outcomes)

    def result(self, info: dict[str, Any]) -> SweepResult:
        """The outcomes as a result."""
        grid = self._grid
        values, outcomes = grid.cells, self._failed | self.cells
        cells = [(*values[cell], *outcome) for cell, outcome in outcomes.items()]
        templates = [self._outputs or {}]
        return assemble(grid.axes, grid.seeds, cells, templates, label=self._label, info=info)

    def _conform(self, cell: Cell, metrics: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """The metrics in the dtypes of the first cell, which decides what every cell returns."""
        arrays = {name: np.asarray(value) for name, value in metrics.items()}
        if self._outputs is None:
            outputs = {n: jax.ShapeDtypeStruct(a.shape, a.dtype) for n, a in arrays.items()}
            if self._check:
                self._check(outputs)
            if self._journal:
                self._journal.declare(outputs)
            self._outputs = outputs
        where = self._grid.describe(*cell)
        if arrays.keys() != self._outputs.keys():
            raise TypeError(
                f"`train` must return the same metrics in every cell: {sorted(arrays)} at {where}, "
                f"{sorted(self._outputs)} before."
            )
        for name, out in self._outputs.items():
            array = arrays[name]
            if array.shape != out.shape or not np.can_cast(array.dtype, out.dtype, "same_kind"):
                raise TypeError(
                    f"metric {name!r} must have one shape and kind in every cell: "
                    f"{array.dtype}{array.shape} at {where}, {out.dtype}{out.shape} before."
                )
        return {name: arrays[name].astype(out.dtype) for name, out in self._outputs.items()}


def check_context(context: Mapping[str, Any] | None) -> None:
    """Requires values that JSON can hold, so that saving the result cannot fail on them."""
    try:
        json.dumps(dict(context or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`context` must hold strings, finite numbers, lists and dicts of them, got "
            f"{context!r} ({error}); use `.item()` of a NumPy or JAX scalar."
        ) from error


def in_a_line(error: Exception) -> str:
    """Why a cell failed: the error's type, and the last line of its text.

    Whatever comes before that line is XLA's own traceback.
    """
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[-1].strip()}"
