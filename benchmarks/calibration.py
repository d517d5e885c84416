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

import altair as alt
import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.files import RESULTS, read_rows, write_rows
from benchmarks.image_tasks import cnn_task, dense_task
from benchmarks.pictures import BLUE, ORANGE, axis, lines, write_picture
from benchmarks.training import Functions, run_steps
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


def make_task(kind: str, data: Data) -> Functions:
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

    draw = lambda key: task.batch(jax.random.randint(key, (BATCH,), 0, images))
    drawing = task._replace(batch=draw)  # its rows are keys

    def exact(params: Any) -> Any:
        grads = jax.lax.map(lambda rows: grad_fn(params, task.batch(rows)), parts)
        return jax.tree.map(lambda g: g.mean(axis=0), grads)

    def stretch(carry: Any, keys: Any) -> tuple[Any, Any]:
        carry = _, state, _ = run_steps(drawing, tx, carry, keys)
        away = jax.tree.map(jnp.subtract, state.d, exact(state.x))
        bar = mu2_optax.error_bar(state)
        truth = optax.tree.norm(away, squared=True)
        return carry, jnp.stack([bar.error, truth, bar.noise])

    def one(key: Any) -> Any:
        start, draw = jax.random.split(key)
        params = task.init(start) if ball is None else ball(task.init(start))
        keys = jax.random.split(draw, setting.steps)
        carry, before, found = (params, tx.init(params), ()), 0, []
        for mark in (mark for mark in MARKS if mark <= setting.steps):
            carry, values = stretch(carry, keys[before:mark])
            before = mark
            found.append(values)
        return jnp.stack(found)

    keys = jax.random.split(jax.random.key(0), setting.seeds)
    return np.asarray(jax.jit(lambda keys: jax.lax.map(one, keys))(keys))


def draw(rows: list[dict[str, str]], file: Path) -> None:
    """Both curves of each setting: the bar and the truth, in units of one batch's noise."""
    looks = {"estimated": (BLUE, (5, 3)), "true": (ORANGE, ())}
    points = [
        {"panel": row["setting"], "line": line, "x": int(row["step"])}
        | {"y": float(row[line]) / float(row["noise"])}
        for row in rows
        for line in looks
    ]
    x = axis(alt.X, "x", "step", log=True)
    y = axis(alt.Y, "y", "squared error of d ÷ noise", log=True)
    chart = lines(points, x, y, looks, size=(140, 120), columns=5, marks=True, legend=2)
    write_picture(chart, file)


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
    draw(read_rows(args.out / "results.csv"), args.out / "figure.png")


if __name__ == "__main__":
    main()
