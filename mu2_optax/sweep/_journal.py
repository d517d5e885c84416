"""An append-only record of finished cells, so that a killed sweep goes on where it was."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._files import decode, encode
from mu2_optax.sweep._grid import Grid

FORMAT = "mu2_optax.journal/2"

# The metrics of a cell, and its error if it failed.
Outcome = tuple[dict[str, npt.NDArray[Any]], str | None]
# Shape and dtype of each metric of one cell.
Outputs = Mapping[str, jax.ShapeDtypeStruct]


class JournalError(ValueError):
    """A file that is no journal, or the journal of another sweep."""


class Journal:
    """One JSON line per finished cell, after a line that says which sweep it is.

    A line is written and flushed to disk before the cell counts as finished. A last line that was
    cut off by a kill is dropped when the file is opened again. Where the metrics' shapes are known
    only when a cell has finished, a line of their own tells them. A new file is made by the first
    line that goes into it.

    Args:
      path: The file; it is read if it exists.
      grid: The grid of this sweep.
      outputs: The metrics of one cell; None if a cell has to finish before they are known.
      label: The sweep's label.
      context: Whatever else must be the same in both runs, as JSON values.
      program: The fingerprint of what computes a cell, or None if it has none.

    Raises:
      JournalError: If the file belongs to another sweep.
    """

    def __init__(
        self,
        path: str | Path,
        grid: Grid,
        outputs: Outputs | None,
        label: str = "",
        context: Mapping[str, Any] | None = None,
        program: str | None = None,
    ):
        self._path = Path(path)
        self.outputs = outputs
        self.cells: dict[tuple[int, int], Outcome] = {}
        self._header: dict[str, Any] | None = {
            "format": FORMAT,
            "axes": {name: axis.tolist() for name, axis in grid.axes.items()},
            "seeds": grid.seeds.tolist(),
            "label": label,
            "context": dict(context or {}),
            "metrics": None if outputs is None else _describe(outputs),
            "program": program,
        }
        self._read(json.loads(json.dumps(self._header)))

    def declare(self, outputs: Outputs) -> None:
        """Writes what the metrics are, where the first finished cell has shown it.

        Args:
          outputs: The metrics of one cell.
        """
        self.outputs = outputs
        self._append({"metrics": _describe(outputs)})

    def record(self, outcomes: Mapping[tuple[int, int], Outcome]) -> None:
        """Writes the finished cells of a call, all at once: a disk takes its time each time.

        Args:
          outcomes: For the index of each cell's combination of values and that of its seed, its
            metrics, and its error if it failed.
        """
        lines: list[dict[str, Any]] = []
        for cell, (metrics, error) in outcomes.items():
            encoded = {name: encode(value) for name, value in metrics.items()}
            line = {"metrics": encoded} if error is None else {"error": error}
            lines.append({"cell": list(cell), **line})
        self._append(*lines)
        self.cells.update(outcomes)

    def _append(self, *lines: Mapping[str, Any]) -> None:
        header, self._header = self._header, None
        self._path.parent.mkdir(parents=True, exist_ok=True)
        items = (header, *lines) if header else lines
        text = "".join(json.dumps(item, allow_nan=False) + "\n" for item in items)
        with self._path.open("ab", buffering=0) as file:  # in one piece, beside another process
            file.write(text.encode())
            os.fsync(file.fileno())

    def _read(self, header: dict[str, Any]) -> None:
        """Reads the cells of an earlier run, if there was one."""
        content = self._path.read_bytes() if self._path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with self._path.open("r+b") as file:
                file.truncate(len(whole))
        if not whole:
            return
        try:
            first, *lines = (json.loads(line) for line in whole.splitlines())
            if not isinstance(first, dict) or first.get("format") != FORMAT:
                raise ValueError(f"its first line is not a header of {FORMAT}")
        except ValueError as error:
            raise JournalError(
                f"{self._path} is not the journal of a sweep ({error}); choose another file."
            ) from error
        self._compare(first, header)
        self._header = None
        for line in lines:
            if "format" in line:  # of a process that began at the same time
                self._compare(line, header)
            elif "cell" in line:
                point, seed = line["cell"]
                self.cells[point, seed] = self._outcome(line)
            else:
                self.outputs = {
                    name: jax.ShapeDtypeStruct(shape, np.dtype(dtype))
                    for name, (dtype, shape) in line["metrics"].items()
                }

    def _compare(self, recorded: dict[str, Any], header: dict[str, Any]) -> None:
        """Requires a recorded header to be that of this sweep."""
        for key, mine in header.items():
            theirs = recorded.get(key)
            if theirs != mine and key == "program":
                raise JournalError(
                    f"{self._path} was recorded by another program: `train`, an array that it "
                    "closes over, or the version of JAX has changed since; resume with what it was,"
                    " or choose another file."
                )
            if theirs != mine:
                raise JournalError(
                    f"{self._path} belongs to another sweep: its {key} is {theirs}, here it is "
                    f"{mine}; resume with the same arguments, or choose another file."
                )

    def _outcome(self, line: Mapping[str, Any]) -> Outcome:
        if "error" in line:
            return {}, line["error"]
        return {
            name: np.asarray(decode(line["metrics"][name]), dtype=np.dtype(out.dtype))
            for name, out in (self.outputs or {}).items()
        }, None


def _describe(outputs: Outputs) -> dict[str, Any]:
    """Shape and dtype of each metric, as JSON values."""
    return {name: [np.dtype(out.dtype).name, list(out.shape)] for name, out in outputs.items()}
