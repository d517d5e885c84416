"""The arrays of a result while they fill up: from a sweep, or from several results."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import Block, Grid
from mu2_optax.sweep._result import SweepResult, check_results

Metrics = dict[str, npt.NDArray[Any]]  # of a block: arrays with the leading axes (points, seeds)


class Cells:
    """What has run of a grid.

    Attributes:
      done: Which cells have finished without an error, of shape (points, seeds).
      errors: The error of each cell that failed, by its point and seed.
    """

    def __init__(self, grid: Grid):
        self._grid = grid
        self.done = np.zeros((len(grid.points), len(grid.seeds)), bool)
        self.errors: dict[tuple[int, int], str] = {}
        self._metrics: Metrics = {}

    def add(self, block: Block, metrics: Metrics, finished: Any = True) -> None:
        """Takes in the cells of a block that have finished; what is known must not change."""
        at = np.ix_(*block)
        new = np.broadcast_to(finished, self.done[at].shape)
        now, before = (
            {name: array.shape[2:] for name, array in known.items()}
            for known in (metrics, self._metrics or metrics)
        )
        if now != before:
            raise TypeError(
                "every cell must have the same metrics, got the shapes "
                f"{now} at {self._grid.describe(block)} and {before} before."
            )
        filled = {}
        for name, array in metrics.items():
            known = self._metrics.get(name, np.zeros((*self.done.shape, *now[name]), array.dtype))
            filled[name] = known = known.astype(np.result_type(known, array))
            twice = self.done[at] & new
            if not np.array_equal(known[at][twice], array[twice], equal_nan=True):
                raise ValueError(
                    f"a cell has two outcomes of {name!r}; results to merge must come from the "
                    "same task and code."
                )
            known[at] = np.where(new.reshape(*new.shape, *[1] * len(now[name])), array, known[at])
        self._metrics = filled
        self.done[at] |= new

    def result(self, label: str, info: dict[str, Any]) -> SweepResult:
        """What has run as a result: NaN elsewhere, where integers and booleans become float64."""
        shape, finished, metrics = self._grid.shape, self.done.copy(), {}
        errors = {cell: error for cell, error in self.errors.items() if not self.done[cell]}
        for cell in errors:
            finished[cell] = True
        for name, array in self._metrics.items():
            if not self.done.all():
                array = array.astype(np.float64 if array.dtype.kind in "iub" else array.dtype)
                array[~self.done] = np.nan
            metrics[name] = array.reshape(*shape, *array.shape[2:])
        places = list(np.ndindex(shape[:-1]))
        failed = {(*places[point], seed): error for (point, seed), error in errors.items()}
        axes, seeds, finished = dict(self._grid.axes), self._grid.seeds, finished.reshape(shape)
        return SweepResult(metrics, axes, seeds, finished, failed, label, info)


def merge(first: SweepResult, *others: SweepResult) -> SweepResult:
    """Joins sweeps of the same function into one result, over the union of their grids.

    The results may differ in their values along any axis and in their seeds, and may be unfinished.
    Cells that none of them has run stay unfinished in the union; one that failed in one result and
    finished in another has finished.

    Args:
      first: A result, whose label and ``info`` the joined one has.
      *others: Results with the same label, axes and metrics, or of which no cell has finished.

    Returns:
      The joined result, its axes and seeds sorted.

    Raises:
      ValueError: If they do not belong together, or if a cell has two outcomes.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": 2 * learning_rate}
      >>> low = sweep(train, [1.0, 2.0], seeds=1, progress=False)
      >>> high = sweep(train, [4.0], seeds=1, progress=False)
      >>> merge(low, high).metrics["loss"].tolist()
      [[2.0], [4.0], [8.0]]
    """
    results = (first, *others)
    check_results(results, "pass each by itself, as in `merge(*results)`.")
    kinds = [(r.label, list(r.axes)) for r in results]
    if any(kind != kinds[0] for kind in kinds):
        raise ValueError(
            f"results to merge must have the same label and axes, got {kinds}; keep those of "
            "different optimizers in a dict by label."
        )
    axes = {name: np.unique(np.concatenate([r.axes[name] for r in results])) for name in first.axes}
    return join(results, Grid(axes, np.unique(np.concatenate([r.seeds for r in results]))))


def join(results: Sequence[SweepResult], grid: Grid) -> SweepResult:
    """Results as parts of a larger grid, whose other cells have not been run."""
    cells = Cells(grid)
    for result in results:
        part = Grid(result.axes, result.seeds)
        block = grid.places(part.points, part.seeds)
        shape = (len(block.points), len(block.seeds))
        errors = result.error_array().reshape(shape)
        for point, seed in np.argwhere(result.failed().reshape(shape)):
            cells.errors[int(block.points[point]), int(block.seeds[seed])] = errors[point, seed]
        if result.metrics:
            metrics = {
                name: array.reshape(*shape, *array.shape[len(grid.shape) :])
                for name, array in result.metrics.items()
            }
            cells.add(block, metrics, (result.finished & ~result.failed()).reshape(shape))
    return cells.result(results[0].label, dict(results[0].info))
