r"""The paper's CIFAR-10 experiment: a ResNet, momenta fixed at γ = 0.1 and β = 0.9.

The paper's setting, for an accelerator, and a small one, less than an hour on two cores:

    python -m benchmarks.cifar10 --out cifar10_full
    python -m benchmarks.cifar10 --width 8 --steps 600 --seeds 1 \
        --optimizers mu2_sgd storm sgd momentum adam schedule_free_sgd

Random crop with padding 2 and random flip, learning rates from 1e-4 to 10. It writes
``results.csv`` (a row per run), ``meta.json`` and ``figure.png`` into
``benchmarks/results/cifar10`` (another folder with ``--out``). Each finished run is kept in
``journal/`` there; a command that was stopped goes on from it, and with ``--minutes`` it stops by
itself in time.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

import mu2_optax.linen
from benchmarks import experiment, files, network_task
from benchmarks.nonconvex import COMPARED, RATES
from examples import cifar10_resnet as example
from examples import data as datasets
from examples.option_types import positive_int
from mu2_optax.sweep import Data


def make_network(data: Data, *, depth: int, width: int, batch: int) -> network_task.Network:
    """The network of ``examples/cifar10_resnet.py``, with its augmentation."""
    train_x, train_y = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    model = example.ResNet(depth, width)
    first = jax.jit(partial(model.init, train=True))

    def init(key: jax.Array) -> Any:
        variables = first(key, train_x[:1])
        return variables["params"], variables["batch_stats"]

    def loss(params: Any, statistics: Any, drawn: Any) -> Any:
        key, rows = drawn
        images = example.augment(key, train_x[rows])
        return example.make_loss(model.apply, statistics, images, train_y[rows])(params)

    def measure(params: Any, statistics: Any) -> tuple[float, float]:
        variables = {"params": params, "batch_stats": statistics}
        return example.evaluate(model.apply, variables, data.test_x, data.test_y)

    def recalibrated(params: Any, statistics: Any, key: jax.Array) -> Any:
        def forward(variables: Any, rows: Any) -> Any:
            return model.apply(variables, train_x[rows], train=True, mutable=["batch_stats"])

        variables = {"params": params, "batch_stats": statistics}
        some = (rows for _, rows in batches(key, 20))
        return mu2_optax.linen.recalibrate(forward, variables, some)

    def batches(key: jax.Array, count: int) -> Any:
        rows = network_task.shuffled(len(train_y), batch, experiment.seed_of(key), count)
        return ((jax.random.fold_in(key, i), jnp.asarray(own)) for i, own in enumerate(rows))

    return network_task.Network(init, loss, measure, recalibrated, batches)


def main() -> None:
    """Runs the experiment."""
    parser = experiment.make_parser(__doc__, data="cifar10", rates=RATES, optimizers=COMPARED)
    shown = {"metavar": "N", "help": "default: %(default)s"}
    parser.add_argument("--depth", type=int, choices=example.STAGES, default=18)
    parser.add_argument("--width", type=positive_int, default=64, **shown)
    parser.add_argument("--epochs", type=positive_int, default=25, **shown)
    parser.add_argument("--batch", type=positive_int, default=32, **shown)
    args = parser.parse_args()
    if args.data != "cifar10":
        parser.error(f"the network takes colour images: --data must be cifar10, got {args.data}")
    args.out = args.out or files.RESULTS / "cifar10"
    data = datasets.load_or_exit(parser, args)
    steps = args.steps or args.epochs * (len(data.train_y) // args.batch)
    size = {"depth": args.depth, "width": args.width, "batch": args.batch}
    results = experiment.run(
        [experiment.Case(name, steps) for name in args.optimizers],
        network_task.make_train(make_network(data, **size)),
        args,
        setting={
            "model": "ResNet",
            "data": args.data,
            "images": [len(data.train_y), len(data.test_y)],
            **size,
        },
        strategy="python",
    )
    experiment.save(results.values(), args.out, "benchmarks.cifar10")
    title = f"CIFAR-10: ResNet-{args.depth}, width {args.width}, {steps} steps of {args.batch}"
    experiment.draw_sweep(experiment.select(results), title, args.out / "figure.png")


if __name__ == "__main__":
    main()
