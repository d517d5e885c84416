"""What the cells of a sweep have given so far, in memory and in its journal."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._cells import blank
from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._journal import Journal, Outcome, Outputs
from mu2_optax.sweep._result import SweepResult

Cell = tuple[int, int]  # the index of a combination of values, and that of a seed


class Outcomes:
    """The outcome of each finished cell.

    Args:
      grid: The grid.
      outputs: The metrics of one cell; if None, those of the first cell that finishes.
      check: Called with the metrics of one cell as soon as they are known; it may raise.
      resume: The journal's file, or None.
      label: The sweep's label.
      context: What must be the same on resume.
      program: Gives the fingerprint of what computes a cell.
    """

    def __init__(
        self,
        grid: Grid,
        outputs: Outputs | None,
        check: Callable[[Outputs], None] | None,
        resume: str | Path | None,
        label: str,
        context: Mapping[str, Any] | None,
        program: Callable[[], str | None],
    ):
        self._grid, self._check, self._label = grid, check, label
        self._journal = (
            None if resume is None else Journal(resume, grid, outputs, label, context, program())
        )
        self._outputs = self._journal.outputs if self._journal else outputs
        if self._outputs is not None and check:
            check(self._outputs)
        self.cells: dict[Cell, Outcome] = dict(self._journal.cells) if self._journal else {}

    def add(self, finished: Mapping[Cell, tuple[Mapping[str, Any], str | None]]) -> None:
        """Records the cells of a call that has just finished.

        Args:
          finished: For each cell its metrics, and why it failed, if it did.

        Raises:
          TypeError: If the metrics are not those of the cells before.
        """
        outcomes: dict[Cell, Outcome] = {
            cell: (self._conform(cell, metrics) if error is None else {}, error)
            for cell, (metrics, error) in finished.items()
        }
        self.cells.update(outcomes)
        if self._journal:
            self._journal.record(outcomes)

    def result(self, info: dict[str, Any]) -> SweepResult:
        """The outcomes in arrays of shape (axes..., seeds, ...)."""
        grid = self._grid
        flat = (len(grid.points), len(grid.seeds))
        finished = np.zeros(flat, dtype=bool)
        complete = len(self.cells) == finished.size and not any(e for _, e in self.cells.values())
        outputs = self._outputs or {}
        metrics = {name: blank(flat, out, complete) for name, out in outputs.items()}
        errors: dict[tuple[int, ...], str] = {}
        for (point, seed), (values, error) in self.cells.items():
            finished[point, seed] = True
            for name, value in values.items():
                metrics[name][point, seed] = value
            if error is not None:
                index = np.unravel_index(point, grid.shape[:-1])
                errors[(*(int(i) for i in index), seed)] = error
        return SweepResult(
            {name: array.reshape(*grid.shape, *array.shape[2:]) for name, array in metrics.items()},
            dict(grid.axes),
            grid.seeds,
            finished.reshape(grid.shape),
            errors,
            self._label,
            info,
        )

    def _conform(self, cell: Cell, metrics: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        """The metrics in the dtypes of the cells before; the first cell decides what they are."""
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
