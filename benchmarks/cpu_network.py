"""The paper's CNN on a CPU: its layers in two forms, and memory that is kept or given back.

    python -m benchmarks.cpu_network

Times the gradient (batch 64, called from Python) with `examples.cpu_layers` and with XLA's own
convolution and pooling, and a step of μ²-SGD with the former, each in a process of its own, with
freed memory kept and not. Writes milliseconds, the share of them in the system and the pages that
it cleared for a call to ``benchmarks/results/cpu_network/cores_<number>.csv``. Takes a minute.
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import image_tasks
from benchmarks.files import RESULTS, write_rows
from benchmarks.step_cost import OPTIMIZERS, cnn, make_step
from benchmarks.timing import CORES
from examples.cpu_layers import keep_freed_memory

CASES = ("gradient, cpu_layers", "gradient, lax", "step of mu2_sgd, cpu_layers")
COLUMNS = ("milliseconds", "system_share", "pages")


def lax_convolution(images: Any, kernel: Any) -> Any:
    """XLA's own."""
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=order)


def lax_max_pool(x: Any) -> Any:
    """XLA's own."""
    window = (1, 2, 2, 1)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def measure(case: str, rounds: int) -> list[float]:
    """Milliseconds, share in the system and pages of a call: medians over the rounds."""
    if case == "gradient, lax":
        image_tasks.convolution, image_tasks.max_pool = lax_convolution, lax_max_pool
    loss, params, batch = cnn()
    if case.startswith("gradient"):
        gradient = jax.jit(jax.grad(loss))
        call = lambda: gradient(params, batch)
    else:
        held = [(params, OPTIMIZERS["mu2_sgd"].tx.init(params))]
        step = jax.jit(make_step(loss, OPTIMIZERS["mu2_sgd"]), donate_argnums=(0, 1))

        def call() -> Any:
            held[0] = step(*held[0], batch)
            return held[0]

    jax.block_until_ready(call())
    found = []
    for _ in range(rounds):
        before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for _ in range(5):
            out = call()
        jax.block_until_ready(out)
        seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
        system = (after.ru_stime - before.ru_stime) / seconds
        found.append((200 * seconds, system, (after.ru_minflt - before.ru_minflt) / 5))
    return [float(value) for value in np.median(found, axis=0)]


def main() -> None:
    """Measures each case in a process of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--case", choices=CASES, help="measure this one only, in this process")
    parser.add_argument("--keep", action="store_true", help="of --case: keep freed memory")
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu_network", help="folder")
    args = parser.parse_args()
    if args.case:
        if args.keep:
            keep_freed_memory()
        print(*measure(args.case, args.rounds))
        return
    rows = []
    for case in CASES:
        for keep in (False, True):
            command = [sys.executable, "-m", "benchmarks.cpu_network", "--case", case]
            command += ["--rounds", str(args.rounds), *["--keep"] * keep]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            shown = [f"{float(value):.3g}" for value in printed.split()]
            memory = "kept" if keep else "given back"
            rows.append(
                dict(zip(("case", "memory", *COLUMNS), (case, memory, *shown), strict=True))
            )
            print(rows[-1], flush=True)
    write_rows(args.out / f"cores_{CORES}.csv", rows)


if __name__ == "__main__":
    main()
