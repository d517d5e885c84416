"""All benchmarks of speed, one after another.

    python -m benchmarks                  # in less than 15 minutes on a 2-core x86-64 CPU
    python -m benchmarks --thorough       # as for the committed results: in half an hour
    python -m benchmarks step_cost scaling
    python -m benchmarks --list

Each writes its own folder of ``benchmarks/results``; `python -m benchmarks.tables` then brings the
tables of the documents up to date.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import time
from typing import NamedTuple


class Benchmark(NamedTuple):
    """A benchmark.

    Attributes:
      summary: What it measures.
      quick: Options for fewer rounds, or less of it.
      cores: On how many cores it is run, one after another.
    """

    summary: str
    quick: tuple[str, ...]
    cores: tuple[int, ...] = (1,)


SPEED = {
    "step_cost": Benchmark(
        "time, memory and compilation of a step, beside SGD's",
        ("--rounds", "3", "--dtypes", "float32"),
    ),
    "step_profile": Benchmark(
        "where the time of a step goes",
        ("--rounds", "3", "--models", "MLP 784-512-512-10", "the paper's CNN"),
    ),
    "scaling": Benchmark("how cost grows with params, t, leaves and lanes", ("--rounds", "2")),
    "sweep_throughput": Benchmark(
        "sweeps beside the same cells one after another", ("--rounds", "1"), cores=(2,)
    ),
    "vs_pytorch": Benchmark(
        "training here and in PyTorch; needs the extra `bench`",
        ("--rounds", "3", "--sweep-rounds", "1"),
        cores=(1, 2),
    ),
}


def run(name: str, cores: int, thorough: bool) -> None:
    """Runs a benchmark in a process of its own, on so many of the cores at hand."""
    start = time.perf_counter()
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if len(own) >= cores:
        os.sched_setaffinity(0, sorted(own)[:cores])  # which the process inherits
    try:
        options = () if thorough else SPEED[name].quick
        command = [sys.executable, "-m", f"benchmarks.{name}", *options]
        if subprocess.run(command).returncode:
            raise SystemExit(f"{name} failed")
    finally:
        if own:
            os.sched_setaffinity(0, own)
    print(f"{name}, cores: {cores}, {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    """Runs the benchmarks that are named, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--thorough", action="store_true", help="more rounds, and bfloat16")
    parser.add_argument("--list", action="store_true", help="say which there are, and stop")
    args = parser.parse_args()
    if args.list:
        for name, benchmark in SPEED.items():
            print(f"{name:18s} {benchmark.summary}")
        return
    for name in args.names:
        if name not in SPEED:
            parser.error(f"there is no {name}; choose from {', '.join(SPEED)}")
    for name in args.names or SPEED:
        if name == "vs_pytorch" and importlib.util.find_spec("torch") is None:
            print("vs_pytorch: left out, because PyTorch is missing: pip install -e '.[bench]'")
            continue
        for cores in SPEED[name].cores:
            run(name, cores, args.thorough)


if __name__ == "__main__":
    main()
