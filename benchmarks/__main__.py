"""All benchmarks of speed, one after another.

    python -m benchmarks                  # estimated: 15 minutes on a 2-core x86-64 CPU
    python -m benchmarks step_cost scaling
    python -m benchmarks --list

Each writes its own folder of ``benchmarks/results``; `python -m benchmarks.tables` then brings the
tables of the documents up to date.
"""

import argparse
import importlib.util
import subprocess
import sys
import time

SPEED = {
    "step_cost": ("time, memory and compilation of a step, beside SGD's", []),
    "sweep_throughput": (
        "sweeps beside the same cells one after another",
        ["--rounds", "3", "--out", "benchmarks/results/sweep_throughput"],
    ),
    "scaling": ("how cost grows with params, t, leaves and lanes", []),
    "cpu_network": ("the paper's CNN: layers in two forms, memory kept or not", []),
    "vs_pytorch": ("training here and in PyTorch; needs the extra `bench`", []),
}


def main() -> None:
    """Runs the benchmarks that are named, each in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--list", action="store_true", help="say which there are, and stop")
    args = parser.parse_args()
    if args.list:
        for name, (summary, _) in SPEED.items():
            print(f"{name:18s} {summary}")
        return
    for name in args.names:
        if name not in SPEED:
            parser.error(f"there is no {name}; choose from {', '.join(SPEED)}")
    for name in args.names or SPEED:
        if name == "vs_pytorch" and importlib.util.find_spec("torch") is None:
            print("vs_pytorch: left out, because PyTorch is missing: pip install -e '.[bench]'")
            continue
        start = time.perf_counter()
        command = [sys.executable, "-m", f"benchmarks.{name}", *SPEED[name][1]]
        if subprocess.run(command).returncode:
            parser.exit(1, f"{name} failed\n")
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
