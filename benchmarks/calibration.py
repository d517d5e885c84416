"""Is the error bar right? The estimated error of d beside the true one.

    python -m benchmarks.calibration --data mnist

Sampling with replacement from 6,000 images, batches of 64, so that the exact gradient is cheap and
known: μ²-SGD with linear momenta and β measured. Settings: logistic regression in the unit ball, in
a ball of radius 4, and without a set at three rates; least squares with its own noise; an MLP. The
true error is ‖d - ∇f(x)‖², the estimate is ``error_bar(state).error``; medians over the seeds. It
writes ``results.csv`` and ``figure.png`` into ``benchmarks/results/calibration``.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

import mu2_optax
from benchmarks.experiment import RESULTS
from examples import data as datasets
from examples.option_types import positive_int

IMAGES, BATCH = 6000, 64
MARKS = (3, 10, 30, 100, 300, 1000, 3000, 10_000)
# Loss, learning rate and radius of each setting; the radius None is no set.
SETTINGS = {
    "logistic, unit ball, rate 1": ("logistic", 1.0, 1.0),
    "logistic, radius 4, rate 1": ("logistic", 1.0, 4.0),
    "logistic, radius 4, rate 100": ("logistic", 100.0, 4.0),
    "logistic, no set, rate 0.1": ("logistic", 0.1, None),
    "logistic, no set, rate 1": ("logistic", 1.0, None),
    "logistic, no set, rate 10": ("logistic", 10.0, None),
    "least squares, rate 0.01": ("least_squares", 0.01, None),
    "MLP, rate 0.1": ("mlp", 0.1, None),
    "MLP, rate 1": ("mlp", 1.0, None),
}


def make_problem(kind: str) -> tuple[Any, Any]:
    """The loss of (params, batch), and the first params from a key."""
    sizes = {"logistic": (784, 10), "least_squares": (784, 10), "mlp": (784, 64, 64, 10)}[kind]

    def init(key: Any) -> Any:
        keys = jax.random.split(key, len(sizes) - 1)
        return [
            {
                "w": jax.random.normal(k, (m, n)) / m**0.5 * (len(sizes) > 2),
                "b": jnp.zeros(n),
            }
            for k, m, n in zip(keys, sizes, sizes[1:], strict=False)
        ]

    def loss(params: Any, batch: Any) -> Any:
        h, labels = batch
        for layer in params[:-1]:
            h = jax.nn.relu(h @ layer["w"] + layer["b"])
        out = h @ params[-1]["w"] + params[-1]["b"]
        if kind == "least_squares":
            return 0.5 * jnp.mean(jnp.sum((out - jax.nn.one_hot(labels, 10)) ** 2, axis=-1))
        return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()

    return loss, init


def calibrate(setting: str, x: Any, y: Any, seeds: int, steps: int) -> np.ndarray:
    """Estimated error, true error and noise of one batch at each mark, for each seed."""
    kind, rate, radius = SETTINGS[setting]
    loss, init = make_problem(kind)
    grad_fn = jax.grad(loss)
    projection = None if radius is None else mu2_optax.onto_l2_ball(radius)
    momentum = mu2_optax.linear_momentum(beta=mu2_optax.measured_beta())
    tx = mu2_optax.mu2_sgd(rate, momentum, projection=projection)

    def step(carry: Any, key: Any) -> tuple[Any, None]:
        params, state = carry
        rows = jax.random.randint(key, (BATCH,), 0, len(y))
        batch = (x[rows], y[rows])
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return (optax.apply_updates(params, updates), state), None

    def one(key: Any) -> Any:
        start, draw = jax.random.split(key)
        params = init(start)
        carry, before, found = (params, tx.init(params)), 0, []
        keys = jax.random.split(draw, steps)
        for mark in (mark for mark in MARKS if mark <= steps):
            carry, _ = jax.lax.scan(step, carry, keys[before:mark])
            before, state = mark, carry[1]
            away = jax.tree.map(jnp.subtract, state.d, grad_fn(state.x, (x, y)))
            bar = mu2_optax.error_bar(state)
            found.append(jnp.stack([bar.error, optax.tree.norm(away, squared=True), bar.noise]))
        return jnp.stack(found)

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), seeds)))


def draw(found: dict[str, np.ndarray], file: Path) -> None:
    """Both curves of each setting: the bar and the truth, in units of one batch's noise."""
    figure = Figure(figsize=(9, 7.2), dpi=160, layout="constrained")
    grid = figure.subplots(3, 3, sharex=True, sharey=True).ravel()
    for axes, (setting, values) in zip(grid, found.items(), strict=False):
        steps = MARKS[: values.shape[1]]
        noise = np.median(values[:, :, 2], axis=0)
        for column, style in ((0, {"ls": "--", "marker": "s"}), (1, {"marker": "o"})):
            label = ("estimated by the bar", "true")[column]
            axes.plot(steps, np.median(values[:, :, column], axis=0) / noise, label=label, **style)
        axes.set(xscale="log", yscale="log")
        axes.set_title(setting, fontsize=10)
        axes.grid(alpha=0.3)
    grid[0].legend(frameon=False)
    figure.supxlabel("step")
    figure.supylabel("squared error of d ÷ noise of one batch")
    figure.savefig(file)


def main() -> None:
    """Runs the calibration."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser, default="mnist")
    parser.add_argument("--seeds", type=positive_int, default=10)
    parser.add_argument("--steps", type=positive_int, default=MARKS[-1])
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=tuple(SETTINGS))
    parser.add_argument("--out", type=Path, default=RESULTS / "calibration")
    args = parser.parse_args()
    data = datasets.load_or_exit(parser, args)
    x = jnp.asarray(data.train_x[:IMAGES]).reshape(-1, 784)
    y = jnp.asarray(data.train_y[:IMAGES])
    found = {}
    for setting in args.settings:
        found[setting] = values = calibrate(setting, x, y, args.seeds, args.steps)
        ratios = np.median(values[:, :, 0] / values[:, :, 1], axis=0)
        print(f"{setting:32}", *(f"{ratio:6.2f}" for ratio in ratios), flush=True)
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "results.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["setting", "step", "estimated", "true", "noise", "ratio"])
        for setting, values in found.items():
            medians = np.median(values, axis=0)
            ratios = np.median(values[:, :, 0] / values[:, :, 1], axis=0)
            for step, row, ratio in zip(MARKS, medians, ratios, strict=False):
                writer.writerow([setting, step, *(f"{v:.5g}" for v in row), f"{ratio:.4g}"])
    draw(found, args.out / "figure.png")
    print(f"wrote {args.out}")


if __name__ == "__main__":
    main()
