"""How cost grows: a step with params and with t, compilation with leaves, a sweep with lanes.

    python -m benchmarks.scaling

- ``params``: milliseconds of a step of the tree of ``benchmarks.step_cost`` in 20 leaves;
- ``t``: microseconds of a step of logistic regression after so many steps (the counts of the state
  are set);
- ``leaves``: seconds of processor time to trace and compile a step of a tree in so many leaves;
- ``lanes``: milliseconds for a lane of 100 steps of logistic regression (784 × 10, batch 64), with
  so many rates side by side in one call on one core.

It writes ``benchmarks/results/scaling/results.csv``; studies that are not run keep their rows.
``python -m benchmarks.costs`` draws the picture. Takes about four minutes on one core.
"""

import argparse
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.files import RESULTS, with_kept, write_rows
from benchmarks.image_tasks import dense_task, made_up
from benchmarks.optimizers import OPTIMIZERS as REGISTRY
from benchmarks.optimizers import Setting
from benchmarks.step_cost import BATCH, MODELS, OPTIMIZERS, SGD, compiled, make_step, tree
from benchmarks.timing import in_turn
from benchmarks.training import make_train
from examples.cpu_layers import keep_freed_memory
from mu2_optax.sweep import sweep

NAMES = (SGD, "Adam", "mu2_sgd", "mu2_auto", "mu2_sgd, lean", "mu2_sgd, β measured")
PARAMS = (10**4, 10**5, 10**6, 10**7, 10**8)
TIMES = (1, 10**3, 10**6, 10**9)
LEAVES = (20, 200, 2000)
LANES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
Rows = Iterator[tuple[str, int, float]]


def over_params(rounds: int) -> Rows:
    """Milliseconds of a step."""
    for count in PARAMS:
        loss, params, batch = tree(count, leaves=20)
        steps = max(1, 10**6 // count)
        for name in NAMES:
            seconds = compiled(loss, OPTIMIZERS[name], params, batch, steps).seconds
            yield (
                name,
                count,
                1e3 * float(np.median(in_turn({name: seconds}, rounds)[name])) / steps,
            )


def over_t(rounds: int) -> Rows:
    """Microseconds of a step; all times take turns."""
    loss, params, batch = MODELS["logistic regression"].make()
    for name in NAMES[1:]:
        step = jax.jit(make_step(loss, OPTIMIZERS[name]))
        state = OPTIMIZERS[name].tx.init(params)

        def seconds(t: int, state: Any = state, step: Any = step) -> float:
            is_count = lambda leaf: leaf.dtype == jnp.int32 and leaf.ndim == 0
            at = jax.tree.map(lambda a: jnp.full_like(a, t) if is_count(a) else a, state)
            now, start = params, time.perf_counter()
            for _ in range(100):
                now, at = step(now, at, batch)
            jax.block_until_ready(now)
            return (time.perf_counter() - start) / 100

        found = in_turn({str(t): partial(seconds, t) for t in TIMES}, rounds)
        for t in TIMES:
            yield name, t, 1e6 * float(np.median(found[str(t)]))


def over_leaves(rounds: int) -> Rows:
    """Seconds of processor time to compile, which is done once whatever the rounds are."""
    del rounds
    for count in LEAVES:
        loss, params, batch = tree(10 * count, leaves=count)
        for name in NAMES[: 4 if count == 2000 else None]:  # the others then take minutes
            state = OPTIMIZERS[name].tx.init(params)
            start = time.process_time()
            jax.jit(make_step(loss, OPTIMIZERS[name])).lower(params, state, batch).compile()
            yield name, count, time.process_time() - start


def over_lanes(rounds: int) -> Rows:
    """Milliseconds of a lane."""
    task = dense_task(made_up(10_000), (), BATCH)
    train = make_train(task, REGISTRY["sgd"], Setting(), steps=100)
    for lanes in LANES:
        run = partial(sweep, train, np.geomspace(1e-4, 10, lanes), 1, progress=False)
        runs = [run(strategy="vmap").info["run_seconds"] for _ in range(rounds)]
        yield SGD, lanes, 1e3 * float(np.median(runs)) / lanes


STUDIES = {"params": over_params, "t": over_t, "leaves": over_leaves, "lanes": over_lanes}


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--studies", nargs="+", choices=STUDIES, default=list(STUDIES))
    parser.add_argument("--out", type=Path, default=RESULTS / "scaling", help="folder")
    args = parser.parse_args()
    keep_freed_memory()
    file = args.out / "results.csv"
    rows: list[dict[str, Any]] = []
    for study in args.studies:
        for name, at, value in STUDIES[study](args.rounds):
            row = {"study": study, "optimizer": name, "at": at, "value": f"{value:.4g}"}
            rows.append(row)
            print(row, flush=True)
    rows = with_kept(file, rows, ("study",))
    rows.sort(key=lambda row: list(STUDIES).index(row["study"]))
    write_rows(file, rows)


if __name__ == "__main__":
    main()
