"""Results on disk: arrays with a JSON header in one file, and a table to read elsewhere."""

import csv
import io
import json
import os
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

    It is NumPy's ``.npz`` with a header in JSON, so that ``np.load`` reads the arrays too. A crash
    leaves the old file or the new one.

    Args:
      path: A file name that ends in ``.npz``.
      results: A result, a list of results with distinct labels, or a dict of them by label.
    """
    if Path(path).suffix != ".npz":
        raise ValueError(f"`path` must end in .npz, got {str(path)!r}.")
    arrays: dict[str, npt.NDArray[Any]] = {}
    entries = []
    for i, (label, result) in enumerate(by_label(results).items()):
        grid = {"seeds": result.seeds, "finished": result.finished}
        for part, own in (("grid", grid), ("axes", result.axes), ("metrics", result.metrics)):
            arrays |= {f"{i}/{part}/{name}": array for name, array in own.items()}
        errors = [[[*map(int, at)], error] for at, error in result.errors.items()]
        entries.append({"label": label, "errors": errors, "info": result.info})
    write_npz(path, {"format": FORMAT, "results": entries}, arrays)


def load_results(path: str | Path) -> dict[str, SweepResult]:
    """Reads the results that `save_results` has written.

    Returns:
      The results by label. If there is one, ``(result,) = load_results(path).values()`` is it.

    Raises:
      ValueError: If the file was not written by `save_results`, or is damaged.
    """
    results = {}
    try:
        header, arrays = read_npz(path)
        if header["format"] != FORMAT:
            raise ValueError(f"format {header['format']!r} instead of {FORMAT!r}")
        for i, entry in enumerate(header["results"]):
            parts: dict[str, dict[str, Any]] = {"grid": {}, "axes": {}, "metrics": {}}
            for key, array in arrays.items():
                at, part, name = key.split("/", 2)
                if at == str(i):
                    parts[part][name] = array
            entry["errors"] = {tuple(at): error for at, error in entry["errors"]}
            label = entry["label"]
            results[label] = SweepResult(parts["metrics"], parts["axes"], **parts["grid"], **entry)
    except DAMAGE as error:
        raise ValueError(
            f"{path} is not a result of a sweep, or is damaged ({error}); load a file written by "
            "`save_results`."
        ) from error
    return results


def write_csv(path: str | Path, results: Results) -> None:
    """Writes a table with a row per finished cell, to be read by other programs.

    The columns are ``optimizer`` (the label), the axes, ``seed``, each metric, and ``error`` if a
    cell failed. Numbers are written in full; a curve is a list in its column, as in JSON.

    Args:
      path: The file's name.
      results: A result, a list of results with distinct labels, or a dict of them by label.
    """
    listed = list(by_label(results).values())
    names = [name for result in listed for name in ("optimizer", *result.axes)]
    names += [SEED, *(name for result in listed for name in result.metrics)]
    names = list(dict.fromkeys(names + ["error"] * any(result.errors for result in listed)))
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for result in listed:
        table = result.columns()
        for row in zip(*table.values(), strict=True):
            writer.writerow(dict(zip(table, map(_field, row), strict=True)))
    with written_whole(path) as file:
        file.write(text.getvalue().encode())


def write_npz(
    path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Writes arrays by name, and a header as JSON."""
    with written_whole(path) as file:
        named: dict[str, Any] = {"header": np.asarray(json.dumps(header)), **arrays}
        np.savez(file, **named)


def read_npz(path: str | Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Reads what `write_npz` has written; one of `DAMAGE` says that it has changed since."""
    with Path(path).open("rb") as opened, np.load(opened) as file:  # a zip file: with checksums
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("header"))), arrays


@contextmanager
def written_whole(path: str | Path) -> Iterator[IO[bytes]]:
    """Opens a file that replaces the one at ``path`` once it is on disk; never a part of it."""
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with part.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _field(value: Any) -> Any:
    """A number in full, or a curve as a list in JSON."""
    plain = np.asarray(value).tolist()
    return json.dumps(plain) if isinstance(plain, list) else plain
