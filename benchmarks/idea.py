"""The pictures of docs/idea.md: how w, x and d move, and how the error of d shrinks.

    python -m benchmarks.idea

Noisy least squares in the plane, on the unit disc, one sample a step and one learning rate for all.
Writes four pictures to benchmarks/results/idea; takes half a minute on a 2-core x86-64 CPU.
"""

import argparse
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import mu2_optax
from benchmarks.files import RESULTS
from benchmarks.pictures import write_picture

MINIMUM = np.array([0.45, -0.35])
VARIANCES = np.array([1.0, 0.3])  # of the two features: the curvatures of the loss
NOISE = 0.5
RATE = 1.0
START = np.array([-0.7, 0.6])
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#777777"


def loss(x: jax.Array, sample: tuple[jax.Array, jax.Array]) -> jax.Array:
    features, target = sample
    return 0.5 * (features @ x - target) ** 2


grad_fn = jax.grad(loss)


def draw(key: jax.Array) -> tuple[jax.Array, jax.Array]:
    of_features, of_noise = jax.random.split(key)
    features = jnp.sqrt(VARIANCES) * jax.random.normal(of_features, (2,))
    return features, features @ MINIMUM + NOISE * jax.random.normal(of_noise)


def exact_gradient(x: Any) -> Any:
    return VARIANCES * (x - MINIMUM)


def excess(x: Any) -> Any:
    return 0.5 * (VARIANCES * (x - MINIMUM) ** 2).sum(-1)


class Run(NamedTuple):
    """What a step saw and made: the point x, w, the gradient g on its sample, the estimate d."""

    x: Any
    w: Any
    g: Any
    d: Any


BALL = mu2_optax.onto_l2_ball(1.0)
LINEAR = mu2_optax.linear_momentum()
OPTIMIZERS = {
    "SGD": lambda rate: mu2_optax.projected(optax.sgd(rate), BALL),
    "averaging alone": lambda rate: mu2_optax.anytime_sgd(rate, LINEAR, projection=BALL),
    "correction alone": lambda rate: mu2_optax.storm(rate, LINEAR.beta, projection=BALL),
    "μ²-SGD": lambda rate: mu2_optax.mu2_sgd(rate, LINEAR, projection=BALL),
}
COLORS = dict(zip(OPTIMIZERS, (ORANGE, GREY, GREEN, BLUE), strict=True))


@functools.partial(jax.jit, static_argnames=("name", "steps", "seeds"))
def run(name: str, steps: int, seeds: int, rate: Any = RATE) -> Run:
    """Every step of every seed; arrays of the shape (seeds, steps, 2)."""
    tx = OPTIMIZERS[name](rate)

    def step(carry: Any, key: jax.Array) -> tuple[Any, Run]:
        x, state = carry
        sample = draw(key)
        g = grad_fn(x, sample)
        w = optax.tree.get(state, "w", x)
        updates, state = tx.update(g, state, x, grad_fn=grad_fn, batch=sample)
        return (x + updates, state), Run(x, w, g, optax.tree.get(state, "d", g))

    def one(key: jax.Array) -> Run:
        x = jnp.asarray(START, jnp.float32)
        return jax.lax.scan(step, (x, tx.init(x)), jax.random.split(key, steps))[1]

    return jax.vmap(one)(jax.random.split(jax.random.key(3), seeds))


def plane(axis: Axes, title: str) -> None:
    """The disc, the loss as contours, and its minimum."""
    across = np.linspace(-1.1, 1.1, 121)
    grid = np.stack(np.meshgrid(across, across), axis=-1)
    axis.contour(across, across, excess(grid), levels=12, colors="#dddddd", linewidths=0.8)
    axis.add_patch(plt.Circle((0, 0), 1, fill=False, color="#555555"))
    axis.plot(*MINIMUM, "*", color="black", markersize=9)
    axis.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal", xticks=[], yticks=[])
    axis.set_title(title, fontsize=10)


