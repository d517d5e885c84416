"""The arrays of a result while they fill up, cell by cell."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
from jax.experimental import multihost_utils

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
        shapes, known = ({n: a.shape[2:] for n, a in m.items()} for m in (metrics, self._metrics))
        fits = shapes == known and all(
            np.can_cast(array.dtype, self._metrics[name].dtype, "same_kind")
            for name, array in metrics.items()
        )
        if not fits:
            raise TypeError(
                "`train` must return the same metrics in every cell, got "
                f"{_summary(metrics)} at {self.describe(block)}, {_summary(self._metrics)} before."
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

    def broadcast(self) -> None:
        """Gives every process of ``jax.distributed`` what the first one has, to the bit."""
        for array in (self.done, *self._metrics.values()):
            own = array.reshape(-1).view(np.uint8)
            own[:] = multihost_utils.broadcast_one_to_all(own)

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


def _summary(metrics: Metrics) -> str:
    return ", ".join(f"{name}: {a.dtype}{list(a.shape[2:])}" for name, a in metrics.items())
