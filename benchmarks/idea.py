"""The pictures of docs/idea.md: how w, x and d move, and how the error of d shrinks.

    python -m benchmarks.idea

Noisy least squares in the plane, on the unit disc, one sample a step and one learning rate for all.
Writes four pictures to benchmarks/results/idea; takes half a minute on a 2-core x86-64 CPU.
"""

import argparse
import functools
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.files import RESULTS
from benchmarks.pictures import BLUE, GREEN, GREY, ORANGE, SKY, axis, data, lines, write_picture

MINIMUM = np.array([0.45, -0.35])
VARIANCES = np.array([1.0, 0.3])  # of the two features: the curvatures of the loss
NOISE = 0.5
RATE = 1.0
START = np.array([-0.7, 0.6])


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
LOOKS = dict(zip(OPTIMIZERS, ((c, ()) for c in (ORANGE, GREY, GREEN, BLUE)), strict=True))


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


def points(line: str, xy: Any, **more: Any) -> list[dict[str, Any]]:
    """Rows of a chart: places in the plane, in this order."""
    places = enumerate(np.asarray(xy, float).tolist())
    return [{"line": line, "x": x, "y": y, "t": t, **more} for t, (x, y) in places]


def plane(title: str, paths: dict[str, Any], colors: list[str]) -> Any:
    """The disc, level sets of the loss, its minimum, and paths."""
    angle = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(angle), np.sin(angle)], -1)
    levels = [MINIMUM + circle * np.sqrt(2 * level / VARIANCES) for level in np.arange(1, 9) / 10]
    ends = (-1.1, 1.1)
    x = alt.X("x:Q", title=None, axis=None, scale=alt.Scale(domain=ends))
    y = alt.Y("y:Q", title=None, axis=None, scale=alt.Scale(domain=ends))
    sets = [row for i, level in enumerate(levels) for row in points(str(i), level)]
    contour = {"clip": True, "strokeWidth": 0.8}
    loss = alt.Chart(data(sets)).mark_line(color="#dddddd", **contour)
    disc = alt.Chart(data(points("", circle))).mark_line(color="#555555", strokeWidth=1)
    star = "M0-1L.23-.32L.95-.31L.36.12L.59.81L0 .38L-.59.81L-.36.12L-.95-.31L-.23-.32Z"
    best = alt.Chart(data(points("", [MINIMUM]))).mark_point(
        shape=star, filled=True, size=80, color="black", opacity=1
    )
    rows = [row for name, path in paths.items() for row in points(name, path)]
    legend = alt.Legend(title=None, orient="bottom-left", symbolType="circle", labelLimit=300)
    scale = alt.Scale(domain=list(paths), range=colors)
    marks = {"strokeWidth": 1, "point": {"size": 18}}
    moved = (
        alt.Chart(data(rows))
        .mark_line(**marks)
        .encode(color=alt.Color("line:N", scale=scale, legend=legend))
    )
    layers = [
        loss.encode(x, y, detail="line:N", order="t:Q"),
        disc.encode(x, y, order="t:Q"),
        moved.encode(x, y, order="t:Q"),
        best.encode(x, y),
    ]
    return alt.layer(*layers, width=330, height=330, title=title)


def paths(steps: int = 60) -> Any:
    """The same samples and the same learning rate, with and without the double momentum."""
    found = run("μ²-SGD", steps, 1)
    both = {"w, what steps move": found.w[0], "x, the params": found.x[0]}
    left = plane(f"SGD, η = {RATE:g}: one point", {"x = w": run("SGD", steps, 1).x[0]}, [ORANGE])
    right = plane(f"μ²-SGD, η = {RATE:g}: w moves, x is its average", both, [SKY, BLUE])
    return alt.hconcat(left, right).resolve_scale(color="independent")


def frames(times: tuple[int, ...] = (1, 4, 16, 64), seeds: int = 60) -> Any:
    """What 60 runs believe of the gradient: a sample's own, and d, both against the exact one."""
    found = run("μ²-SGD", max(times), seeds)
    rows = []
    for t in times:
        exact = exact_gradient(found.x[:, t - 1])
        rows += points("one sample: g", found.g[:, t - 1] - exact, step=f"step {t}")
        rows += points("the estimate: d", found.d[:, t - 1] - exact, step=f"step {t}")
    legend = alt.Legend(title=None, orient="bottom", symbolOpacity=1)
    scale = alt.Scale(domain=["one sample: g", "the estimate: d"], range=[ORANGE, BLUE])
    drawn = alt.Chart(width=190, height=117).mark_circle(size=18, opacity=0.8, clip=True)
    drawn = drawn.encode(
        axis(alt.X, "x", "", (-2.6, 2.6)),
        axis(alt.Y, "y", "", (-1.6, 1.6)),
        color=alt.Color("line:N", scale=scale, legend=legend),
    )
    order = [f"step {t}" for t in times]
    facet = alt.Facet("step:N", sort=order, header=alt.Header(title=None, labelFontSize=12))
    title = alt.Title(f"error of the gradient, {seeds} runs", anchor="middle")
    return drawn.facet(facet, data=data(rows), columns=len(times)).properties(title=title)


def errors(steps: int = 2000, seeds: int = 200) -> Any:
    """The mean squared error of what each optimizer steps along."""
    shown = np.unique(np.geomspace(1, steps, 200).astype(int))
    rows = []
    for name in OPTIMIZERS:
        found = run(name, steps, seeds)
        # The correction carries the estimate to the point where the gradient was taken.
        error = np.asarray(((found.d - exact_gradient(found.x)) ** 2).sum(-1).mean(0))
        rows += points(name, np.stack([shown, error[shown - 1]], -1))
    rows += points("1/t", np.stack([shown, 1 / shown], -1))
    x = axis(alt.X, "x", "step t", log=True)
    y = axis(alt.Y, "y", "mean of |d − ∇f(x)|²", log=True)
    return lines(rows, x, y, LOOKS | {"1/t": ("black", (2, 3))}, size=(520, 300), legend=5)


def rates(steps: int = 500, seeds: int = 50) -> Any:
    """The excess loss at the end, over learning rates."""
    grid = np.logspace(-3, 4, 15)
    rows = []
    for name in OPTIMIZERS:
        ends = [float(excess(run(name, steps, seeds, rate).x[:, -1]).mean()) for rate in grid]
        rows += points(name, np.stack([grid, ends], -1))
    x = axis(alt.X, "x", "learning rate", log=True)
    y = axis(alt.Y, "y", f"f(x) − f* after {steps} steps", log=True)
    return lines(rows, x, y, LOOKS, size=(520, 300), marks=True, legend=4)


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


if __name__ == "__main__":
    main()
