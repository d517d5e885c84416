r"""The paper's CIFAR-10 experiment: a ResNet, momenta fixed at γ = 0.1 and β = 0.9.

The paper's setting, for an accelerator, and a small one, less than an hour on two cores:

    python benchmarks/paper/cifar10.py --out cifar10_full
    python benchmarks/paper/cifar10.py --width 8 --steps 600 --seeds 1 \
        --optimizers mu2_sgd,storm,sgd,momentum,adam,schedule_free_sgd

Random crop with padding 2 and random flip, learning rates from 1e-4 to 10. It writes
``results.csv`` (a row per run), ``results.json``, ``figure.png`` and ``run.json`` into
``benchmarks/results/cifar10`` (another folder with ``--out``). Each finished run is kept in
``journal.jsonl`` there; a command that was stopped goes on from it, and with ``--minutes`` it stops
by itself in time.
"""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import cifar10_resnet as example
import data as datasets
import network
import records
from flags import positive_int
from nonconvex import OPTIMIZERS, RATES

import mu2_optax.linen
from mu2_optax.sweep.data import Data


def make_task(data: Data, *, depth: int, width: int, batch: int) -> network.Task:
    """The network of ``examples/cifar10_resnet.py``, with its augmentation."""
    train_x, train_y = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    model = example.ResNet(depth, width)
    first = jax.jit(partial(model.init, train=True))

    def init(seed: int) -> Any:
        variables = first(jax.random.key(seed), train_x[:1])
        return variables["params"], variables["batch_stats"]

    def loss(params: Any, statistics: Any, drawn: Any) -> Any:
        key, rows = drawn
        images = example.augment(key, train_x[rows])
        return example.make_loss(model.apply, statistics, images, train_y[rows])(params)

    def measure(params: Any, statistics: Any) -> tuple[float, float]:
        variables = {"params": params, "batch_stats": statistics}
        accuracy, loss = example.evaluate(model.apply, variables, data.test_x, data.test_y)
        return (accuracy if np.isfinite(loss) else float("nan")), loss

    def recalibrated(params: Any, statistics: Any, seed: int) -> Any:
        def forward(variables: Any, rows: Any) -> Any:
            return model.apply(variables, train_x[rows], train=True, mutable=["batch_stats"])

        variables = {"params": params, "batch_stats": statistics}
        some = (rows for _, rows in batches(seed, 20))
        return mu2_optax.linen.recalibrate(forward, variables, some)

    def batches(seed: int, count: int) -> Any:
        key = jax.random.key(seed)
        for index, rows in enumerate(network.shuffled(len(data.train_y), batch, seed, count)):
            yield jax.random.fold_in(key, index), jnp.asarray(rows)

    return network.Task(init, loss, measure, recalibrated, batches)


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser, default="cifar10")
    network.add_arguments(parser, RATES, OPTIMIZERS)
    shown = {"metavar": "N", "help": "default: %(default)s"}
    parser.add_argument("--depth", type=int, choices=example.STAGES, default=18)
    parser.add_argument("--width", type=positive_int, default=64, **shown)
    parser.add_argument("--epochs", type=positive_int, default=25, **shown)
    parser.add_argument("--batch", type=positive_int, default=32, **shown)
    parser.add_argument("--out", type=Path, default=records.RESULTS / "cifar10")
    args = parser.parse_args()
    if args.data != "cifar10":
        parser.error(f"the network takes colour images: --data must be cifar10, got {args.data}")
    try:
        data = datasets.load(args.data, args.data_dir)
    except datasets.DataError as error:
        parser.exit(1, f"{error}\n")
    steps = args.steps or args.epochs * (len(data.train_y) // args.batch)
    network.run_experiment(
        make_task(data, depth=args.depth, width=args.width, batch=args.batch),
        [(name, steps) for name in args.optimizers],
        args,
        out=args.out,
        title=f"CIFAR-10: ResNet-{args.depth}, width {args.width}, {steps} steps of {args.batch}",
        facts={
            "data": args.data,
            "images": [len(data.train_y), len(data.test_y)],
            "batch": args.batch,
            "depth": args.depth,
            "width": args.width,
        },
    )


if __name__ == "__main__":
    main()
