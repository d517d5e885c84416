"""Regression: a physics-informed network, a function to fit closely, and tables."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.self_tuning.task import apply_layers, layers, on_rows, split
from benchmarks.training import Functions


def load_points(dimensions: int) -> Any:
    """Points in the cube from -1 to 1, to measure at."""
    rng = np.random.default_rng(0)
    draw = lambda: rng.uniform(-1, 1, (2000, dimensions)).astype(np.float32)
    return {"validation": draw(), "test": draw()}


def _relative_error(found: Any, truth: Any) -> Any:
    return jnp.sqrt(((found - truth) ** 2).mean() / (truth**2).mean())


def poisson(data: Any, batch: int = 64) -> Functions:
    """A physics-informed network for -Δu = 2π² sin(πx) sin(πy) in a square, 0 at its border."""
    solution = lambda x: jnp.sin(jnp.pi * x[:, 0]) * jnp.sin(jnp.pi * x[:, 1])

    def network(params: Any, x: Any) -> Any:
        return apply_layers(params, x, jnp.tanh)[..., 0]

    def laplacian(params: Any, x: Any) -> Any:
        def along(direction: Any) -> Any:
            slope = lambda p: jax.jvp(lambda q: network(params, q), (p,), (direction,))[1]
            return jax.jvp(slope, (x,), (direction,))[1]

        one = jnp.zeros_like(x).at[:, 0].set(1.0)
        return along(one) + along(1 - one)

    def loss(params: Any, points: Any) -> Any:
        inside, border = points
        equation = laplacian(params, inside) + 2 * jnp.pi**2 * solution(inside)
        return (equation**2).mean() + 100 * (network(params, border) ** 2).mean()

    def draw(key: Any, steps: int) -> Any:
        keys = jax.random.split(key, 3)
        inside = jax.random.uniform(keys[0], (steps, batch, 2), minval=-1, maxval=1)
        border = jax.random.uniform(keys[1], (steps, batch, 2), minval=-1, maxval=1)
        side = jax.random.randint(keys[2], (steps, batch), 0, 4)
        border = border.at[..., 0].set(jnp.where(side < 2, 2.0 * side - 1, border[..., 0]))
        border = border.at[..., 1].set(jnp.where(side >= 2, 2.0 * side - 5, border[..., 1]))
        return inside, border

    return Functions(
        init=lambda key: layers(key, (2, 32, 32, 32, 1)),
        draw=draw,
        batch=lambda row: row,
        loss=loss,
        measure=lambda params, rows, part: _relative_error(
            network(params, data[part]), solution(data[part])
        ),
    )


def function_to_fit(data: Any, batch: int = 128) -> Functions:
    """A smooth function of three numbers without noise: every digit more is an achievement."""
    wanted = lambda x: jnp.sin(4 * x[..., 0] * x[..., 1]) + jnp.exp(-4 * x[..., 2] ** 2) * x[..., 0]
    network = lambda params, x: apply_layers(params, x, jnp.tanh)[..., 0]
    return Functions(
        init=lambda key: layers(key, (3, 64, 64, 1)),
        draw=lambda key, steps: jax.random.uniform(key, (steps, batch, 3), minval=-1, maxval=1),
        batch=lambda row: row,
        loss=lambda params, x: ((network(params, x) - wanted(x)) ** 2).mean(),
        measure=lambda params, rows, part: _relative_error(
            network(params, data[part]), wanted(data[part])
        ),
    )


def load_table(name: str) -> Any:
    """Friedman's tables, with columns and target standardised.

    "heavy" is the first with a tenth of the targets off by much; "skewed" is the third, whose
    columns differ by powers of ten before.
    """
    from sklearn import datasets as made  # seconds, and few need it

    rng = np.random.default_rng(0)
    if name == "heavy":
        x, y = made.make_friedman1(12_000, noise=1.0, random_state=0)
        y = y + np.where(rng.random(len(y)) < 0.1, 10 * rng.standard_normal(len(y)), 0)
    else:
        x, y = made.make_friedman3(12_000, noise=0.1, random_state=0)
        x = np.log1p(x)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    return split((x.astype(np.float32), y.astype(np.float32)), 2000, 2000)


def table(data: Any, batch: int = 64) -> Functions:
    """A dense network, and the mean squared error in units of the target's variance."""
    columns = data["train"][0].shape[1]
    init = lambda key: layers(key, (columns, 64, 64, 1), 2**0.5)
    network = lambda params, some: apply_layers(params, some, jax.nn.relu)[..., 0]
    loss = lambda params, some: ((network(params, some[0]) - some[1]) ** 2).mean()
    return on_rows(data, init, loss, batch)
