"""All benchmarks of speed, one after another, each in a process of its own.

    python -m benchmarks                  # in less than 15 minutes on a 2-core x86-64 CPU
    python -m benchmarks --thorough       # as for the committed results: in half an hour
    python -m benchmarks step_cost scaling

Each writes its own folder of ``benchmarks/results``; `python -m benchmarks.tables` then brings the
tables of the documents up to date, and `python -m benchmarks.costs` the pictures.
"""

import argparse
import os
import subprocess
import sys
import time

# The cores that each is run on, one after another, and its options for fewer rounds.
SPEED: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "step_cost": ((1,), ("--rounds", "3", "--dtypes", "float32")),
    "scaling": ((1,), ("--rounds", "2")),
    "vs_pytorch": ((1, 2), ("--rounds", "3", "--sweep-rounds", "1")),  # needs the extra `bench`
}


def run(name: str, cores: int, options: tuple[str, ...]) -> None:
    """Runs a benchmark on so many of the cores at hand."""
    start = time.perf_counter()
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if len(own) >= cores:
        os.sched_setaffinity(0, sorted(own)[:cores])  # which the process inherits
    try:
        subprocess.run(command, check=True)
    finally:
        if own:
            os.sched_setaffinity(0, own)
    print(f"{name}, cores: {cores}, {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    """Runs the benchmarks that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SPEED)}")
    parser.add_argument("--thorough", action="store_true", help="more rounds, and bfloat16")
    args = parser.parse_args()
    if unknown := set(args.names) - set(SPEED):
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(SPEED)}")
    for name in args.names or SPEED:
        for cores in SPEED[name][0]:
            run(name, cores, () if args.thorough else SPEED[name][1])


if __name__ == "__main__":
    main()
