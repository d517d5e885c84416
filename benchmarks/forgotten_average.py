"""What it costs to evaluate ``mu2_auto`` at the params, and not at the average that it keeps.

    python -m benchmarks.forgotten_average --data-dir DATA

takes about a minute of one core of an x86-64 CPU, no GPU, prints a line for each measurement and
writes ``benchmarks/results/forgotten_average/results.csv``. The tasks are two of
``benchmarks.self_tuning``: dense layers on MNIST, and a transformer on characters.
"""

import argparse
import functools
from typing import Any

import jax

import mu2_optax
from benchmarks import files
from benchmarks.self_tuning.runner import load, make_beginning
from benchmarks.self_tuning.task import TEST
from benchmarks.self_tuning.tasks import TASKS
from benchmarks.training import run_measured

POINTS, MEASURED_AT = 10, (1, 3, 10)
SHOWN = ("mlp_mnist", "transformer_topics")
SEEDS = 3


def main() -> None:
    """Trains, prints and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", metavar="DIR", help="folder with MNIST's canonical files")
    parser.add_argument("--steps", type=int, metavar="N", help="default: the task's own")
    args = parser.parse_args()
    rows = []
    for name in SHOWN:
        task = TASKS[name]
        data, steps = load(task, args.data_dir), args.steps or task.steps
        functions = task.make(data)

        def measure(params: Any, state: Any, rows: Any, functions: Any = functions) -> Any:
            average = mu2_optax.eval_params(state, params)
            return [functions.measure(point, rows, TEST) for point in (params, average)]

        run = functools.partial(run_measured, functions, mu2_optax.mu2_auto())
        train = jax.jit(lambda first, run=run, measure=measure: run(first, measure, POINTS)[2])
        for seed in range(SEEDS):
            at_params, at_average = train(make_beginning(task.make, steps)(data, seed))
            for point in MEASURED_AT:
                row = {"task": f"{task.kind}, {task.metric}", "seed": seed}
                row |= {"steps": steps * point // POINTS, "at_params": float(at_params[point - 1])}
                rows.append(row | {"at_average": float(at_average[point - 1])})
                print(*rows[-1].values(), flush=True)
    files.write_rows(files.RESULTS / "forgotten_average" / "results.csv", rows, digits=5)


if __name__ == "__main__":
    main()
