"""The tables of ``benchmarks.faults`` and ``benchmarks.long_runs``."""

from pathlib import Path

from benchmarks.files import read_rows

Rows = list[list[str]]


def faults_table(file: Path) -> Rows:
    """What a fault was tried on, how often, and how that ended."""
    rows = [["", "tried", "survived", "lost", "how the others ended"]]
    for row in read_rows(file):
        tried, lost = int(row["tried"]), int(row["lost"])
        rows.append([row["what"], f"{tried}", f"{tried - lost}", f"{lost}", row["ended"]])
    return rows


def long_runs_table(file: Path) -> Rows:
    """A long run of each optimizer."""
    head = [
        "",
        "memory",
        "compiles",
        "away from float64",
        "in roundings",
        "excess loss",
        "float64's",
    ]

    def shown(row: dict[str, str]) -> list[str]:
        memory, apart, roundings, *excess = (
            float(row[name])
            for name in ("memory_mb", "apart", "roundings", "excess_float32", "excess_float64")
        )
        numbers = [f"{apart:.0e}", f"{roundings:.2g}", *(f"{loss:.3g}" for loss in excess)]
        return [row["optimizer"], f"{memory:+.2f} MB", row["compiles"], *numbers]

    return [head, *map(shown, read_rows(file))]


def long_sweeps_table(file: Path) -> Rows:
    """A long sweep with each strategy."""
    rows = [["", "cells", "memory a cell", "time a cell, first fifth", "last fifth"]]
    for row in read_rows(file):
        early, late = (float(row[f"milliseconds_{when}"]) for when in ("early", "late"))
        memory = f"{float(row['bytes_per_cell']):.0f} bytes"
        rows.append(
            [f"`{row['strategy']}`", row["cells"], memory, f"{early:.1f} ms", f"{late:.1f} ms"]
        )
    return rows
