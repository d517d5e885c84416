"""Results on disk: JSON that keeps everything, and a tidy CSV with a row per cell."""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import SEED
from mu2_optax.sweep._results.cells import CellRecord, assemble, finished_cells
from mu2_optax.sweep._results.disk import (
    check_beside,
    decode,
    encode,
    is_sealed,
    seal,
    write_atomically,
    write_beside,
)
from mu2_optax.sweep._results.result import Results, SweepResult, by_label

FORMAT = "mu2_optax.sweep/2"
_OPTIMIZER, _ERROR = "optimizer", "error"
_DAMAGE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, csv.Error)


def save_results(results: Results, path: str | Path) -> None:
    """Writes results to one file, JSON or CSV by its suffix, in one atomic step.

    JSON is strict (NaN and Inf are the strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``) and
    keeps everything with its dtype. CSV has the columns ``optimizer``, the axes, ``seed``, each
    metric, and ``error`` if a cell failed; curves are JSON lists in their column; cells that were
    not run have no row. Numbers are written in full, so both read back exactly, from CSV as int64
    or float64. A crash leaves the old file or the new one.

    Args:
      results: A result, a list of results with distinct labels, or a dict of them by label.
      path: A file name that ends in ``.json`` or ``.csv``.
    """
    listed = list(by_label(results).values())
    if _suffix(path) == ".json":
        write_atomically(path, _to_json(listed))
    else:
        write_beside(path, _to_csv(listed))  # a table has no place for a checksum


def load_results(path: str | Path) -> dict[str, SweepResult]:
    """Reads results by label from a file written by `save_results`.

    Args:
      path: A ``.json`` or ``.csv`` file.

    Returns:
      The results by label. If there is one, ``(result,) = load_results(path).values()`` is it.

    Raises:
      ValueError: If the file was not written by `save_results`, or has changed since.
    """
    suffix = _suffix(path)
    content = Path(path).read_bytes()
    if suffix == ".csv":
        check_beside(path, content)
    try:
        text = content.decode()
        results = _from_json(text) if suffix == ".json" else _from_csv(text)
    except _DAMAGE as error:
        raise ValueError(
            f"{path} is not a result of a sweep, or is damaged ({error}); load a file written by "
            "`save_results`."
        ) from error
    return {result.label: result for result in results}


def _to_json(results: Sequence[SweepResult]) -> str:
    entries = [
        {
            "label": result.label,
            "axes": {name: encode(axis) for name, axis in result.axes.items()},
            "seeds": result.seeds.tolist(),
            "metrics": {
                name: {"dtype": array.dtype.name, "shape": array.shape, "values": encode(array)}
                for name, array in result.metrics.items()
            },
            "finished": result.finished.tolist(),
            "errors": [{"cell": cell, "error": error} for cell, error in result.errors.items()],
            "info": result.info,
        }
        for result in results
    ]
    return seal({"format": FORMAT, "results": entries})


def _from_json(text: str) -> list[SweepResult]:
    document = json.loads(text)
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']!r} instead of {FORMAT!r}")
    if not is_sealed(text.removesuffix("\n")):
        raise ValueError("its checksum is not that of its content")
    return [
        SweepResult(
            metrics={
                name: np.asarray(decode(m["values"]), dtype=m["dtype"]).reshape(m["shape"])
                for name, m in entry["metrics"].items()
            },
            axes={name: np.asarray(axis, np.float64) for name, axis in entry["axes"].items()},
            seeds=np.asarray(entry["seeds"], np.int64),
            finished=np.asarray(entry["finished"], bool),
            errors={tuple(item["cell"]): item["error"] for item in entry["errors"]},
            label=entry["label"],
            info=entry["info"],
        )
        for entry in document["results"]
    ]


def _to_csv(results: Sequence[SweepResult]) -> str:
    axes = list(dict.fromkeys(name for result in results for name in result.axes))
    metrics = list(dict.fromkeys(name for result in results for name in result.metrics))
    for name in axes:
        if name in metrics:
            raise ValueError(
                f"`results` must not have a metric with the name of an axis in a CSV file, got "
                f"{name!r} for both; rename the metric, or save as JSON."
            )
    failed = [_ERROR] if any(result.errors for result in results) else []
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, [_OPTIMIZER, *axes, SEED, *metrics, *failed], restval="")
    writer.writeheader()
    for result in results:
        for point, seed, outcome, error in finished_cells(result):
            row: dict[str, Any] = {_OPTIMIZER: result.label, SEED: seed}
            row |= zip(result.axes, map(repr, point), strict=True)
            row |= {name: _to_field(value) for name, value in outcome.items()}
            writer.writerow(row | ({} if error is None else {_ERROR: error}))
    return buffer.getvalue()


def _from_csv(text: str) -> list[SweepResult]:
    if not text.endswith("\n"):
        raise ValueError("its last line is cut off")
    reader = csv.DictReader(io.StringIO(text), strict=True)
    names = list(reader.fieldnames or [])
    if names[:1] != [_OPTIMIZER] or SEED not in names:
        raise ValueError(f"the columns must start with {_OPTIMIZER!r} and include {SEED!r}")
    axes = names[1 : names.index(SEED)]
    metrics = [name for name in names[names.index(SEED) + 1 :] if name != _ERROR]
    rows: dict[str, list[dict[str, str]]] = {}
    for row in reader:
        if None in row or None in row.values():
            raise ValueError(f"line {reader.line_num} must have one value for each column")
        rows.setdefault(row[_OPTIMIZER], []).append(row)
    results = []
    for label, group in rows.items():
        own_axes = [name for name in axes if group[0][name]]
        columns = {
            name: _from_fields([row[name] for row in group]) for name in metrics if group[0][name]
        }
        cells: list[CellRecord] = [
            (
                tuple(float(row[name]) for name in own_axes),
                int(row[SEED]),
                {name: column[i] for name, column in columns.items()},
                row.get(_ERROR) or None,
            )
            for i, row in enumerate(group)
        ]
        values = np.asarray([point for point, *_ in cells]).T
        grid = {name: np.unique(own) for name, own in zip(own_axes, values, strict=True)}
        seeds = np.unique(np.asarray([seed for _, seed, *_ in cells], np.int64))
        results.append(assemble(grid, seeds, cells, label=label, info={}))
    return results


def _to_field(value: npt.NDArray[Any] | np.generic) -> str:
    """A number in the fewest digits that are exact, a curve as a JSON list of numbers."""
    array = np.asarray(value)
    plain = array.astype({"f": np.float64, "b": np.int64}.get(array.dtype.kind, array.dtype))
    return json.dumps(encode(plain)) if plain.ndim else repr(plain.item())


def _from_fields(column: Sequence[str]) -> npt.NDArray[Any]:
    """The values of a column: integers if all of them are, otherwise float64."""
    values = [decode(json.loads(f)) if f.startswith("[") else f for f in column]
    if not all(re.fullmatch(r"[-\d, \[\]]+", field) for field in column):
        return np.asarray(values, np.float64)
    try:
        return np.asarray(values, np.int64)
    except OverflowError:
        return np.asarray(values, np.uint64)


def _suffix(path: str | Path) -> str:
    suffix = Path(path).suffix.lower()
    if suffix not in (".json", ".csv"):
        raise ValueError(f"`path` must end in .json or .csv, got {str(path)!r}.")
    return suffix
