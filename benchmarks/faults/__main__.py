"""Kills, full disks, damaged files and gradients that are not finite: counts of what survives.

    python -m benchmarks.faults                     # everything, about half an hour
    python -m benchmarks.faults --only damage       # one kind

Each kind goes into a file of its own in ``benchmarks/results/faults``, a row for each thing that it
was tried on: how often, how often a wrong result or none came out of it without a word ("lost"; the
goal is 0), and how the others ended.
"""

import argparse
import pathlib
from collections.abc import Callable

from benchmarks.faults import damage, full_disk, kills, nonfinite
from benchmarks.faults.count import Count
from benchmarks.files import RESULTS, write_rows

KINDS: dict[str, tuple[Callable[[int], list[Count]], int]] = {
    "kills": (kills.measure, 100),
    "full_disk": (full_disk.measure, 50),
    "damage": (damage.measure, 200),
    "nonfinite": (nonfinite.measure, 64),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--number", type=int, help="how often each (default: by kind)")
    parser.add_argument(
        "--out", type=pathlib.Path, default=RESULTS / "faults", help="folder of the results"
    )
    args = parser.parse_args()
    for kind in args.only:
        measure, number = KINDS[kind]
        rows = measure(args.number or number)
        write_rows(args.out / f"{kind}.csv", [row._asdict() for row in rows])
        for row in rows:
            print(f"{row.fault}, {row.what}: {row.tried} tried, {row.lost} lost; {row.ended}")


if __name__ == "__main__":
    main()
