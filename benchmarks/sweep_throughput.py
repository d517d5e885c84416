"""How long a sweep takes, divided by the same cells run one after another.

    python -m benchmarks.sweep_throughput

Both run through functions that are compiled once, and both times leave the compilation out (it is
shown apart). All ways take turns, round after round; the ratio is the median of the rounds'. The
tasks are 6 rates × 3 seeds of logistic regression and of the paper's CNN with μ²-SGD, on made-up
numbers of MNIST's shape. It writes ``benchmarks/results/sweep_throughput/results.csv``; takes three
minutes on two cores.
"""

import argparse
import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.files import RESULTS, write_rows
from benchmarks.image_tasks import cnn_task, dense_task, made_up
from benchmarks.optimizers import OPTIMIZERS, Setting
from benchmarks.timing import CORES, in_turn
from benchmarks.training import make_train
from examples.cpu_layers import keep_freed_memory
from mu2_optax.sweep import sweep

RATES, SEEDS, BATCH = np.logspace(-4, 1, 6), 3, 64
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "vmap": {"strategy": "vmap"},
    "map": {"strategy": "map"},
    "loop": {"strategy": "loop"},
}


def logistic(steps: int) -> Callable[..., Any]:
    """Logistic regression with SGD."""
    task = dense_task(made_up(10_000), (), BATCH)
    return make_train(task, OPTIMIZERS["sgd"], Setting(), steps)


def network(steps: int) -> Callable[..., Any]:
    """The paper's CNN with μ²-SGD."""
    task = cnn_task(made_up(2_000), BATCH)
    return make_train(task, OPTIMIZERS["mu2_sgd"], Setting(), steps)


def one_after_another(train: Callable[..., Any]) -> tuple[Callable[[], float], float]:
    """A function that times the cells, and the seconds that it took to compile theirs."""
    cells = [(np.float32(rate), jax.random.key(seed)) for seed in range(SEEDS) for rate in RATES]
    start = time.perf_counter()
    one = jax.jit(train).lower(*cells[0]).compile()
    compile_seconds = time.perf_counter() - start

    def timed() -> float:
        start = time.perf_counter()
        for rate, key in cells:
            jax.device_get(one(rate, key))
        return time.perf_counter() - start

    return timed, compile_seconds


def compare(name: str, train: Callable[..., Any], rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each way to run the cells of a task."""
    cells, compile_seconds = one_after_another(train)
    compiling = {"one after another": compile_seconds}

    def timed(way: str) -> float:
        info = sweep(train, RATES, SEEDS, progress=False, **WAYS[way]).info
        compiling.setdefault(way, info["compile_seconds"])  # later rounds find it in the cache
        return info["run_seconds"]

    ways = {"one after another": cells, **{way: functools.partial(timed, way) for way in WAYS}}
    for way, seconds in (found := in_turn(ways, rounds)).items():
        yield {
            "task": name,
            "way": way,
            "seconds": float(np.median(seconds)),
            "ratio": float(np.median(seconds / found["one after another"])),
            "seconds_to_compile": compiling[way],
        }


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=938, help="of logistic regression")
    parser.add_argument("--cnn-steps", type=int, default=40)
    parser.add_argument("--out", type=Path, default=RESULTS / "sweep_throughput", help="folder")
    args = parser.parse_args()
    keep_freed_memory()
    # XLA reads this when the first array is made.
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={CORES}")
    cache = tempfile.TemporaryDirectory()  # so that compilations are timed, not found
    jax.config.update("jax_compilation_cache_dir", cache.name)
    WAYS[f"vmap, {CORES} host devices"] = {"strategy": "vmap", "devices": jax.devices()}
    tasks = {
        f"logistic regression, {args.steps} steps": logistic(args.steps),
        f"the paper's CNN, {args.cnn_steps} steps": network(args.cnn_steps),
    }
    rows = []
    for name, train in tasks.items():
        for row in compare(name, train, args.rounds):
            rows.append(row)
            print(*row.values(), flush=True)
    write_rows(args.out / "results.csv", rows, digits=3)


if __name__ == "__main__":
    main()
