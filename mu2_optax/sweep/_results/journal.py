"""An append-only record of finished cells, so that a killed sweep continues where it stopped."""

import io
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._environment import deciding_settings
from mu2_optax.sweep._grid import SEED, Cell, Grid
from mu2_optax.sweep._results.disk import decode, encode, is_sealed, naming, seal

FORMAT = "mu2_optax.journal/4"

# The metrics of a cell, and its error if it failed.
Outcome = tuple[dict[str, npt.NDArray[Any]], str | None]
# Shape and dtype of each metric of one cell.
Outputs = Mapping[str, jax.ShapeDtypeStruct]


class JournalError(ValueError):
    """A file that is not a journal, or the journal of another sweep."""


class Journal:
    """One JSON line per finished cell, after a line that says which sweep it is.

    A cell's line has its values and its seed, not its place in the grid, so that a sweep can go on
    with more rates or seeds than it began with; every recorded cell must be one of its grid.
    A cell counts as finished when its line has been written and flushed to disk. Each line has a
    checksum. When the file is opened again, a last line that was cut off by a kill is dropped and
    a damaged one is left out, with a warning; their cells run again. Where the metrics' shapes are
    not known before a cell has finished, a line of its own holds them. The file is created with
    its first line.

    ``outputs`` are the metrics of one cell, None if a cell has to finish before they are known;
    ``context`` is whatever else must be the same in both runs, as JSON values; ``program`` is the
    fingerprint of what computes a cell, None if it has none.

    Raises:
      JournalError: If the file belongs to another sweep, has a cell outside of the grid or was
        recorded under other settings of JAX that numbers depend on, or is not a journal.
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
        self.path = Path(path)
        self.outputs = outputs
        self.cells: dict[Cell, Outcome] = {}
        self._values = {cell: (*point, seed) for cell, (point, seed) in grid.cells.items()}
        self._places = {values: cell for cell, values in self._values.items()}
        header = {
            "format": FORMAT,
            "axes": list(grid.axes),
            "label": label,
            "context": dict(context or {}),
            "metrics": None if outputs is None else _describe(outputs),
            "settings": deciding_settings(),
            "program": program,
        }
        self._header: dict[str, Any] = json.loads(json.dumps(header))  # as a file returns it
        self._is_empty = True
        self._read()

    def declare(self, outputs: Outputs) -> None:
        """Writes what the metrics of a cell are, once the first finished cell has shown it."""
        self.outputs = outputs
        self._append({"metrics": _describe(outputs)})

    def record(self, outcomes: Mapping[Cell, Outcome]) -> None:
        """Writes the finished cells of a call, all at once, because each write takes a while."""
        lines: list[dict[str, Any]] = []
        for cell, (metrics, error) in outcomes.items():
            encoded = {name: encode(value) for name, value in metrics.items()}
            line = {"metrics": encoded} if error is None else {"error": error}
            lines.append({"cell": self._values[cell], **line})
        self._append(*lines)
        self.cells.update(outcomes)

    def _append(self, *lines: Mapping[str, Any]) -> None:
        items = (self._header, *lines) if self._is_empty else lines
        content = "".join(map(seal, items)).encode()
        with naming(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab", buffering=0) as file:  # one write, not mixed with others
                _write(file, content)
        self._is_empty = False

    def _read(self) -> None:
        """Reads the cells of an earlier run, if there was one."""
        content = self.path.read_bytes() if self.path.exists() else b""
        if not content:
            return
        *lines, cut_off = content.split(b"\n")
        if lines:
            is_journal = (_parse(lines[0]) or {}).get("format") == FORMAT
        else:
            is_journal = seal(self._header).encode().startswith(content)
        if not is_journal:
            raise JournalError(
                f"{self.path} is not the journal of a sweep, or its first line is damaged: it is "
                f"not a header of {FORMAT}; choose another file."
            )
        self._is_empty = not lines
        damaged = [str(number) for number, line in enumerate(lines, 1) if not self._read_line(line)]
        if damaged:
            self._warn(f"damaged lines are left out: {', '.join(damaged)}")
        if cut_off:
            with self.path.open("r+b") as file:
                file.truncate(len(content) - len(cut_off))
            self._warn("its last line was cut off and is dropped")

    def _read_line(self, line: bytes) -> bool:
        """Reads a line; returns False if it is damaged."""
        item = _parse(line)
        if item is None:
            return False
        if "format" in item:  # the first line, and that of a process that began at the same time
            self._check_header(item)
        elif "cell" in item:
            if "metrics" in item and self.outputs is None:  # the line that held them is damaged
                return False
            cell = self._places.get(tuple(item["cell"]))
            if cell is None:
                names = (*self._header["axes"], SEED)
                values = [f"{n}={v:g}" for n, v in zip(names, item["cell"], strict=True)]
                raise JournalError(
                    f"{self.path} has the cell {', '.join(values)}, which is not in this grid; "
                    "resume with all values and seeds that it has, and with more if you like, or "
                    "choose another file."
                )
            if "metrics" in item:
                self.cells[cell] = self._decode(item["metrics"]), None
            else:  # a failure does not replace a success
                self.cells.setdefault(cell, ({}, item["error"]))
        else:
            self.outputs = {
                name: jax.ShapeDtypeStruct(shape, np.dtype(dtype))
                for name, (dtype, shape) in item["metrics"].items()
            }
        return True

    def _warn(self, what: str) -> None:
        warnings.warn(f"{self.path}: {what}; what is missing runs again.", stacklevel=2)

    def _check_header(self, recorded: dict[str, Any]) -> None:
        """Requires a recorded header to be that of this sweep."""
        for key, mine in self._header.items():
            theirs = recorded.get(key)
            if theirs == mine:
                continue
            if key == "settings":
                before: dict[str, Any] = theirs or {}
                differences = ", ".join(
                    f"{name} was {before.get(name, 'not recorded')} and is {value}"
                    for name, value in mine.items()
                    if name not in before or before[name] != value
                )
                problem = (
                    f"was recorded under other settings of JAX: {differences}; set what it was "
                    "recorded under"
                )
            elif key == "program":
                problem = (
                    "was recorded by another program: `train`, an array that it closes over, or "
                    "the version of JAX has changed since; resume with what it was"
                )
            else:
                problem = (
                    f"belongs to another sweep: its {key} is {theirs}, here it is {mine}; resume "
                    "with the same arguments"
                )
            raise JournalError(f"{self.path} {problem}, or choose another file.")

    def _decode(self, metrics: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
        return {
            name: np.asarray(decode(metrics[name]), dtype=np.dtype(out.dtype))
            for name, out in (self.outputs or {}).items()
        }


def _parse(line: bytes) -> dict[str, Any] | None:
    """What a line says, or None if it is damaged."""
    text = line.decode(errors="replace")
    return json.loads(text) if is_sealed(text) else None


def _write(file: io.FileIO, content: bytes) -> None:
    """Appends all or nothing: on a full disk a part may have been written before the error."""
    written = 0
    try:
        while written < len(content):
            written += file.write(content[written:])
        os.fsync(file.fileno())
    except OSError:
        if written and file.tell() == os.fstat(file.fileno()).st_size:  # nobody wrote after it
            file.truncate(file.tell() - written)
        raise


def _describe(outputs: Outputs) -> dict[str, Any]:
    """Shape and dtype of each metric, as JSON values."""
    return {name: [np.dtype(out.dtype).name, list(out.shape)] for name, out in outputs.items()}
