"""Training with μ²-SGD here and in PyTorch on a CPU: steps a second, and an 18-run sweep.

    pip install -e '.[bench]'
    taskset -c 0 python -m benchmarks.vs_pytorch       # one core
    python -m benchmarks.vs_pytorch                    # all of them

Both sides run the same algorithm from the same params on the same batches of made-up images of
MNIST's shape; `tests/test_vs_pytorch.py` compares their params. PyTorch's side is an optimizer as
one writes it there, in place and with a closure, eager and with ``torch.compile``; this side is a
jitted step called from Python, and the same steps in one ``lax.scan``. The sweep is 6 rates × 3
seeds of an epoch of logistic regression: 18 runs one after another there, `mu2_optax.sweep.sweep`
here. Freed memory is kept (`examples.cpu_layers.keep_freed_memory`), which both sides gain from.
Compilation is left out of the steps, and shown apart for the sweep. All ways take turns, and
medians and quartiles over the rounds are written to
``benchmarks/results/vs_pytorch/cores_<number>.csv``. Takes about two minutes on one core.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

import mu2_optax
from benchmarks.files import RESULTS, write_rows
from benchmarks.image_tasks import cnn_task, dense_task, made_up
from benchmarks.timing import CORES, in_turn, spread
from benchmarks.training import Functions
from examples.cpu_layers import keep_freed_memory
from mu2_optax.sweep import Data, sweep

BATCH, RATE = 64, 0.1
RATES, SEEDS = np.logspace(-4, 1, 6), 3
EAGER = "PyTorch, eager"


class Mu2SGD(torch.optim.Optimizer):
    """μ²-SGD in PyTorch; ``gamma`` and ``beta`` are functions of t, ``radius`` that of a ball."""

    def __init__(self, params: Any, lr: float, gamma: Any, beta: Any, radius: float | None = None):
        super().__init__(params, {"lr": lr})
        self.gamma, self.beta, self.radius, self.t = gamma, beta, radius, 0

    def step(self, closure: Callable[[], Any]) -> Any:
        """One step; ``closure`` evaluates the loss and its gradients, twice on the same batch."""
        params = [p for group in self.param_groups for p in group["params"]]
        rate = self.param_groups[0]["lr"]
        loss = closure()
        grads = [p.grad for p in params]
        if self.t == 0:
            for p in params:
                self.state[p] = {"w": p.detach().clone(), "x": p.detach().clone(), "d": None}
            before = grads
        else:
            self._exchange(params)
            closure()
            before = [p.grad for p in params]
            self._exchange(params)
        self.t += 1
        with torch.no_grad():
            for p, grad, grad_before in zip(params, grads, before, strict=True):
                state = self.state[p]
                if self.t == 1:
                    state["d"] = grad.clone()
                else:
                    state["d"].sub_(grad_before).mul_(1 - self.beta(self.t)).add_(grad)
                state["w"].sub_(state["d"], alpha=rate)
                if self.radius is not None:
                    norm = torch.linalg.vector_norm(state["w"])
                    state["w"].mul_(torch.clamp(self.radius / norm, max=1))
                state["x"].copy_(p)
                p.lerp_(state["w"], self.gamma(self.t + 1))
        return loss

    def _exchange(self, params: Any) -> None:
        """Puts the last point into the place of params, and back."""
        for p in params:
            p.data, self.state[p]["x"] = self.state[p]["x"], p.data


class Model(NamedTuple):
    """A model on both sides.

    Attributes:
      task: From data to this side's functions.
      modules: Makes the layers of PyTorch's.
      momentum: α, β and γ here.
      weights: γ and β there, as functions of t.
      pair: How both gradients are taken, "sequential" or "vmap".
      radius: That of the ball of each tensor, or None.
      steps: Steps of a round.
    """

    task: Callable[[Data], Functions]
    modules: Callable[[], Any]
    momentum: mu2_optax.DoubleMomentum
    weights: tuple[Callable[[int], float], Callable[[int], float]]
    radius: float | None
    pair: str
    steps: int

    def optimizer(self, rate: Any) -> optax.GradientTransformationExtraArgs:
        """This side's optimizer."""
        ball = self.radius and mu2_optax.per_tensor(mu2_optax.onto_l2_ball(self.radius))
        return mu2_optax.mu2_sgd(rate, self.momentum, projection=ball)

    def step(self, task: Functions, rate: Any) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
        """This side's step: from params, state and batch to the next params and state."""
        grad_fn, tx = jax.grad(task.loss), self.optimizer(rate)

        def pair(*points: Any, batch: Any) -> Any:
            if self.pair == "sequential":
                return [grad_fn(point, batch) for point in points]
            both = jax.vmap(grad_fn, in_axes=(0, None))(
                jax.tree.map(lambda *a: jnp.stack(a), *points), batch
            )
            return [jax.tree.map(lambda g, i=i: g[i], both) for i in (0, 1)]

        def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any]:
            grads, before = pair(params, state.x, batch=batch)
            updates, state = tx.update(grads, state, params, prev_grads=before)
            return optax.apply_updates(params, updates), state

        return step