def paths(steps: int = 60) -> Figure:
    """The same samples and the same learning rate, with and without the double momentum."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    plane(left, f"SGD, η = {RATE:g}: one point")
    left.plot(*run("SGD", steps, 1).x[0].T, ".-", color=ORANGE, lw=0.8, ms=4, label="x = w")
    plane(right, f"μ²-SGD, η = {RATE:g}: w moves, x is its average")
    found = run("μ²-SGD", steps, 1)
    right.plot(*found.w[0].T, ".-", color="#9ecae1", lw=0.8, ms=4, label="w, what steps move")
    right.plot(*found.x[0].T, ".-", color=BLUE, lw=1.4, ms=4, label="x, the params")
    for axis in (left, right):
        axis.legend(loc="lower left", fontsize=8)
    return figure


def frames(times: tuple[int, ...] = (1, 4, 16, 64), seeds: int = 60) -> Figure:
    """What 60 runs believe of the gradient: a sample's own, and d, both against the exact one."""
    figure = Figure(figsize=(10.5, 2.9), layout="constrained")
    found = run("μ²-SGD", max(times), seeds)
    for axis, t in zip(
        figure.subplots(1, len(times), sharex=True, sharey=True), times, strict=True
    ):
        exact = exact_gradient(found.x[:, t - 1])
        axis.plot(
            *(found.g[:, t - 1] - exact).T,
            ".",
            color=ORANGE,
            ms=5,
            alpha=0.8,
            label="one sample: g",
        )
        axis.plot(
            *(found.d[:, t - 1] - exact).T,
            ".",
            color=BLUE,
            ms=5,
            alpha=0.8,
            label="the estimate: d",
        )
        axis.axhline(0, color="#bbbbbb", lw=0.6)
        axis.axvline(0, color="#bbbbbb", lw=0.6)
        axis.set(xlim=(-2.6, 2.6), ylim=(-1.6, 1.6), aspect="equal")
        axis.set_title(f"step {t}", fontsize=10)
        axis.tick_params(labelsize=7)
    figure.legend(
        *axis.get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8
    )
    figure.suptitle("error of the gradient, 60 runs", fontsize=10)
    return figure


def errors(steps: int = 2000, seeds: int = 200) -> Figure:
    """The mean squared error of what each optimizer steps along."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    t = np.arange(1, steps + 1)
    for name in OPTIMIZERS:
        found = run(name, steps, seeds)
        # The correction carries the estimate to the point where the gradient was taken.
        error = ((found.d - exact_gradient(found.x)) ** 2).sum(-1).mean(0)
        axis.loglog(t, error, color=COLORS[name], lw=1.2, label=name)
    axis.loglog(t, 1 / t, ":", color="black", lw=1, label="1/t")
    axis.set(xlabel="step t", ylabel="mean of |d − ∇f(x)|²")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8)
    return figure


def rates(steps: int = 500, seeds: int = 50) -> Figure:
    """The excess loss at the end, over learning rates."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axis = figure.subplots()
    grid = np.logspace(-3, 4, 15)
    for name in OPTIMIZERS:
        ends = [excess(run(name, steps, seeds, rate).x[:, -1]).mean() for rate in grid]
        axis.loglog(grid, ends, ".-", color=COLORS[name], lw=1.2, label=name)
    axis.set(xlabel="learning rate", ylabel=f"f(x) − f* after {steps} steps")
    axis.grid(alpha=0.25)
    axis.legend(fontsize=8)
    return figure


PICTURES = {"paths": paths, "frames": frames, "errors": errors, "rates": rates}


def main() -> None:
    """Draws them all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "idea", help="folder to write to")
    out = parser.parse_args().out
    for name, picture in PICTURES.items():
        write_picture(picture(), out / f"{name}.png")
        print(f"wrote {name}.png")


if __name__ == "__main__":
    main()
