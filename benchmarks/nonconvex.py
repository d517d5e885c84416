"""The paper's non-convex MNIST experiment: its two-layer CNN, momenta fixed at γ = 0.1, β = 0.9.

Batch 64, one epoch, learning rates from 1e-4 to 10, 3 seeds; the optimizers of the paper, and
μ²-ExtraSGD, schedule-free SGD and Adam beside them:

    python -m benchmarks.nonconvex

It writes ``results.csv`` (a row per run), ``meta.json`` and ``figure.png`` into
``benchmarks/results/nonconvex_mnist``. Each finished run is kept in ``journal/`` there; a command
that was stopped goes on from it, and with ``--minutes`` it stops by itself in time.
"""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import jax

from benchmarks import experiment, image_tasks, scanned_task
from benchmarks.experiment import Case
from benchmarks.optimizers import PAPER
from examples import data as datasets
from mu2_optax.sweep import Data

BATCH = 64
RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
COMPARED = (*PAPER, "schedule_free_sgd")


def steps_per_epoch(data: Data) -> int:
    """Steps of one epoch; the last batch is filled up from the next order of the images."""
    return -(-len(data.train_y) // BATCH)


def setting(args: argparse.Namespace, data: Data) -> dict[str, Any]:
    """What the numbers depend on, besides optimizer, steps, rate and seed."""
    return {
        "model": "the paper's CNN, with ReLUs",
        "data": args.data,
        "images": [len(data.train_y), len(data.test_y)],
        "batch": BATCH,
    }


def make_train(data: Data) -> Callable[[Case], Callable[..., Mapping[str, Any]]]:
    """From a case to its training, compiled once for all rates and seeds."""
    task = image_tasks.cnn_task(data, BATCH)
    return lambda case: jax.jit(scanned_task.make_train(task, case))


def main() -> None:
    """Runs the experiment."""
    parser = experiment.make_parser(__doc__, data="mnist", rates=RATES, optimizers=COMPARED)
    args = parser.parse_args()
    if args.data == "cifar10":
        parser.error("the network takes grey images: use benchmarks.cifar10 for cifar10")
    args.out = args.out or experiment.folder("nonconvex", args.data)
    data = datasets.load_or_exit(parser, args)
    steps = args.steps or steps_per_epoch(data)
    results = experiment.run(
        [Case(name, steps) for name in args.optimizers],
        make_train(data),
        args,
        setting=setting(args, data),
        strategy="python",
    )
    experiment.save(results.values(), args.out, "benchmarks.nonconvex")
    title = f"{datasets.TITLES[args.data]}: the paper's CNN, γ = 0.1, β = 0.9"
    experiment.draw_sweep(experiment.select(results), title, args.out / "figure.png")


if __name__ == "__main__":
    main()
