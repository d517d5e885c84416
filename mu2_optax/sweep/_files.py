"""Results on disk: arrays with a JSON header in one file, and a table to read elsewhere."""

import csv
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import SEED
from mu2_optax.sweep._result import Results, SweepResult, by_label

FORMAT = "mu2_optax.sweep/3"
DAMAGE = (zipfile.BadZipFile, AttributeError, EOFError, LookupError, TypeError, ValueError)


def save_results(path: str | Path, results: Results) -> None:
    """Writes results to one file, which keeps everything: dtypes, NaN and Inf, errors, ``info``.

    The file is NumPy's ``.npz``, with a header in JSON; ``np.load`` reads the arrays too. A crash
    leaves the old file or the new one.

    Args:
      path: A file name that ends in ``.npz``.
      results: A result, a list of results with distinct labels, or a dict of them by label.
    """
    entries, arrays = [], {}
    for i, result in enumerate(by_label(results).values()):
        parts = {"axes": result.axes, "metrics": result.metrics}
        parts["grid"] = {"seeds": result.seeds, "finished": result.finished}
        for part, own in parts.items():
            arrays |= {f"{i}/{part}/{name}": array for name, array in own.items()}
        entries.append(
            {
                "label": result.label,
                "axes": list(result.axes),
                "metrics": list(result.metrics),
                "errors": [[list(map(int, cell)), e] for cell, e in result.errors.items()],
                "info": result.info,
            }
        )
    write_npz(_with_suffix(path, ".npz"), {"format": FORMAT, "results": entries}, arrays)


def load_results(path: str | Path) -> dict[str, SweepResult]:
    """Reads the results that `save_results` has written.

    Returns:
      The results by label. If there is one, ``(result,) = load_results(path).values()`` is it.

    Raises:
      ValueError: If the file was not written by `save_results`, or is damaged.
    """
    try:
        header, arrays = read_npz(path)
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r} instead of {FORMAT!r}")
        results = [
            SweepResult(
                metrics={name: arrays[f"{i}/metrics/{name}"] for name in entry["metrics"]},
                axes={name: arrays[f"{i}/axes/{name}"] for name in entry["axes"]},
                seeds=arrays[f"{i}/grid/seeds"],
                finished=arrays[f"{i}/grid/finished"],
                errors={tuple(cell): error for cell, error in entry["errors"]},
                label=entry["label"],
                info=entry["info"],
            )
            for i, entry in enumerate(header["results"])
        ]
    except DAMAGE as error:
        raise ValueError(
            f"{path} is not a result of a sweep, or is damaged ({error}); load a file written by "
            "`save_results`."
        ) from error
    return {result.label: result for result in results}


def write_csv(path: str | Path, results: Results) -> None:
    """Writes a table with a row per finished cell.

    The columns are ``optimizer`` (the label), the axes, ``seed``, each metric, and ``error`` if a
    cell failed. Numbers are written in full; a curve is a list in its column, as in JSON. For the
    table in memory see ``SweepResult.to_pandas``; to read results back, `save_results`.

    Args:
      path: A file name that ends in ``.csv``.
      results: A result, a list of results with distinct labels, or a dict of them by label.
    """
    listed = list(by_label(results).values())
    axes = dict.fromkeys(name for result in listed for name in result.axes)
    metrics = dict.fromkeys(name for result in listed for name in result.metrics)
    both = [name for name in axes if name in metrics]
    if both:
        raise ValueError(
            f"`results` must not have a metric with the name of an axis, got {both[0]!r} for both; "
            "rename the metric, or write two files."
        )
    error = ["error"] if any(result.errors for result in listed) else []
    with written_whole(_with_suffix(path, ".csv")) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text, lineterminator="\n")
        names = ["optimizer", *axes, SEED, *metrics, *error]
        writer.writerow(names)
        for result in listed:
            columns = result.columns()
            blank = [""] * len(columns[SEED])
            writer.writerows(zip(*(map(_field, columns.get(n, blank)) for n in names), strict=True))
        text.detach()


def write_npz(
    path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Writes arrays by name, and a header as JSON."""
    with written_whole(path) as file:
        named: dict[str, Any] = {"header": np.asarray(json.dumps(header)), **arrays}
        np.savez(file, **named)


def read_npz(path: str | Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Reads what `write_npz` has written; one of `DAMAGE` says that it has changed since."""
    with np.load(path, allow_pickle=False) as file:  # each array has a checksum of its own
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("header"))), arrays


@contextmanager
def written_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a file that replaces the one at ``path`` once it is on disk; never a part of it."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:  # such as a full disk
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _field(value: Any) -> Any:
    """A number in full, or a curve as a list in JSON."""
    plain = np.asarray(value).tolist()
    return json.dumps(plain) if isinstance(plain, list) else plain


def _with_suffix(path: str | Path, suffix: str) -> Path:
    if Path(path).suffix != suffix:
        raise ValueError(f"`path` must end in {suffix}, got {str(path)!r}.")
    return Path(path)
