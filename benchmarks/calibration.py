"""Is the error bar right? The estimated error of d beside the true one.

    python -m benchmarks.calibration --data mnist

Sampling with replacement from 6,400 images, batches of 64: μ²-SGD with linear momenta and β
measured. Settings: logistic regression in the unit ball, in a ball of radius 4, and without a set
at three rates; least squares; an MLP; the paper's CNN, for fewer steps. The true error is
‖d - ∇f(x)‖², where ∇f is the mean of the gradients of the hundred batches that the images make; the
estimate is ``error_bar(state).error``; medians over the seeds. It writes ``results.csv`` and
``figure.png`` into ``benchmarks/results/calibration``.
"""

import argparse
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import mu2_optax
from benchmarks.files import RESULTS, write_rows
from benchmarks.image_tasks import cnn_task, dense_task
from benchmarks.pictures import write_picture
from benchmarks.training import Task
from examples import data as datasets
from examples.option_types import positive_int
from mu2_optax.sweep import Data

IMAGES, BATCH = 6400, 64
MARKS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)


class Setting(NamedTuple):
    """A loss, its learning rate and the radius of its set (None is no set), and how much is run."""

    loss: str
    rate: float
    radius: float | None = None
    seeds: int = 10
    steps: int = MARKS[-1]


SETTINGS = {
    "logistic, unit ball, rate 1": Setting("logistic", 1.0, 1.0),
    "logistic, radius 4, rate 1": Setting("logistic", 1.0, 4.0),
    "logistic, radius 4, rate 100": Setting("logistic", 100.0, 4.0),
    "logistic, no set, rate 0.1": Setting("logistic", 0.1),
    "logistic, no set, rate 1": Setting("logistic", 1.0),
    "logistic, no set, rate 10": Setting("logistic", 10.0),
    "least squares, rate 0.01": Setting("least_squares", 0.01),
    "MLP, rate 0.1": Setting("mlp", 0.1),
    "MLP, rate 1": Setting("mlp", 1.0),
    "CNN, rate 0.1": Setting("cnn", 0.1, seeds=3, steps=300),
}


def make_task(kind: str, data: Data) -> Task:
    """What is learnt."""
    if kind == "cnn":
        return cnn_task(data, BATCH)
    task = dense_task(data, (64, 64) if kind == "mlp" else (), BATCH)
    return task._replace(loss=squared_distance) if kind == "least_squares" else task


def squared_distance(params: Any, batch: Any) -> Any:
    """Half the squared distance of a linear model to the labels as unit vectors."""
    x, labels = batch
    out = x @ params[-1]["w"] + params[-1]["b"]
    return 0.5 * jnp.mean(jnp.sum((out - jax.nn.one_hot(labels, 10)) ** 2, axis=-1))


def calibrate(setting: Setting, data: Data) -> np.ndarray:
    """Estimated error, true error and noise of one batch at each mark, for each seed."""
    task = make_task(setting.loss, data)
    grad_fn = jax.grad(task.loss)
    ball = None if setting.radius is None else mu2_optax.onto_l2_ball(setting.radius)
    momentum = mu2_optax.linear_momentum(beta=mu2_optax.measured_beta())
    tx = mu2_optax.mu2_sgd(setting.rate, momentum, projection=ball)
    images = len(data.train_y)
    parts = jnp.arange(images // BATCH * BATCH).reshape(-1, BATCH)

    def exact(params: Any) -> Any:
        grads = jax.lax.map(lambda rows: grad_fn(params, task.batch(rows)), parts)
        return jax.tree.map(lambda g: g.mean(axis=0), grads)

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        params, state = carry
        batch = task.batch(jax.random.randint(key, (BATCH,), 0, images))
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return (optax.apply_updates(params, updates), state), None

    def stretch(carry: Any, keys: Any) -> tuple[Any, Any]:
        (params, state), _ = jax.lax.scan(step, carry, keys)
        away = jax.tree.map(jnp.subtract, state.d, exact(state.x))
        bar = mu2_optax.error_bar(state)
        truth = optax.tree.norm(away, squared=True)
        return (params, state), jnp.stack([bar.error, truth, bar.noise])

    def one(key: Any) -> Any:
        start, draw = jax.random.split(key)
        params = task.init(start) if ball is None else ball(task.init(start))
        keys = jax.random.split(draw, setting.steps)
        carry, before, found = (params, tx.init(params)), 0, []
        for mark in (mark for mark in MARKS if mark <= setting.steps):
            carry, values = stretch(carry, keys[before:mark])
            before = mark
            found.append(values)
        return jnp.stack(found)

    keys = jax.random.split(jax.random.key(0), setting.seeds)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))


def draw(found: dict[str, np.ndarray], file: Path) -> None:
    """Both curves of each setting: the bar and the truth, in units of one batch's noise."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    grid = figure.subplots(2, 5, sharex=True, sharey=True).ravel()
    for axes, (setting, values) in zip(grid, found.items(), strict=False):
        steps = MARKS[: values.shape[1]]
        noise = np.median(values[:, :, 2], axis=0)
        for column, style in ((0, {"ls": "--", "marker": "s"}), (1, {"marker": "o"})):
            label = ("estimated by the bar", "true")[column]
            axes.plot(steps, np.median(values[:, :, column], axis=0) / noise, label=label, **style)
        axes.set(xscale="log", yscale="log")
        axes.set_title(setting, fontsize=10)
        axes.grid(alpha=0.3)
    lines, labels = grid[0].get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper right", ncols=2, frameon=False)
    figure.supxlabel("step")
    figure.supylabel("squared error of d ÷ noise of one batch")
    write_picture(figure, file)


def write(found: dict[str, np.ndarray], file: Path) -> None:
    """Writes the medians over the seeds."""
    rows = []
    for setting, values in found.items():
        medians = np.median(values, axis=0)
        for step, row, ratio in zip(MARKS, medians, ratios(values), strict=False):
            shown = dict(zip(("estimated", "true", "noise"), row, strict=True))
            rows.append({"setting": setting, "step": step, **shown, "ratio": f"{ratio:.4g}"})
    write_rows(file, rows, digits=5)


def ratios(values: np.ndarray) -> np.ndarray:
    """Estimated over true error at each mark, the median over the seeds."""
    return np.median(values[:, :, 0] / values[:, :, 1], axis=0)


def main() -> None:
    """Runs the calibration."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser, default="mnist")
    parser.add_argument("--seeds", type=positive_int, default=10, help="at most so many")
    parser.add_argument("--steps", type=positive_int, default=MARKS[-1], help="at most so many")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=tuple(SETTINGS))
    parser.add_argument("--out", type=Path, default=RESULTS / "calibration")
    args = parser.parse_args()
    data = datasets.load_or_exit(parser, args)
    data = data._replace(train_x=data.train_x[:IMAGES], train_y=data.train_y[:IMAGES])
    found = {}
    for name in args.settings:
        setting = SETTINGS[name]
        seeds, steps = min(args.seeds, setting.seeds), min(args.steps, setting.steps)
        found[name] = values = calibrate(setting._replace(seeds=seeds, steps=steps), data)
        print(f"{name:32}", *(f"{ratio:6.2f}" for ratio in ratios(values)), flush=True)
        write(found, args.out / "results.csv")
    draw(found, args.out / "figure.png")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
