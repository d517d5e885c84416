"""The paper's non-convex MNIST experiment: its two-layer CNN, momenta fixed at γ = 0.1, β = 0.9.

Batch 64, one epoch, learning rates from 1e-4 to 10, 3 seeds; the optimizers of the paper, and
μ²-ExtraSGD, schedule-free SGD and Adam beside them:

    python -m benchmarks.nonconvex

It writes ``results.json``, ``results.csv`` (a row per run) and ``figure.png`` into
``benchmarks/results/nonconvex_mnist``. Each finished run is kept in ``journal/`` there; a command
that was stopped goes on from it, and with ``--minutes`` it stops by itself in time.
"""

import argparse
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

import mu2_optax.nnx
from benchmarks import experiment, network_task
from benchmarks.contenders import PAPER
from examples import data as datasets
from examples import mnist_cnn
from mu2_optax.sweep import Data, plot_sweep

BATCH = 64
RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
OPTIMIZERS = (*PAPER, "schedule_free_sgd")


def steps_per_epoch(data: Data) -> int:
    """Steps of one epoch; the last batch is filled up from the next order of the images."""
    return -(-len(data.train_y) // BATCH)


def setting(args: argparse.Namespace, data: Data) -> dict[str, Any]:
    """What the numbers depend on, besides optimizer, steps, rate and seed."""
    return {
        "model": "the paper's CNN",
        "data": args.data,
        "images": [len(data.train_y), len(data.test_y)],
        "batch": BATCH,
    }


def make_network(data: Data) -> network_task.Network:
    """The network of ``examples/mnist_cnn.py`` on grey images."""
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    new = lambda key: mnist_cnn.CNN(*train_x.shape[1:], rngs=nnx.Rngs(key))
    graph, _, _ = nnx.split(new(0), nnx.Param, ...)

    def init(key: jax.Array) -> Any:
        _, params, statistics = nnx.split(new(key), nnx.Param, ...)
        return nnx.as_pure(params), nnx.as_pure(statistics)

    def loss(params: Any, statistics: Any, rows: Any) -> Any:
        model = nnx.merge(graph, params, statistics)
        value = mnist_cnn.loss_fn(model, (train_x[rows], train_y[rows]))
        return value, nnx.as_pure(nnx.split(model, nnx.Param, ...)[2])

    def measure(params: Any, statistics: Any) -> tuple[float, float]:
        return mnist_cnn.evaluate(nnx.merge(graph, params, statistics), test_x, test_y)

    def recalibrated(params: Any, statistics: Any, key: jax.Array) -> Any:
        model = nnx.merge(graph, params, statistics)
        some = (train_x[rows] for rows in batches(key, 20))
        mu2_optax.nnx.recalibrate(lambda model, images: model(images), model, some)
        return nnx.as_pure(nnx.split(model, nnx.Param, ...)[2])

    def batches(key: jax.Array, count: int) -> Any:
        seed = experiment.seed_of(key)
        return map(jnp.asarray, network_task.shuffled(len(train_y), BATCH, seed, count))

    return network_task.Network(init, loss, measure, recalibrated, batches)


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    experiment.add_arguments(parser, data="mnist", rates=RATES, optimizers=OPTIMIZERS)
    args = parser.parse_args()
    if args.data == "cifar10":
        parser.error("the network takes grey images: use benchmarks.cifar10 for cifar10")
    args.out = args.out or experiment.RESULTS / f"nonconvex_{args.data.replace('-', '_')}"
    data = datasets.load_or_exit(parser, args)
    steps = args.steps or steps_per_epoch(data)
    results = experiment.run(
        [experiment.Case(name, steps) for name in args.optimizers],
        network_task.make_train(make_network(data)),
        args,
        setting=setting(args, data),
        strategy="python",
    )
    experiment.save(results.values(), args.out, "benchmarks.nonconvex")
    plot_sweep(
        experiment.select(results),
        "test_accuracy",
        args.out / "figure.png",
        title=f"{datasets.TITLES[args.data]}: the paper's CNN, γ = 0.1, β = 0.9",
        ylim=(0.0, 1.0),
    )


if __name__ == "__main__":
    main()
