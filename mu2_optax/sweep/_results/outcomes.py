"""What the cells of a sweep have returned so far, in memory and in its journal."""

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import Cell, Grid
from mu2_optax.sweep._results.cells import assemble
from mu2_optax.sweep._results.journal import Journal, Outcome, Outputs
from mu2_optax.sweep._results.result import SweepResult


class Outcomes:
    """The outcome of each finished cell.

    A cell that failed in an earlier run counts as finished in the result, but runs again: perhaps
    it failed because of the machine.

    Attributes:
      cells: The outcome of each cell that need not run again.

    Args:
      grid: The grid.
      outputs: The metrics of one cell; if None, those of the first cell that finishes.
      check: Called with the metrics of one cell as soon as they are known; it may raise.
      resume: The journal's file, or None.
      label: The sweep's label.
      context: What must be the same on resume.
      program: Returns the fingerprint of what computes a cell.
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
        recorded = self._journal.cells if self._journal else {}
        self.cells: dict[Cell, Outcome] = {c: o for c, o in recorded.items() if o[1] is None}
        self._failed = {cell: o for cell, o in recorded.items() if cell not in self.cells}
        if self._failed:
            cell, (_, error) = next(iter(self._failed.items()))
            warnings.warn(
                f"{resume}: cells that failed before run again, {len(self._failed)} of them; "
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
        points, seeds = [tuple(point) for point in grid.points.tolist()], grid.seeds.tolist()
        cells = [
            (points[point], seeds[seed], *outcome)
            for (point, seed), outcome in (self._failed | self.cells).items()
        ]
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
