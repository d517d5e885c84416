r"""The paper's CIFAR-10 experiment: a ResNet, momenta fixed at γ = 0.1 and β = 0.9.

The paper's setting, for an accelerator, and a small one, less than an hour on two cores:

    python -m benchmarks.cifar10 --out cifar10_full
    python -m benchmarks.cifar10 --width 8 --steps 600 --seeds 1 \
        --optimizers mu2_sgd storm sgd momentum adam schedule_free_sgd

Random crop with padding 2 and random flip, learning rates from 1e-4 to 10. It writes ``runs.json``
(a line for each run) and ``figure.png`` into ``benchmarks/results/cifar10`` (another folder with
``--out``). A command that was stopped goes on from there. On a CPU, XLA runs convolutions inside
``lax.scan`` many times slower than outside, so the loop is Python's; the rate is an argument of the
compiled step.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax.linen
from benchmarks import experiment, files
from benchmarks.experiment import Case
from benchmarks.optimizers import OPTIMIZERS, Setting
from benchmarks.rate_pictures import draw_rates
from benchmarks.studies import NETWORK_RATES, STUDIES
from examples import cifar10_resnet as example
from examples import data as datasets
from examples.option_types import positive_int
from mu2_optax.sweep import Data

CALIBRATION = 20  # batches whose statistics BatchNorm is evaluated with, at an average


def make_trains(
    data: Data, depth: int, width: int, batch: int
) -> Callable[[Case], Callable[..., dict[str, float]]]:
    """From a case to its training; the network is that of ``examples/cifar10_resnet.py``."""
    train_x, train_y = jnp.asarray(data.train_x), jnp.asarray(data.train_y)
    model = example.ResNet(depth, width)
    first = jax.jit(functools.partial(model.init, train=True))

    def loss(params: Any, statistics: Any, drawn: Any) -> tuple[Any, Any]:
        key, rows = drawn
        images = example.augment(key, train_x[rows])
        return example.make_loss(model.apply, statistics, images, train_y[rows])(params)

    evaluate = mu2_optax.value_and_grad(loss, has_aux=True)

    @functools.cache
    def compiled(optimizer: str) -> tuple[Any, Any]:
        """The compiled first state and step; cases of one optimizer share them."""
        make = lambda rate: OPTIMIZERS[optimizer].make(rate, Setting())

        @jax.jit
        def step(rate: Any, params: Any, statistics: Any, state: Any, drawn: Any) -> Any:
            (_, statistics), grads, again = evaluate(params, statistics, drawn)
            tx = optax.with_extra_args_support(make(rate))
            updates, state = tx.update(grads, state, params, **again)
            return optax.apply_updates(params, updates), statistics, state

        return jax.jit(lambda rate, params: make(rate).init(params)), step

    def batches(key: jax.Array, count: int) -> Iterator[tuple[Any, Any]]:
        rows = shuffled(len(train_y), batch, experiment.seed_of(key), count)
        return ((jax.random.fold_in(key, i), jnp.asarray(own)) for i, own in enumerate(rows))

    def recalibrated(variables: Any, key: jax.Array) -> Any:
        def forward(variables: Any, rows: Any) -> Any:
            return model.apply(variables, train_x[rows], train=True, mutable=["batch_stats"])

        some = (rows for _, rows in batches(key, CALIBRATION))
        return mu2_optax.linen.recalibrate(forward, variables, some)

    def of_case(case: Case) -> Callable[..., dict[str, float]]:
        def train(learning_rate: float, key: jax.Array) -> dict[str, float]:
            init, step = compiled(case.optimizer)
            rate, variables = np.float32(learning_rate), first(key, train_x[:1])
            params, statistics = variables["params"], variables["batch_stats"]
            state = init(rate, params)
            for drawn in batches(key, case.steps):
                params, statistics, state = step(rate, params, statistics, state, drawn)
            final = OPTIMIZERS[case.optimizer].evaluate(state, params)
            variables = {"params": final, "batch_stats": statistics}
            if final is not params:  # the running statistics are not those of an average
                variables["batch_stats"] = recalibrated(variables, key)
            accuracy, loss = example.evaluate(model.apply, variables, data.test_x, data.test_y)
            accuracy = accuracy if np.isfinite(loss) else float("nan")
            return {"test_accuracy": accuracy, "test_loss": loss}

        return train

    return of_case


def shuffled(images: int, batch: int, seed: int, count: int) -> Iterator[Any]:
    """The rows of ``count`` batches: all images in a new order in each epoch, none left over."""
    rng = np.random.default_rng(seed)
    epochs = -(-count * batch // images)
    order = np.concatenate([rng.permutation(images) for _ in range(epochs)])
    return (order[start : start + batch] for start in range(0, count * batch, batch))


def main() -> None:
    """Runs the experiment."""
    compared = STUDIES["nonconvex"].optimizers
    parser = experiment.make_parser(
        __doc__, data="cifar10", rates=NETWORK_RATES, optimizers=compared
    )
    shown = {"metavar": "N", "help": "default: %(default)s"}
    parser.add_argument("--depth", type=int, choices=example.STAGES, default=18)
    parser.add_argument("--width", type=positive_int, default=64, **shown)
    parser.add_argument("--epochs", type=positive_int, default=25, **shown)
    parser.add_argument("--batch", type=positive_int, default=32, **shown)
    args = parser.parse_args()
    if args.data != "cifar10":
        parser.error(f"the network takes colour images: --data must be cifar10, got {args.data}")
    args.out, args.seeds = args.out or files.RESULTS / "cifar10", args.seeds or 3
    data = datasets.load_or_exit(parser, args)
    steps = args.steps or args.epochs * (len(data.train_y) // args.batch)
    size = {"depth": args.depth, "width": args.width, "batch": args.batch}
    experiment.run(
        [Case(name, steps) for name in args.optimizers],
        make_trains(data, **size),
        args,
        "benchmarks.cifar10",
        task=experiment.setting("ResNet", args, data, **size),
        strategy="python",
    )
    title = f"CIFAR-10: ResNet-{args.depth}, width {args.width}, {steps} steps of {args.batch}"
    draw_rates({"": experiment.select(experiment.load(args.out))}, title, args.out / "figure.png")


if __name__ == "__main__":
    main()
