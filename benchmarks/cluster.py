"""What it costs to run the calls of a sweep on other processes, and what it gains.

    python -m benchmarks.cluster --out benchmarks/results/cluster

Measures, with Dask on one machine: the same sweep on one worker and on two, in turns (needs two
quiet cores; `--only speed_up` takes half a minute); the seconds of a call that computes nothing,
and how many of them the client and the scheduler spend; those of the journal. Then simulates 10² to
10⁴ workers and 10⁶ cells with these numbers (`benchmarks.cluster_study`, a few minutes). What is
not asked for by `--only` stays in the file as it was. The results of a 2-core x86-64 CPU are in
`benchmarks/results/cluster`: two workers are 1.84 times as fast as one. All but that was measured
on one of the cores.
"""

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.cluster_study import CELLS, CELLS_PER_CALL, Costs, study
from benchmarks.files import machine
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._results.journal import Journal

ONE_CORE = "--xla_cpu_multi_thread_eigen=false"
RATES = np.logspace(-4, 1, 6)


class Timed:
    """Within it, the seconds of this thread that an executor spends on submitting."""

    def __init__(self, executor):
        self.executor, self.seconds, self._submit = executor, 0.0, executor.submit

    def __enter__(self):
        def submit(*call, **options):
            start = time.thread_time()
            future = self._submit(*call, **options)
            self.seconds += time.thread_time() - start
            return future

        self.executor.submit = submit
        return self

    def __exit__(self, *_):
        del self.executor.submit


def nothing(learning_rate, key):
    return {"loss": learning_rate}


def speed_up(options):
    """The seconds of one sweep on a cluster of one worker and on one of two, in turns."""
    from distributed import Client, LocalCluster

    from benchmarks.sweep_throughput import logistic
    from mu2_optax.sweep import sweep

    train = logistic(options.steps, count=10_000)
    cells = {"learning_rates": RATES, "seeds": 4, "strategy": "loop", "progress": False}
    local = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    seconds = {1: [], 2: []}
    with ExitStack() as stack:
        executors = {}
        for count in seconds:
            cluster = stack.enter_context(LocalCluster(n_workers=count, **local))
            executors[count] = stack.enter_context(Client(cluster)).get_executor()
        for round_ in range(options.rounds + 1):
            for count, executor in executors.items():
                result = sweep(train, **cells, executor=executor)
                assert result.finished.all()
                if round_:  # the first one compiles
                    assert result.info["workers"]["count"] == count
                    seconds[count].append(result.info["run_seconds"])
                elif count == 1:
                    compiling = result.info["compile_seconds"]
    ratios = [one / two for one, two in zip(seconds[1], seconds[2], strict=True)]
    return {
        "cells": len(RATES) * 4,
        "seconds_on_1": [round(s, 3) for s in seconds[1]],
        "seconds_on_2": [round(s, 3) for s in seconds[2]],
        "median_ratio": round(float(np.median(ratios)), 2),
        "compile_seconds": compiling,
    }


def cell_times(options):
    """The seconds of single cells, in this process."""
    import jax

    from benchmarks.sweep_throughput import logistic

    train = jax.jit(logistic(options.steps, count=10_000))
    found = []
    for seed in range(5):
        for rate in RATES:
            start = time.perf_counter()
            jax.block_until_ready(train(np.float32(rate), jax.random.key(seed)))
            found.append(time.perf_counter() - start)
    return [round(seconds, 4) for seconds in found[1:]]  # the first one compiles


def calls(options):
    """The seconds of a call that computes nothing: as it is, of the client, of the scheduler."""
    from distributed import Client, SubprocessCluster

    from mu2_optax.sweep import sweep

    points, seeds = 10, options.calls // 10
    grid = (np.arange(1.0, points + 1), seeds)

    def timed(executor, cpu_elsewhere=lambda: 0.0):
        how = {"strategy": "loop", "progress": False, "executor": executor}
        sweep(nothing, grid[0], 2, **how)  # compiles
        with nullcontext() if executor is None else Timed(executor) as submitting:
            start, cpu, elsewhere = time.perf_counter(), time.process_time(), cpu_elsewhere()
            sweep(nothing, *grid, **how)
            seconds = {
                "seconds": time.perf_counter() - start,
                "client": time.process_time() - cpu,
                "submit": submitting.seconds if submitting else 0.0,
                "scheduler": cpu_elsewhere() - elsewhere,
            }
        return {name: round(value / points / seeds, 6) for name, value in seconds.items()}

    found = {"this process": timed(None)}
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        found["a process pool"] = timed(pool)
    cluster_options = {"n_workers": 1, "worker_kwargs": {"nthreads": 1}}
    with SubprocessCluster(**cluster_options) as cluster, Client(cluster) as client:
        on_scheduler = lambda: client.run_on_scheduler(time.process_time)
        found["Dask"] = timed(client.get_executor(), on_scheduler)
    return found


def journal(options):
    """The seconds that the journal takes for the cells of a call, in the median."""
    found = {}
    metrics = {"test_accuracy": np.float32(0.9), "test_loss": np.float32(0.3)}
    for size in CELLS_PER_CALL:
        grid = make_grid(np.arange(1.0, size + 1), options.records)
        with tempfile.TemporaryDirectory(dir=options.out) as folder:
            written = Journal(Path(folder, "j.jsonl"), grid, None)
            seconds = []
            for seed in range(options.records):
                start = time.perf_counter()
                written.record({(point, seed): (metrics, None) for point in range(size)})
                seconds.append(time.perf_counter() - start)
            found[size] = round(float(np.median(seconds)), 6)
    return found


def simulated(options, result):
    """The study, with what has been measured."""
    dask, compiling = result["calls"]["Dask"], result["speed_up"]["compile_seconds"]
    replies = dask["client"] - dask["submit"]
    costs = {
        size: Costs(
            dask["submit"], replies + result["journal"][str(size)], dask["scheduler"], compiling
        )
        for size in CELLS_PER_CALL
    }
    rows = study(result["cell_times"], costs, options.cells)
    return {"cells": options.cells, "costs": {k: asdict(v) for k, v in costs.items()}, "rows": rows}


PARTS = {"cell_times": cell_times, "calls": calls, "journal": journal, "speed_up": speed_up}


def main():
    """Measures, simulates and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=(*PARTS, "study"), nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=600, help="of a cell, logistic regression")
    parser.add_argument("--calls", type=int, default=2_000, help="that compute nothing")
    parser.add_argument("--records", type=int, default=200, help="of the journal")
    parser.add_argument("--cells", type=int, default=CELLS, help="that are simulated")
    parser.add_argument("--out", type=Path, required=True, help="folder of result.json")
    options = parser.parse_args()
    os.environ["XLA_FLAGS"] = ONE_CORE  # each process computes on one core
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "result.json"
    result = json.loads(file.read_text()) if file.exists() else {}
    chosen = options.only or (*PARTS, "study")
    for part, measure in PARTS.items():
        if part in chosen:
            result[part] = json.loads(json.dumps(measure(options)))
    if "study" in chosen:
        result["study"] = simulated(options, result)
    result["machine"] = machine()
    file.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "study"}, indent=1))
    for row in result.get("study", {}).get("rows", ()):
        print(row)


if __name__ == "__main__":
    main()
