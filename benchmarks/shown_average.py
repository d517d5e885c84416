"""``mu2_auto`` in loops that keep params alone: what each way to get along costs.

    python -m benchmarks.shown_average --data-dir DATA

Development tasks of ``benchmarks.self_tuning``, three seeds, validation metric at the end: at the
average, as in a loop of one's own; with ``show_average`` after each 20th of the run, which ends at
the average too; at the params of a run that knows its length, ``steps=T``; at the params, y; and at
the params of a run that takes its gradients at the average itself (λ = 0). It takes five minutes on
one core of an x86-64 CPU and writes ``benchmarks/results/shown_average/results.csv``. Expected: the
first three are alike, the others are worse, by little or by several times.
"""

import argparse
from typing import Any

import numpy as np

import mu2_optax
from benchmarks.files import RESULTS, write_rows
from benchmarks.optimizers import Optimizer
from benchmarks.self_tuning import runner
from benchmarks.self_tuning.task import VALIDATION
from benchmarks.self_tuning.tasks import TASKS
from examples.option_types import positive_int

NAMES = (
    "softmax_mnist",
    "lora_mnist",
    "vae_mnist",
    "table_heavy",
    "factorization",
    "pinn_poisson",
)


def without_a_step_ahead() -> Any:
    """``mu2_auto`` whose params are the average, so that gradients are taken there."""
    rate = mu2_optax.distance_rate(mu2_optax.unit_directions())
    return mu2_optax.anytime(rate, mu2_optax.polynomial_momentum(2).gamma)


def shown(_: Any, setting: Any) -> Any:
    """``mu2_auto`` whose params are the average at each point where a run is measured."""
    return mu2_optax.show_average(mu2_optax.mu2_auto(), setting.steps // runner.POINTS)


def at_its_end(_: Any, setting: Any) -> Any:
    """``mu2_auto`` whose params are the average when the run ends."""
    return mu2_optax.mu2_auto(steps=setting.steps)


WAYS = {
    "average": Optimizer(
        "at the average", lambda rate, setting: mu2_optax.mu2_auto(), mu2_optax.eval_params
    ),
    "show_average": Optimizer("shown", shown),
    "steps=T": Optimizer(
        "at its end", lambda rate, setting: mu2_optax.mu2_auto(steps=setting.steps)
    ),
    "params": Optimizer("at the params", lambda rate, setting: mu2_optax.mu2_auto()),
    "λ = 0": Optimizer("not ahead", lambda rate, setting: without_a_step_ahead()),
}


def main() -> None:
    """Trains, prints and writes the means over seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", metavar="DIR", help="folder with MNIST's canonical files")
    parser.add_argument("--seeds", type=positive_int, default=3, metavar="N")
    parser.add_argument("--steps", type=positive_int, metavar="N", help="default: the task's own")
    parser.add_argument("--tasks", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    args = parser.parse_args()
    rows = []
    for name in args.tasks:
        task = TASKS[name]
        data = runner.load(task, args.data_dir)
        row: dict[str, Any] = {"task": name, "metric": task.metric}
        for way, optimizer in WAYS.items():
            train = runner.make_train(task, optimizer, args.steps)
            found = [float(train(data, 1.0, seed)[VALIDATION]) for seed in range(args.seeds)]
            row[way] = float(np.mean(found))
        rows.append(row)
        print(*row.values(), flush=True)
    write_rows(RESULTS / "shown_average" / "results.csv", rows, digits=4)


if __name__ == "__main__":
    main()
