"""The arrays of a result while they fill up: from a sweep, or from several results."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import Grid, Indices
from mu2_optax.sweep._result import SweepResult

Metrics = dict[str, npt.NDArray[Any]]  # of a block: arrays with the leading axes (points, seeds)


class Block(NamedTuple):
    """A few points times a few seeds, by their indices in a grid."""

    points: Indices
    seeds: Indices


class Cells:
    """What has run of a grid.

    ``outputs`` are the shape and dtype of each metric of a cell; if empty, those of the first block
    decide.

    Attributes:
      done: Which cells have finished without an error, of shape (points, seeds).
    """

    def __init__(self, grid: Grid, outputs: Mapping[str, jax.ShapeDtypeStruct]):
        self._grid = grid
        self.done = np.zeros((len(grid.points), len(grid.seeds)), bool)
        self._errors: dict[tuple[int, int], str] = {}
        self._metrics: Metrics = {}
        self._allocate(outputs)

    def add(self, block: Block, metrics: Metrics) -> None:
        """Takes in the metrics of a block; a cell that is known must not change."""
        if not self._metrics:
            self._allocate(
                {n: jax.ShapeDtypeStruct(a.shape[2:], a.dtype) for n, a in metrics.items()}
            )
        now, before = (
            {name: (array.dtype.kind, array.shape[2:]) for name, array in known.items()}
            for known in (metrics, self._metrics)
        )
        if now != before:
            raise TypeError(
                "`train` must return the same metrics in every cell, got (kind, shape) "
                f"{now} at {self.describe(block)} and {before} before."
            )
        at = np.ix_(*block)
        twice = self.done[at]
        for name, array in metrics.items():
            if not np.array_equal(self._metrics[name][at][twice], array[twice], equal_nan=True):
                raise ValueError(
                    f"the cell {self.describe(block)} has two outcomes of {name!r}; results to "
                    "merge must come from the same task and code."
                )
            self._metrics[name][at] = array
        self.done[at] = True

    def fail(self, block: Block, error: str) -> None:
        """Notes why the one cell of a block has failed."""
        self._errors[int(block.points[0]), int(block.seeds[0])] = error

    def describe(self, block: Block) -> str:
        """The first cell of a block in words."""
        return self._grid.describe(int(block.points[0]), int(block.seeds[0]))

    def result(self, label: str, info: dict[str, Any]) -> SweepResult:
        """What has run as a result: NaN elsewhere, where integers and booleans become float64."""
        shape, finished, metrics = self._grid.shape, self.done.copy(), {}
        failed = {cell: e for cell, e in self._errors.items() if not self.done[cell]}
        for cell in failed:
            finished[cell] = True
        for name, array in self._metrics.items():
            if not self.done.all():
                array = array.astype(np.float64 if array.dtype.kind in "iub" else array.dtype)
                array[~self.done] = np.nan
            metrics[name] = array.reshape(*shape, *array.shape[2:])
        errors = {
            (*(int(i) for i in np.unravel_index(point, shape[:-1])), seed): error
            for (point, seed), error in failed.items()
        }
        axes, seeds = dict(self._grid.axes), self._grid.seeds
        return SweepResult(metrics, axes, seeds, finished.reshape(shape), errors, label, info)

    def _allocate(self, outputs: Mapping[str, jax.ShapeDtypeStruct]) -> None:
        shape = self.done.shape
        self._metrics = {n: np.zeros((*shape, *o.shape), o.dtype) for n, o in outputs.items()}


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
    kinds: dict[str, list[Any]] = {
        "label": [r.label for r in results],
        "axes": [list(r.axes) for r in results],
        "metrics": [sorted(r.metrics) for r in results if r.metrics],  # if known yet
    }
    for what, found in kinds.items():
        if any(kind != found[0] for kind in found):
            raise ValueError(
                f"results to merge must have the same {what}, got {found}; keep those of different "
                "optimizers in a dict by label."
            )
    axes = {name: np.unique(np.concatenate([r.axes[name] for r in results])) for name in first.axes}
    return join(results, Grid(axes, np.unique(np.concatenate([r.seeds for r in results]))))


def join(results: Sequence[SweepResult], grid: Grid) -> SweepResult:
    """Results as parts of a larger grid, whose other cells have not been run."""
    known = [result.metrics for result in results if result.metrics]
    outputs = {
        name: jax.ShapeDtypeStruct(
            array.shape[len(grid.shape) :], np.result_type(*(metrics[name] for metrics in known))
        )
        for name, array in (known[0] if known else {}).items()
    }
    cells = Cells(grid, outputs)
    for result in results:
        part = Grid(result.axes, result.seeds)
        points, seeds = grid.places(part.points, part.seeds)
        flat = (len(points), len(seeds))
        metrics = {
            name: array.reshape(*flat, *outputs[name].shape).astype(outputs[name].dtype)
            for name, array in result.metrics.items()
        }
        errors = result.error_array().reshape(flat)
        for i, j in np.argwhere(result.finished.reshape(flat)):
            block = Block(points[i : i + 1], seeds[j : j + 1])
            if errors[i, j] is not None:
                cells.fail(block, errors[i, j])
            else:
                cells.add(block, {n: a[i : i + 1, j : j + 1] for n, a in metrics.items()})
    return cells.result(results[0].label, dict(results[0].info))
