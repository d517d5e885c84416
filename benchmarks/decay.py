"""What a decay of the weights does for ``mu2_auto``, which has none by default.

    python -m benchmarks.decay --data-dir DATA

Tasks of ``benchmarks.self_tuning`` that overfit, that have rare rows, or that have no noise: test
metric, means over three seeds, without a decay and with 0.1, the value that its docstring names.
Beside it is AdamW with cosine at the rate that was tuned on each task, with the decay of 10⁻⁴ that
it was tuned with, and with the best of five by the validation split and one seed. It takes about
15 minutes on one core of an x86-64 CPU and writes ``benchmarks/results/decay/results.csv``.
Expected: where a network sees its data often, the decay gains; elsewhere it costs little.
"""

import argparse
import functools
from typing import Any

import numpy as np
import optax

import mu2_optax
from benchmarks.files import RESULTS, write_rows
from benchmarks.optimizers import REFERENCE, Optimizer
from benchmarks.recipes import cosine
from benchmarks.self_tuning import runner
from benchmarks.self_tuning.analysis import Results
from benchmarks.self_tuning.roles import TUNED, best_value
from benchmarks.self_tuning.task import FOLDER, TEST, VALIDATION, Task
from benchmarks.self_tuning.tasks import TASKS
from examples.option_types import positive_int

NAMES = (
    "mlp_fashion",
    "gru_topics",
    "ranking",
    "table_heavy",
    "table_heavy_fourfold",
    "lora_mnist",
    "skip_gram",
    "factorization",
    "finetune_whole",
    "pinn_poisson",
    "sines",
)
OURS = 0.1
THEIRS = (1e-4, 1e-3, 1e-2, 0.1, 1.0)  # the first is Optax's default


def ours(**options: Any) -> Optimizer:
    """``mu2_auto``, at its average."""
    return Optimizer("", lambda *_: mu2_optax.mu2_auto(**options), mu2_optax.eval_params)


def adamw(decay: float) -> Optimizer:
    """AdamW with cosine."""
    make = lambda rate, s: optax.adamw(cosine(rate, s.steps), weight_decay=decay)
    return Optimizer("", make)


def mean(
    task: Task,
    data: Any,
    steps: int | None,
    optimizer: Optimizer,
    part: str,
    seeds: int,
    rate: float = 1.0,
) -> float:
    """The metric on a part of the data, over seeds."""
    train = runner.make_train(task, optimizer, steps)
    return float(np.mean([float(train(data, rate, seed)[part]) for seed in range(seeds)]))


def main() -> None:
    """Trains, prints and writes the means over seeds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", metavar="DIR", help="folder of the data")
    parser.add_argument("--seeds", type=positive_int, default=3, metavar="N")
    parser.add_argument("--steps", type=positive_int, metavar="N", help="default: the task's own")
    parser.add_argument("--tasks", nargs="+", choices=NAMES, default=NAMES, metavar="NAME")
    args = parser.parse_args()
    known, rows = Results(FOLDER), []
    for name in args.tasks:
        task = TASKS[name]
        run = functools.partial(mean, task, runner.load(task, args.data_dir), args.steps)
        rate = known.rates[TUNED, name, REFERENCE]
        validated = {decay: run(adamw(decay), VALIDATION, 1, rate) for decay in THEIRS}
        best = best_value(task, list(validated.values()))
        chosen = next(decay for decay, value in validated.items() if value == best)
        rows.append(
            {
                "task": name,
                "metric": task.metric,
                "mu2_auto()": run(ours(), TEST, args.seeds),
                "decay 0.1": run(ours(weight_decay=OURS), TEST, args.seeds),
                "spectral": run(ours(spectral=True), TEST, args.seeds),
                "spectral, decay 0.1": run(
                    ours(spectral=True, weight_decay=OURS), TEST, args.seeds
                ),
                "AdamW, tuned rate": run(adamw(THEIRS[0]), TEST, args.seeds, rate),
                "and tuned decay": run(adamw(chosen), TEST, args.seeds, rate),
                "its decay": chosen,
            }
        )
        print(*rows[-1].values(), flush=True)
    write_rows(RESULTS / "decay" / "results.csv", rows, digits=4)


if __name__ == "__main__":
    main()