def _dense(*sizes: int) -> Any:
    nn = torch.nn
    layers = [nn.Flatten()]
    for m, n in itertools.pairwise(sizes):
        layers += [nn.Linear(m, n), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _cnn() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        *(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 10)),
    )


FIXED = {
    "momentum": mu2_optax.fixed_momentum(),
    "weights": (lambda t: 0.1, lambda t: 0.9),
    "radius": None,
    "pair": "sequential",
}
MODELS = {
    "logistic regression": Model(
        lambda data: dense_task(data, (), BATCH),
        lambda: _dense(784, 10),
        momentum=mu2_optax.linear_momentum(),
        weights=(lambda t: 2 / (t + 1), lambda t: 1 / t),
        radius=1.0,
        pair="vmap",
        steps=500,
    ),
    "MLP 784-256-256-10": Model(
        lambda data: dense_task(data, (256, 256), BATCH),
        lambda: _dense(784, 256, 256, 10),
        **FIXED,
        steps=100,
    ),
    "the paper's CNN": Model(lambda data: cnn_task(data, BATCH), _cnn, **FIXED, steps=12),
}


def as_tensors(params: Any) -> list[Any]:
    """This side's params in the order and the layout of PyTorch's modules."""
    if isinstance(params, list):
        return [torch.tensor(np.array(a)) for p in params for a in (p["w"].T, p["b"])]
    kernels = {"conv1": (5, 5, 1, 20), "conv2": (5, 5, 20, 50), "dense1": (4, 4, 50, 50)}
    arrays = []
    for name in ("conv1", "conv2", "dense1", "norm", "dense2"):
        layer = params[name]
        if name in kernels:
            weights = layer["w"].reshape(kernels[name]).transpose(3, 2, 0, 1)
            arrays += [weights.reshape(50, 800) if name == "dense1" else weights, layer["b"]]
        elif name == "norm":
            arrays += [layer["scale"], layer["shift"]]
        else:
            arrays += [layer["w"].T, layer["b"]]
    return [torch.tensor(np.array(a)) for a in arrays]


def there(
    model: Model, data: Data, params: Any, *, compiled: bool = False, rate: float = RATE
) -> tuple[Callable[[Any], None], Any]:
    """PyTorch's training: a function that makes a step on each row of numbers, and its module."""
    modules = model.modules()
    with torch.no_grad():
        for own, first in zip(modules.parameters(), as_tensors(params), strict=True):
            own.copy_(first)
    optimizer = Mu2SGD(modules.parameters(), rate, *model.weights, model.radius)
    network = torch.compile(modules) if compiled else modules
    images, labels = torch.tensor(data.train_x), torch.tensor(data.train_y, dtype=torch.long)

    def train(rows: Any) -> None:
        for row in torch.as_tensor(rows):
            batch, wanted = images[row], labels[row]

            def closure(batch: Any = batch, wanted: Any = wanted) -> Any:
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(network(batch), wanted)
                loss.backward()
                return loss

            optimizer.step(closure)

    return train, modules


def here(model: Model, data: Data, *, scanned: bool = False) -> Callable[..., Any]:
    """This side's training: a function from (params, state, rows of numbers) to params and state.

    From Python, batches are gathered by NumPy, as a data loader does.
    """
    task = model.task(data)
    step = model.step(task, RATE)
    if scanned:
        body = lambda carry, row: (step(*carry, task.batch(row)), None)
        train = lambda params, state, rows: jax.lax.scan(body, (params, state), rows)[0]
        return jax.jit(train, donate_argnums=(0, 1))
    jitted = jax.jit(step, donate_argnums=(0, 1))
    shape = task.batch(jnp.arange(1))[0].shape[1:]  # flat, for dense layers
    images, labels = data.train_x.reshape(-1, *shape), data.train_y

    def train_from_python(params: Any, state: Any, rows: Any) -> tuple[Any, Any]:
        for row in rows:
            params, state = jitted(params, state, (images[row], labels[row]))
        return params, state

    return train_from_python


