"""What a step of each optimizer costs: time, state, memory and compilation, beside a step of SGD.

    taskset -c 0 python -m benchmarks.step_cost      # float32, and bfloat16 where it says something
    python -m benchmarks.step_cost --models "the paper's CNN" --dtypes float32

Jitted steps with donated params and state, batch 64 (32 for the ResNet) of made-up numbers. Each
optimizer takes turns with SGD; the columns are:

- ``time`` of a step, divided by that of SGD's step in the same round, the median over the rounds;
- ``gradients`` of a step;
- ``state``: bytes of the state, divided by those of the params;
- ``peak``: XLA's peak bytes of the step, divided by the bytes of the params;
- ``compile``: the time to trace and compile the step, divided by SGD's.

It writes ``benchmarks/results/step_cost/results.csv``; what is not run again keeps its row.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.files import RESULTS, with_kept, write_rows
from benchmarks.image_tasks import cnn_task, dense_task, made_up
from benchmarks.timing import in_turn, spread
from benchmarks.training import Functions, cross_entropy
from examples.cifar10_resnet import ResNet
from examples.cpu_layers import keep_freed_memory
from mu2_optax.sweep import Data

BATCH = 64
SHARE = 1 / 8
MEASURED = mu2_optax.fixed_momentum(beta=mu2_optax.measured_beta())
SGD = "SGD"


class Optimizer(NamedTuple):
    """An optimizer, its gradients a step, and whether its correction is on a part of the batch."""

    tx: Any
    gradients: float
    in_part: bool = False


OPTIMIZERS = {
    SGD: Optimizer(optax.sgd(0.1), 1),
    "SGD with momentum": Optimizer(optax.sgd(0.1, momentum=0.9), 1),
    "Adam": Optimizer(optax.adam(1e-3), 1),
    "schedule-free SGD": Optimizer(optax.contrib.schedule_free_sgd(0.1), 1),
    "anytime_sgd": Optimizer(mu2_optax.anytime_sgd(0.1, mu2_optax.fixed_momentum()), 1),
    "storm": Optimizer(mu2_optax.storm(0.1, 0.9), 2),
    "mu2_sgd": Optimizer(mu2_optax.mu2_sgd(0.1), 2),
    "mu2_sgd, part 1/8": Optimizer(mu2_optax.mu2_sgd(0.1), 1 + SHARE, in_part=True),
    "mu2_sgd, lean": Optimizer(mu2_optax.mu2_sgd(0.1, lean=True), 2),
    "mu2_sgd, β measured": Optimizer(mu2_optax.mu2_sgd(0.1, MEASURED), 2),
    "mu2_extra_sgd": Optimizer(mu2_optax.mu2_extra_sgd(0.1), 3),
    "mu2_adam": Optimizer(mu2_optax.mu2_adam(1e-3), 2),
    "mu2_auto": Optimizer(mu2_optax.mu2_auto(), 1),
}


Problem = tuple[Any, Any, Any]  # a loss, its first params and a batch


class Model(NamedTuple):
    """A model to measure.

    Attributes:
      make: Makes a loss, its first params and a batch.
      steps: Steps of a round.
      dtypes: Of the params and the batch. On a CPU, bfloat16 says nothing about convolutions.
    """

    make: Callable[[], Problem]
    steps: int
    dtypes: tuple[str, ...] = ("float32", "bfloat16")


def of_task(make: Callable[[Data], Functions]) -> Callable[[], Problem]:
    """A task on images."""

    def made() -> Problem:
        task = make(made_up(BATCH))
        return task.loss, task.init(jax.random.key(0)), task.batch(jnp.arange(BATCH))

    return made


def resnet(depth: int = 18, width: int = 4, batch: int = 32) -> Problem:
    """The ResNet of `examples.cifar10_resnet` with few channels."""
    model = ResNet(depth, width)
    images = jax.random.normal(jax.random.key(1), (batch, 32, 32, 3))
    variables = jax.jit(lambda key: model.init(key, images, train=True))(jax.random.key(0))
    statistics = variables["batch_stats"]

    def loss(params: Any, batch: Any) -> Any:
        of_both = {"params": params, "batch_stats": statistics}
        logits, _ = model.apply(of_both, batch[0], train=True, mutable=["batch_stats"])
        return cross_entropy(logits, batch[1])

    return loss, variables["params"], (images, _labels(batch))


def tree(count: int = 100_000_000, leaves: int = 200) -> Problem:
    """Many numbers with a loss of which the gradient is the numbers times a mean."""
    params = [jnp.full(count // leaves, 1.0 + i) for i in range(leaves)]
    loss = lambda params, batch: batch.mean() * sum(jnp.sum(p * p) for p in params) / 2
    return loss, params, jnp.full(8, 1e-3)


def _labels(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32) % 10


MODELS = {
    "logistic regression": Model(of_task(lambda data: dense_task(data, (), BATCH)), 100),
    "MLP 784-512-512-10": Model(of_task(lambda data: dense_task(data, (512, 512), BATCH)), 8),
    "the paper's CNN": Model(of_task(lambda data: cnn_task(data, BATCH)), 3, dtypes=("float32",)),
    "ResNet-18, width 4": Model(resnet, 2, dtypes=("float32",)),
    "10⁸ params in 200 leaves": Model(tree, 1),
}
DTYPES = ("float32", "bfloat16")


def make_step(loss: Any, optimizer: Optimizer) -> Callable[..., Any]:
    """The step of a user: one gradient, the update, the new params."""
    tx = optax.with_extra_args_support(optimizer.tx)
    evaluate = mu2_optax.value_and_grad(loss, part=SHARE if optimizer.in_part else None)

    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any]:
        _, grads, again = evaluate(params, batch)
        updates, state = tx.update(grads, state, params, **again)
        return optax.apply_updates(params, updates), state

    return step


class Measured(NamedTuple):
    """A compiled step: a function that times some of them, and what it took to get there."""

    seconds: Callable[[], float]
    compile_seconds: float
    state: int
    peak: int


def compiled(loss: Any, optimizer: Optimizer, params: Any, batch: Any, steps: int) -> Measured:
    """Compiles the step of an optimizer."""
    params = jax.tree.map(jnp.copy, params)
    held = [(params, optimizer.tx.init(params))]
    start = time.perf_counter()
    jitted = jax.jit(make_step(loss, optimizer), donate_argnums=(0, 1))
    step = jitted.lower(*held[0], batch).compile()
    compile_seconds = time.perf_counter() - start
    memory = step.memory_analysis()
    peak = memory.temp_size_in_bytes + memory.argument_size_in_bytes
    peak += memory.output_size_in_bytes - memory.alias_size_in_bytes

    def call() -> Any:
        held[0] = step(*held[0], batch)
        return held[0]

    def seconds() -> float:
        start = time.perf_counter()
        for _ in range(steps):
            out = call()
        jax.block_until_ready(out)
        return time.perf_counter() - start

    return Measured(seconds, compile_seconds, size(held[0][1]), peak)


def size(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def measure(model: Model, dtype: str, names: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each optimizer."""
    loss, params, batch = model.make()
    narrow = lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a
    params, batch = jax.tree.map(narrow, (params, batch))
    sgd = compiled(loss, OPTIMIZERS[SGD], params, batch, model.steps)
    for name in names:
        optimizer = OPTIMIZERS[name]
        own = sgd if name == SGD else compiled(loss, optimizer, params, batch, model.steps)
        seconds = in_turn({SGD: sgd.seconds, name: own.seconds}, rounds)
        time_ratio = spread(seconds[name] / seconds[SGD])
        yield {
            "optimizer": name,
            "time": f"{time_ratio.median:.2f}",
            "time_low": f"{time_ratio.low:.2f}",
            "time_high": f"{time_ratio.high:.2f}",
            "gradients": f"{optimizer.gradients:g}",
            "state": f"{own.state / size(params):.2f}",
            "peak": f"{own.peak / size(params):.2f}",
            "compile": f"{own.compile_seconds / sgd.compile_seconds:.2f}",
            "milliseconds": f"{1e3 * np.median(seconds[name]) / model.steps:.3g}",
        }


def write(rows: list[dict[str, Any]], file: Path) -> None:
    """Writes rows, beside those of other models, dtypes and optimizers that are in the file."""
    order = list(itertools.product(MODELS, DTYPES, OPTIMIZERS))
    names = ("model", "dtype", "optimizer")
    place = lambda row: order.index(tuple(row[name] for name in names))
    write_rows(file, sorted(with_kept(file, rows, names), key=place))


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds to take the median of")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS), metavar="NAME"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "step_cost", help="folder")
    args = parser.parse_args()
    keep_freed_memory()
    for dtype, model in itertools.product(args.dtypes, args.models):
        if dtype not in MODELS[model].dtypes:
            continue
        rows = []
        for row in measure(MODELS[model], dtype, args.optimizers, args.rounds):
            rows.append({"model": model, "dtype": dtype, **row})
            print(*(f"{name} {value}" for name, value in rows[-1].items()), sep=", ", flush=True)
        write(rows, args.out / "results.csv")


if __name__ == "__main__":
    main()
