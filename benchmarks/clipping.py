"""What clipping the gradient does for ``mu2_auto`` where a loss can explode.

    python -m benchmarks.clipping

takes about two minutes of one core of an x86-64 CPU, no GPU, prints a line for each run and writes
``benchmarks/results/clipping/results.csv``. The tasks are two of ``benchmarks.self_tuning``:
Poisson regression on columns of very different sizes, and a normalizing flow. Both losses have an
exponential in them. Expected: without clipping, some seeds explode on the way; with it, at any
norm, none does.
"""

import argparse
import math

import optax

import mu2_optax
from benchmarks import files
from benchmarks.optimizers import Optimizer
from benchmarks.self_tuning.runner import as_numbers, load, make_train
from benchmarks.self_tuning.tasks import TASKS
from examples.option_types import positive_int

COMPARED = {"mu2_auto()": False, "mu2_auto(spectral=True)": True}
NORMS = (math.inf, 10.0, 1.0, 0.1)


def clipped(norm: float, spectral: bool) -> optax.GradientTransformation:
    """``mu2_auto`` on gradients of at most this norm."""
    return optax.chain(optax.clip_by_global_norm(norm), mu2_optax.mu2_auto(spectral=spectral))


def main() -> None:
    """Trains, prints and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=positive_int, default=3, metavar="N")
    parser.add_argument("--steps", type=positive_int, metavar="N", help="default: the task's own")
    args = parser.parse_args()
    rows = []
    for name in ("counts", "crescents"):
        task = TASKS[name]
        for title, spectral in COMPARED.items():
            make = lambda norm, setting, spectral=spectral: clipped(norm, spectral)
            optimizer = Optimizer(title, make, mu2_optax.eval_params)
            train = make_train(task, optimizer, args.steps)
            for norm in NORMS:
                for seed in range(args.seeds):
                    loss = as_numbers(train(load(task), norm, seed))["test"]
                    row = {"task": task.kind, "optimizer": title, "norm": norm, "seed": seed}
                    rows.append(row | {"test_loss": loss})
                    print(*rows[-1].values(), flush=True)
    files.write_rows(files.RESULTS / "clipping" / "results.csv", rows, digits=4)


if __name__ == "__main__":
    main()