def timed(train: Callable[[], Any]) -> Callable[[], float]:
    """A function that times a round of training."""

    def seconds() -> float:
        start = time.perf_counter()
        train()
        return time.perf_counter() - start

    return seconds


def going_on(model: Model, data: Data, rows: Any, scanned: bool) -> Callable[[], Any]:
    """This side's steps of a round, which go on from those of the last."""
    train = here(model, data, scanned=scanned)
    params = model.task(data).init(jax.random.key(0))
    held = [(params, model.optimizer(RATE).init(params))]

    def of_round() -> None:
        held[0] = jax.block_until_ready(train(*held[0], rows))

    return of_round


def steps_a_second(
    model: Model, rounds: int, steps: int, compiled: bool = False
) -> Iterator[dict[str, Any]]:
    """A row for each way to train a model; or for PyTorch's compiler alone, beside eager mode."""
    data = made_up(10_000)
    params = model.task(data).init(jax.random.key(0))
    rows = np.random.default_rng(1).integers(0, len(data.train_y), (steps, BATCH))
    of = lambda compiled: timed(partial(there(model, data, params, compiled=compiled)[0], rows))
    ways = {EAGER: of(False)}
    if compiled:
        ways["PyTorch, torch.compile"] = of(True)
    else:
        ways["mu2_optax, jitted step"] = timed(going_on(model, data, rows, scanned=False))
        ways["mu2_optax, lax.scan"] = timed(going_on(model, data, rows, scanned=True))
    seconds = in_turn(ways, rounds)
    for way, found in seconds.items():
        if way != EAGER or not compiled:
            yield _row(way, spread(steps / found), spread(seconds[EAGER] / found))


def sweeps(rounds: int, steps: int) -> Iterator[dict[str, Any]]:
    """A row for each way to make the 18 runs; the unit is runs a second."""
    model, data = MODELS["logistic regression"], made_up(10_000)
    task = model.task(data)
    params = task.init(jax.random.key(0))
    compiling = []

    def train(learning_rate: Any, key: Any) -> dict[str, Any]:
        step, state = model.step(task, learning_rate), model.optimizer(learning_rate).init(params)
        rows = jax.random.randint(key, (steps, BATCH), 0, len(data.train_y))
        body = lambda carry, row: (step(*carry, task.batch(row)), None)
        (end, _), _ = jax.lax.scan(body, (params, state), rows)
        return {"loss": task.loss(end, task.batch(jnp.arange(BATCH)))}

    def ours() -> float:
        info = sweep(train, RATES, SEEDS, progress=False).info
        compiling.append(info["compile_seconds"])
        return info["run_seconds"]

    @timed
    def one_after_another() -> None:
        for seed in range(SEEDS):
            rows = np.random.default_rng(seed).integers(0, len(data.train_y), (steps, BATCH))
            for rate in RATES:
                there(model, data, params, rate=float(rate))[0](rows)

    seconds = in_turn({EAGER: one_after_another, "mu2_optax, sweep": ours}, rounds)
    seconds["mu2_optax, sweep with its compilation"] = seconds["mu2_optax, sweep"] + compiling[0]
    runs = SEEDS * len(RATES)
    for way, found in seconds.items():
        yield _row(way, spread(runs / found), spread(seconds[EAGER] / found))


def _row(way: str, speed: Any, ratio: Any) -> dict[str, Any]:
    shown = lambda of: [f"{value:.4g}" for value in of]
    names = ("per_second", "low", "high", "times_eager", "times_low", "times_high")
    return {"way": way, **dict(zip(names, shown(speed) + shown(ratio), strict=True))}


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--sweep-rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of a round, for every model; 938 of a run")
    parser.add_argument("--out", type=Path, default=RESULTS / "vs_pytorch", help="folder")
    args = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(CORES)
    parts = [
        ("18 runs of logistic regression", partial(sweeps, args.sweep_rounds, args.steps or 938))
    ]
    # The compiler comes last, because what runs in a process after it is slower, jitted steps too.
    for compiled in (False, True):
        for name, model in MODELS.items():
            steps = args.steps or model.steps
            parts.append((name, partial(steps_a_second, model, args.rounds, steps, compiled)))
    rows = []
    for name, measure in parts:
        for row in measure():
            rows.append({"model": name, **row})
            print(rows[-1], flush=True)
    write_rows(args.out / f"cores_{CORES}.csv", rows)


if __name__ == "__main__":
    main()
