"""Kinds of problems that no other task is of, written after the third rule had been frozen.

All but the mixture of experts and the text are made up here, from a fixed seed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.self_tuning.task import apply_layers, classifier, layers, on_rows, split
from benchmarks.self_tuning.tasks.text import language_model
from benchmarks.training import Functions

HELD_OUT = 2000  # to validate with, and as many to test with
GAIN = 2**0.5  # keeps the size of what passes through a ReLU


def experts(data: Any, batch: int = 64, count: int = 8, width: int = 32) -> Functions:
    """A mixture of small networks on images, each weighted by a gate that sees the image too."""
    pixels = int(np.prod(data["train"][0].shape[1:]))

    def init(key: Any) -> Any:
        gate_key, *keys = jax.random.split(key, count + 1)
        networks = [layers(k, (pixels, width, 10), GAIN) for k in keys]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *networks)
        return {"gate": layers(gate_key, (pixels, count)), "experts": stacked}

    def logits_of(params: Any, images: Any) -> Any:
        flat = images.reshape(len(images), -1)
        share = jax.nn.softmax(apply_layers(params["gate"], flat, jax.nn.relu))
        one = lambda expert: apply_layers(expert, flat, jax.nn.relu)
        return jnp.einsum("be,ebk->bk", share, jax.vmap(one)(params["experts"]))

    return classifier(data, init, logits_of, batch)


def convolutions_over_time(data: Any, batch: int = 16, width: int = 64) -> Functions:
    """Characters of a text, each from the 32 before it, through five residual causal layers."""
    kinds, reaches = len(data["alphabet"]), (1, 2, 4, 8, 16)

    def init(key: Any) -> Any:
        first, last, *keys = jax.random.split(key, len(reaches) + 2)
        return {
            "characters": 0.1 * jax.random.normal(first, (kinds, width)),
            "layers": [layers(k, (2 * width, width, width), GAIN) for k in keys],
            "out": layers(last, (width, kinds)),
        }

    def logits_of(params: Any, windows: Any) -> Any:
        x = params["characters"][windows]
        for reach, layer in zip(reaches, params["layers"], strict=True):
            before = jnp.pad(x, ((0, 0), (reach, 0), (0, 0)))[:, :-reach]
            x += apply_layers(layer, jnp.concatenate([before, x], -1), jax.nn.relu)
        return apply_layers(params["out"], x, jax.nn.relu)

    return language_model(data, init, logits_of, batch)


def load_texture() -> Any:
    """Points of a square and the heights of a texture there: 24 waves of all directions."""
    rng = np.random.default_rng(1)
    waves, shifts = 12 * rng.standard_normal((24, 2)), rng.uniform(0, 2 * np.pi, 24)
    x = rng.uniform(-1, 1, (16_000, 2))
    y = np.cos(x @ waves.T + shifts).sum(1) / 12**0.5  # variance 1
    return split((x.astype(np.float32), y.astype(np.float32)), HELD_OUT, HELD_OUT)


def sines(data: Any, batch: int = 128) -> Functions:
    """A texture by a network with sines between its layers, the first of them of many periods."""

    def init(key: Any) -> Any:
        first, *others = layers(key, (2, 64, 64, 64, 1))
        return [first | {"w": 12 * first["w"]}, *others]

    def loss(params: Any, some: Any) -> Any:
        return ((apply_layers(params, some[0], jnp.sin)[..., 0] - some[1]) ** 2).mean()

    return on_rows(data, init, loss, batch)


def load_pairs() -> Any:
    """A person, two things, and which of the two the person prefers, sometimes by mistake."""
    rng = np.random.default_rng(2)
    person, thing = rng.standard_normal((2, 12_000 + 2 * HELD_OUT, 12))
    other = rng.standard_normal(thing.shape)
    taste, kind = rng.standard_normal((2, 12, 8)) / 12**0.5
    liking = lambda x: (np.tanh(2 * person @ taste) * np.tanh(2 * x @ kind)).sum(1)
    margin = 2 * (liking(thing) - liking(other))
    prefers = rng.random(len(margin)) < 1 / (1 + np.exp(-margin))
    arrays = (person, thing, other, prefers)
    return split(tuple(a.astype(np.float32) for a in arrays), HELD_OUT, HELD_OUT)


def ranking(data: Any, batch: int = 64) -> Functions:
    """Two networks, for persons and for things, whose product says how well they go together."""

    def init(key: Any) -> Any:
        one, two = jax.random.split(key)
        sizes = (12, 64, 16)
        return {"person": layers(one, sizes, GAIN), "thing": layers(two, sizes, GAIN)}

    def loss(params: Any, some: Any) -> Any:
        person, thing, other, prefers = some
        place = apply_layers(params["person"], person, jax.nn.relu)
        place_of = lambda x: apply_layers(params["thing"], x, jax.nn.relu)
        margin = (place * (place_of(thing) - place_of(other))).sum(-1) / 4
        return jax.nn.softplus(jnp.where(prefers > 0, -margin, margin)).mean()

    return on_rows(data, init, loss, batch)


def load_counts() -> Any:
    """Counts, and forty columns whose sizes differ by powers of ten, as they come."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((12_000 + 2 * HELD_OUT, 40))
    y = rng.poisson(np.exp(0.5 + x @ rng.standard_normal(40) / 40**0.5))
    x = x * 10 ** rng.uniform(-1.5, 1.5, 40)
    return split((x.astype(np.float32), y.astype(np.float32)), HELD_OUT, HELD_OUT)


