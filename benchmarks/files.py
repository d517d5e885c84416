"""What all benchmarks share: where results are, how they are written, and what made them."""

import csv
import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("mu2-optax", "jax", "optax", "flax", "numpy", "scikit-learn")


def write_rows(file: Path, rows: Sequence[Mapping[str, Any]], digits: int = 6) -> None:
    """Writes rows as a CSV file, floats to so many digits; blank where a row has no such column."""

    def field(value: Any) -> Any:
        if isinstance(value, float | np.floating):
            return f"{value:.{digits}g}"
        return value

    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", newline="", encoding="utf-8") as opened:
        columns = dict.fromkeys(name for row in rows for name in row)
        writer = csv.DictWriter(opened, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: field(value) for name, value in row.items()} for row in rows)


def read_rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file, by column."""
    with file.open(newline="", encoding="utf-8") as opened:
        return list(csv.DictReader(opened))


def with_kept(file: Path, rows: Sequence[Any], columns: Sequence[str]) -> list[Any]:
    """The rows, after those in the file that have other values in these columns."""
    key = lambda row: tuple(row[column] for column in columns)
    new = set(map(key, rows))
    kept = [row for row in read_rows(file) if key(row) not in new] if file.is_file() else []
    return [*kept, *rows]


def command_line(module: str, options: Sequence[str] | None = None) -> str:
    """The command that runs a module, with DATA for the folder of the data."""
    text = " ".join(["python -m", module, *(sys.argv[1:] if options is None else options)])
    return re.sub(r"(--data-dir[= ])\S+", r"\1DATA", text)


def versions() -> dict[str, str]:
    """The versions of what the numbers depend on."""
    return {package: importlib.metadata.version(package) for package in PACKAGES}


def machine() -> str:
    """This machine in a few words."""
    return f"{os.cpu_count()}-core {platform.machine()} CPU, {platform.system()}"


def git(*arguments: str) -> str | None:
    """What git says in the folder of this file, or None where there is no git."""
    try:
        found = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True
        )
    except FileNotFoundError:
        return None
    return found.stdout.strip() if found.returncode == 0 else None
