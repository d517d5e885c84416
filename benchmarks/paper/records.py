"""What an experiment leaves behind: ``results.csv``, ``run.json``, and the way back to a sweep."""

import argparse
import csv
import importlib.metadata
import io
import json
import os
import platform
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep import SweepResult
from mu2_optax.sweep.storage import write_atomically

RESULTS = Path(__file__).resolve().parents[1] / "results"
COLUMNS = (
    "optimizer",
    "learning_rate",
    "seed",
    "projection",
    "steps",
    "gradient_evaluations",
    "test_accuracy",
    "test_loss",
)
_TYPES = dict(
    zip(COLUMNS, (str, float, int, str, int, int, float, float), strict=True),
)

Row = dict[str, Any]


def rows_of(result: SweepResult, *, projection: str, steps: int, gradients: int) -> list[Row]:
    """A row for each finished cell of a sweep over the learning rate."""
    values = {name: result.final(name) for name in ("test_accuracy", "test_loss")}
    return [
        {
            "optimizer": result.label,
            "learning_rate": float(rate),
            "seed": int(seed),
            "projection": projection,
            "steps": steps,
            "gradient_evaluations": steps * gradients,
            **{name: float(array[i, j]) for name, array in values.items()},
        }
        for i, rate in enumerate(result.learning_rates)
        for j, seed in enumerate(result.seeds)
        if result.finished[i, j]
    ]


def write_rows(rows: Iterable[Row], path: Path) -> None:
    """Writes a tidy CSV file."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        writer.writerow(
            f"{value:.6g}" if isinstance(value, float) else value
            for value in (row[column] for column in COLUMNS)
        )
    write_atomically(path, buffer.getvalue())


def read_rows(path: Path) -> list[Row]:
    """Reads what ``write_rows`` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise ValueError(f"{path}: expected the columns {COLUMNS}, got {reader.fieldnames}.")
        return [{name: _TYPES[name](row[name]) for name in COLUMNS} for row in reader]


def select(rows: Iterable[Row], **values: Any) -> list[Row]:
    """The rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in values.items())]


def as_sweeps(rows: Iterable[Row], titles: dict[str, str]) -> dict[str, SweepResult]:
    """Sweeps by title, in the order of ``titles``, for the measures and pictures of a sweep.

    A cell that has no row has not been run; a rate or a seed that no optimizer has is left out.
    """
    rows = list(rows)
    rates = np.unique([row["learning_rate"] for row in rows])
    seeds = np.unique([row["seed"] for row in rows])
    sweeps = {}
    for name, title in titles.items():
        own = select(rows, optimizer=name)
        if not own:
            continue
        cells = {(row["learning_rate"], row["seed"]): row for row in own}
        if len(cells) != len(own):
            raise ValueError(f"{name} has two rows for one learning rate and seed.")
        shape = (len(rates), len(seeds))
        metrics = {metric: np.full(shape, np.nan) for metric in ("test_accuracy", "test_loss")}
        finished = np.zeros(shape, dtype=bool)
        for index in np.ndindex(shape):
            row = cells.get((rates[index[0]], seeds[index[1]]))
            if row is not None:
                finished[index] = True
                for metric, array in metrics.items():
                    array[index] = row[metric]
        sweeps[title] = SweepResult(metrics, {"learning_rate": rates}, seeds, finished, label=title)
    return sweeps


def write_run(path: Path, **facts: Any) -> None:
    """Writes ``run.json``: the command, the versions, the machine, and what else is told."""
    packages = ("mu2-optax", "jax", "optax", "flax", "numpy", "scikit-learn")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    accelerator = "no GPU" if jax.default_backend() == "cpu" else jax.devices()[0].device_kind
    run = {
        "command": command_line(),
        "versions": {"python": platform.python_version()}
        | {package: _version(package) for package in packages},
        "machine": f"{cores}-core {platform.machine()} CPU, {accelerator}, {platform.system()}",
    }
    write_atomically(path, json.dumps(run | facts, indent=2, ensure_ascii=False) + "\n")


def command_line(argv: Sequence[str] | None = None) -> str:
    """The command that runs this script, with DATA for the folder of the data."""
    script, *options = sys.argv if argv is None else argv
    script = os.path.relpath(script, RESULTS.parents[1])
    shown, hide = [], False
    for option in options:
        if option.startswith("--data-dir="):
            option = "--data-dir=DATA"
        shown.append("DATA" if hide else option)
        hide = option == "--data-dir"
    return " ".join(["python", script, *shown])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if package != "mu2-optax":
            return "not installed"
        import mu2_optax

        return mu2_optax.__version__


def rates(text: str) -> tuple[float, ...]:
    """Learning rates from ``--lrs``: numbers with commas between them.

    Examples:
      >>> rates("0.1,1,10")
      (0.1, 1.0, 10.0)
    """
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = ()
    if not values or not all(np.isfinite(value) and value > 0 for value in values):
        raise argparse.ArgumentTypeError(
            f"expected positive numbers with commas between them, such as 0.1,1,10, got {text!r}"
        )
    return values


def some_of(names: Sequence[str]) -> Any:
    """A parser of names with commas between them."""

    def parse(text: str) -> tuple[str, ...]:
        chosen = tuple(text.split(","))
        unknown = [name for name in chosen if name not in names]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"no {unknown[0]!r}; there are {', '.join(names)} (with commas between them)"
            )
        return chosen

    return parse
