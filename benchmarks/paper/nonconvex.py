"""The paper's non-convex MNIST experiment: its two-layer CNN, momenta fixed at γ = 0.1, β = 0.9.

Batch 64, one epoch, learning rates from 1e-4 to 10, 3 seeds; the optimizers of the paper, and
μ²-ExtraSGD, schedule-free SGD and Adam beside them:

    python benchmarks/paper/nonconvex.py

It writes ``results.csv`` (a row per run), ``results.json``, ``figure.png`` and ``run.json`` into
``benchmarks/results/nonconvex_mnist``. Each finished run is kept in ``journal.jsonl`` there; a
command that was stopped goes on from it, and with ``--minutes`` it stops by itself in time.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import data as datasets
import mnist_cnn
import network
import records
from optimizers import PAPER

import mu2_optax.nnx
from mu2_optax.sweep.data import Data

BATCH = 64
RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
OPTIMIZERS = (*PAPER, "schedule_free_sgd")


def steps_per_epoch(data: Data) -> int:
    """Steps of one epoch; the last batch is filled up from the next order of the images."""
    return -(-len(data.train_y) // BATCH)


def make_task(data: Data) -> network.Task:
    """The network of ``examples/mnist_cnn.py`` on grey images."""
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    new = lambda seed: mnist_cnn.CNN(*train_x.shape[1:], rngs=nnx.Rngs(seed))
    graph, _, _ = nnx.split(new(0), nnx.Param, ...)

    def init(seed: int) -> Any:
        _, params, statistics = nnx.split(new(seed), nnx.Param, ...)
        return nnx.as_pure(params), nnx.as_pure(statistics)

    def loss(params: Any, statistics: Any, rows: Any) -> Any:
        model = nnx.merge(graph, params, statistics)
        value = mnist_cnn.loss_fn(model, (train_x[rows], train_y[rows]))
        return value, nnx.as_pure(nnx.split(model, nnx.Param, ...)[2])

    def measure(params: Any, statistics: Any) -> tuple[float, float]:
        accuracy, loss = mnist_cnn.evaluate(nnx.merge(graph, params, statistics), test_x, test_y)
        return (accuracy if np.isfinite(loss) else float("nan")), loss

    def recalibrated(params: Any, statistics: Any, seed: int) -> Any:
        model = nnx.merge(graph, params, statistics)
        some = (train_x[rows] for rows in batches(seed, 20))
        mu2_optax.nnx.recalibrate(lambda model, images: model(images), model, some)
        return nnx.as_pure(nnx.split(model, nnx.Param, ...)[2])

    def batches(seed: int, count: int) -> Any:
        return map(jnp.asarray, network.shuffled(len(data.train_y), BATCH, seed, count))

    return network.Task(init, loss, measure, recalibrated, batches)


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    datasets.add_arguments(parser, default="mnist")
    network.add_arguments(parser, RATES, OPTIMIZERS)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/nonconvex_<data>")
    args = parser.parse_args()
    if args.data == "cifar10":
        parser.error("the network takes grey images: use benchmarks/paper/cifar10.py for cifar10")
    try:
        data = datasets.load(args.data, args.data_dir)
    except datasets.DataError as error:
        parser.exit(1, f"{error}\n")
    steps = args.steps or steps_per_epoch(data)
    network.run_experiment(
        make_task(data),
        [(name, steps) for name in args.optimizers],
        args,
        out=args.out or records.RESULTS / f"nonconvex_{args.data.replace('-', '_')}",
        title=f"{datasets.TITLES[args.data]}: the paper's CNN, γ = 0.1, β = 0.9",
        facts={
            "data": args.data,
            "images": [len(data.train_y), len(data.test_y)],
            "batch": BATCH,
        },
    )


if __name__ == "__main__":
    main()