def counts(data: Any, batch: int = 32) -> Functions:
    """Poisson regression: a linear model of the logarithm, judged by half its deviance."""

    def loss(params: Any, some: Any) -> Any:
        x, y = some
        height = x @ params["w"] + params["b"]
        own = jnp.where(y > 0, y * jnp.log(jnp.maximum(y, 1.0)) - y, 0.0)  # of y itself
        return (jnp.exp(height) - y * height + own).mean()

    return on_rows(data, lambda key: {"w": jnp.zeros(40), "b": jnp.zeros(())}, loss, batch)


LENGTH, PERIOD = 20, 0.15  # steps of an orbit, and their length


def _runge_kutta(field: Callable[[Any], Any], x: Any) -> Any:
    a = field(x)
    b = field(x + PERIOD / 2 * a)
    c = field(x + PERIOD / 2 * b)
    return x + PERIOD / 6 * (a + 2 * b + 2 * c + field(x + PERIOD * c))


def load_orbits() -> Any:
    """Where a pendulum with friction is at 21 times, from random beginnings."""
    rng = np.random.default_rng(4)
    pendulum = lambda x: np.stack([x[:, 1], -np.sin(x[:, 0]) - 0.2 * x[:, 1]], 1)
    orbit = [rng.uniform(-2, 2, (4000 + 2 * HELD_OUT, 2))]
    for _ in range(LENGTH):
        orbit.append(_runge_kutta(pendulum, orbit[-1]))
    return split((np.stack(orbit, 1).astype(np.float32),), HELD_OUT, HELD_OUT)


def differential_equation(data: Any, batch: int = 32) -> Functions:
    """A network as the right-hand side of an equation, learnt through its numerical solution."""

    def loss(params: Any, some: Any) -> Any:
        (orbits,) = some
        field = lambda x: apply_layers(params, x, jnp.tanh)
        step = lambda x, _: (found := _runge_kutta(field, x), found)
        _, found = jax.lax.scan(step, orbits[:, 0], None, LENGTH)
        return ((found.swapaxes(0, 1) - orbits[:, 1:]) ** 2).mean()

    return on_rows(data, lambda key: layers(key, (2, 48, 48, 2)), loss, batch)


def load_sets() -> Any:
    """Sets of 16 points, and the largest distance from their middle, less the mean one."""
    rng = np.random.default_rng(5)
    spread = rng.uniform(0.3, 2.0, (12_000 + 2 * HELD_OUT, 1, 1))
    x = spread * rng.standard_normal((len(spread), 16, 3))
    lengths = np.linalg.norm(x - x.mean(1, keepdims=True), axis=-1)
    y = lengths.max(1) - lengths.mean(1)
    y = (y - y.mean()) / y.std()
    return split((x.astype(np.float32), y.astype(np.float32)), HELD_OUT, HELD_OUT)


def sets(data: Any, batch: int = 64) -> Functions:
    """A network for each point, the mean over the set, and a network for that."""

    def init(key: Any) -> Any:
        one, two = jax.random.split(key)
        return {"point": layers(one, (3, 64, 64), GAIN), "set": layers(two, (64, 64, 1), GAIN)}

    def loss(params: Any, some: Any) -> Any:
        x, y = some
        whole = apply_layers(params["point"], x, jax.nn.relu).mean(1)
        return ((apply_layers(params["set"], whole, jax.nn.relu)[..., 0] - y) ** 2).mean()

    return on_rows(data, init, loss, batch)


def load_crescents() -> Any:
    """Points in six dimensions: three crescents, turned against each other."""
    rng = np.random.default_rng(6)
    a = rng.standard_normal((12_000 + 2 * HELD_OUT, 3))
    b = a**2 - 1 + 0.3 * rng.standard_normal(a.shape)
    x = np.concatenate([a, b], 1) @ np.linalg.qr(rng.standard_normal((6, 6)))[0]
    return split(((x / x.std(0)).astype(np.float32),), HELD_OUT, HELD_OUT)


def flow(data: Any, batch: int = 64, depth: int = 6) -> Functions:
    """A density through invertible layers, each moving one half by a network of the other."""

    def init(key: Any) -> Any:
        last = lambda net: [*net[:-1], jax.tree.map(lambda leaf: 0.1 * leaf, net[-1])]
        return [last(layers(k, (3, 64, 6), GAIN)) for k in jax.random.split(key, depth)]

    def loss(params: Any, some: Any) -> Any:
        (x,) = some
        total = 0.5 * 6 * jnp.log(2 * jnp.pi)
        for layer in params:
            kept, moved = jnp.split(x, 2, -1)
            shift, scale = jnp.split(apply_layers(layer, kept, jax.nn.relu), 2, -1)
            scale = 2 * jnp.tanh(scale / 2)
            x = jnp.concatenate([(moved - shift) * jnp.exp(-scale), kept], -1)
            total += scale.sum(-1)
        return (total + 0.5 * (x**2).sum(-1)).mean()

    return on_rows(data, init, loss, batch)


def load_spreads() -> Any:
    """Numbers whose spread, and whose skew, depend on eight columns."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((12_000 + 2 * HELD_OUT, 8))
    noise = rng.gamma(1.5, 1.0, len(x)) - 1.5
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + noise * np.exp(0.7 * x[:, 3])
    return split((x.astype(np.float32), y.astype(np.float32)), HELD_OUT, HELD_OUT)


def quantiles(data: Any, batch: int = 64) -> Functions:
    """Nine quantiles by a network, and their loss, which has a corner at zero."""
    levels = np.linspace(0.1, 0.9, 9, dtype=np.float32)

    def loss(params: Any, some: Any) -> Any:
        x, y = some
        over = y[:, None] - apply_layers(params, x, jax.nn.relu)
        return jnp.maximum(levels * over, (levels - 1) * over).mean()

    return on_rows(data, lambda key: layers(key, (8, 64, 64, 9), GAIN), loss, batch)
