"""An append-only record of finished cells, so that a killed sweep goes on where it was."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep.grid import Grid
from mu2_optax.sweep.storage import decode, encode

FORMAT = "mu2_optax.journal/1"

# The metrics of a cell, and its error if it failed.
Outcome = tuple[dict[str, npt.NDArray[Any]], str | None]


class JournalError(ValueError):
    """A file that is no journal, or the journal of another sweep."""


class Journal:
    """One JSON line per finished cell, after a line that says which sweep it is.

    A line is written and flushed to disk before the cell counts as finished. A last line that was
    cut off by a kill is dropped when the file is opened again.

    Args:
      path: The file; it is created, or read if it exists.
      grid: The grid of this sweep.
      outputs: The metrics of one cell, as anything with ``shape`` and ``dtype``.
      label: The sweep's label.
      context: Whatever else must be the same in both runs, as JSON values.

    Raises:
      JournalError: If the file belongs to another sweep.
    """

    def __init__(
        self,
        path: str | Path,
        grid: Grid,
        outputs: Mapping[str, Any],
        label: str = "",
        context: Mapping[str, Any] | None = None,
    ):
        self._path = Path(path)
        self._outputs = outputs
        header = {
            "format": FORMAT,
            "axes": {name: axis.tolist() for name, axis in grid.axes.items()},
            "seeds": grid.seeds.tolist(),
            "metrics": {n: [np.dtype(o.dtype).name, list(o.shape)] for n, o in outputs.items()},
            "label": label,
            "context": dict(context or {}),
        }
        self.cells: dict[tuple[int, int], Outcome] = {}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if not self._read(json.loads(json.dumps(header))):
            self._append(header)

    def record(self, point: int, seed: int, outcome: Outcome) -> None:
        """Writes one finished cell.

        Args:
          point: The index of its combination of values.
          seed: The index of its seed.
          outcome: Its metrics, and its error if it failed.
        """
        metrics, error = outcome
        line: dict[str, Any] = {"cell": [point, seed]}
        if error is None:
            line["metrics"] = {name: encode(value) for name, value in metrics.items()}
        else:
            line["error"] = error
        self._append(line)
        self.cells[point, seed] = outcome

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._path.open("ab") as file:
            file.write(json.dumps(line, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _read(self, header: dict[str, Any]) -> bool:
        """Reads the cells of an earlier run; False if there is no earlier run."""
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with self._path.open("r+b") as file:
                file.truncate(len(whole))
        if not whole:
            return False
        try:
            first, *lines = (json.loads(line) for line in whole.splitlines())
            if not isinstance(first, dict) or first.get("format") != FORMAT:
                raise ValueError(f"its first line is not a header of {FORMAT}")
        except ValueError as error:
            raise JournalError(
                f"{self._path} is not the journal of a sweep ({error}); choose another file."
            ) from error
        for key, mine in header.items():
            if first.get(key) != mine:
                raise JournalError(
                    f"{self._path} belongs to another sweep: its {key} is {first.get(key)}, here "
                    f"it is {mine}; resume with the same arguments, or choose another file."
                )
        for line in lines:
            point, seed = line["cell"]
            self.cells[point, seed] = self._outcome(line)
        return True

    def _outcome(self, line: Mapping[str, Any]) -> Outcome:
        if "error" in line:
            return {}, line["error"]
        return {
            name: np.asarray(decode(line["metrics"][name]), dtype=np.dtype(out.dtype))
            for name, out in self._outputs.items()
        }, None
