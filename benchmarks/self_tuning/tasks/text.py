"""Texts that every Python ships, and networks that learn to write them character by character.

There is nothing to download, and none of it is kept here. The manual, what ``help()`` shows about
the language, differs a little from one version of Python to the next, and so do the figures.
"""

import argparse
import ast
import inspect
import pathlib
import typing
from pydoc_data import topics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.self_tuning.task import TEST, VALIDATION
from benchmarks.training import Functions, cross_entropy

CONTEXT, WINDOWS, CHARACTERS = 32, 200, 200_000
SOURCES = (argparse, ast, inspect, typing)


def text() -> np.ndarray:
    """The first 200,000 characters of the manual's pages in alphabetical order, as small integers.

    Whatever is not ASCII is left out.
    """
    pages = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    codes = np.frombuffer(pages.encode("ascii", "ignore")[:CHARACTERS], np.uint8)
    return np.unique(codes, return_inverse=True)[1].astype(np.int32)


def load(name: str) -> Any:
    """A text as small integers: the manual ("topics"), or some modules' "source".

    The last tenth is to test with, the one before it to validate with.
    """
    if name == "topics":
        codes = text()
    else:
        files = [pathlib.Path(str(module.__file__)) for module in SOURCES]
        joined = "\n".join(file.read_text(encoding="utf-8") for file in files)
        raw = np.frombuffer(joined.encode("ascii", "ignore")[:300_000], np.uint8)
        codes = np.unique(raw, return_inverse=True)[1].astype(np.int32)
    tenth = len(codes) // 10
    parts = {VALIDATION: codes[-2 * tenth : -tenth], TEST: codes[-tenth:]}
    window = np.arange(CONTEXT + 1)
    rng = np.random.default_rng(0)
    windows = {
        name: part[rng.integers(0, len(part) - CONTEXT, (WINDOWS, 1)) + window]
        for name, part in parts.items()
    }
    # Tracers have no values, so the size of the alphabet is a shape.
    return {"train": codes[: -2 * tenth], "alphabet": np.unique(codes), **windows}


def language_model(data: Any, init: Any, logits_of: Any, batch: int) -> Functions:
    """The next character of windows of a text; ``logits_of`` is a function of (params, windows)."""
    train = data["train"]
    window = np.arange(CONTEXT + 1)
    loss = lambda params, some: cross_entropy(logits_of(params, some[:, :-1]), some[:, 1:])
    return Functions(
        init=init,
        draw=lambda key, steps: jax.random.randint(key, (steps, batch), 0, len(train) - CONTEXT),
        batch=lambda row: train[row[:, None] + window],
        loss=loss,
        measure=lambda params, rows, part: loss(params, data[part]),
    )


def recurrent_network(data: Any, cell: str, batch: int = 16, width: int = 64) -> Functions:
    """One layer of a "gru" or an "lstm" between an embedding and a dense layer."""
    kinds = len(data["alphabet"])
    gates = {"gru": 3, "lstm": 4}[cell]

    def init(key: Any) -> Any:
        keys = iter(jax.random.split(key, 4))
        matrix = lambda m, n, size: size * jax.random.normal(next(keys), (m, n))
        bias = jnp.zeros((gates, width))
        return {
            "characters": matrix(kinds, 32, 0.1),
            "in": matrix(32, gates * width, 32**-0.5),
            "hidden": matrix(width, gates * width, width**-0.5),
            # A gate that remembers at the start, as is customary for an LSTM.
            "bias": (bias.at[1].set(1.0) if cell == "lstm" else bias).reshape(-1),
            "out": {"w": matrix(width, kinds, width**-0.5), "b": jnp.zeros(kinds)},
        }

    def gru(params: Any, h: Any, x: Any) -> tuple[Any, Any]:
        a, b, c = jnp.split(x, 3, -1)
        to_a, to_b, to_c = jnp.split(h @ params["hidden"], 3, -1)
        update, reset = jax.nn.sigmoid(a + to_a), jax.nn.sigmoid(b + to_b)
        h = (1 - update) * h + update * jnp.tanh(c + reset * to_c)
        return h, h

    def lstm(params: Any, state: Any, x: Any) -> tuple[Any, Any]:
        h, c = state
        write, keep, show, new = jnp.split(x + h @ params["hidden"], 4, -1)
        c = jax.nn.sigmoid(keep) * c + jax.nn.sigmoid(write) * jnp.tanh(new)
        h = jax.nn.sigmoid(show) * jnp.tanh(c)
        return (h, c), h

    def logits_of(params: Any, windows: Any) -> Any:
        x = params["characters"][windows.T] @ params["in"] + params["bias"]
        zero = jnp.zeros((len(windows), width))
        step, start = (gru, zero) if cell == "gru" else (lstm, (zero, zero))
        _, h = jax.lax.scan(lambda state, x: step(params, state, x), start, x)
        return h.swapaxes(0, 1) @ params["out"]["w"] + params["out"]["b"]

    return language_model(data, init, logits_of, batch)


def transformer(data: Any, output: str, batch: int = 16, width: int = 48) -> Functions:
    """Two layers of causal attention; the last matrix starts at "zero" or is the embedding's.

    Args:
      data: What `load` gives.
      output: "zero" or "tied".
      batch: Windows in a batch.
      width: Of the residual stream.
    """
    kinds, heads, depth = len(data["alphabet"]), 4, 2

    def init(key: Any) -> Any:
        keys = iter(jax.random.split(key, 2 + 4 * depth))
        matrix = lambda m, n, size: size * jax.random.normal(next(keys), (m, n))
        norm = lambda: {"scale": jnp.ones(width), "shift": jnp.zeros(width)}
        params: dict[str, Any] = {
            "characters": matrix(kinds, width, 0.02 if output == "zero" else width**-0.5),
            "positions": matrix(CONTEXT, width, 0.02),
            "norm": norm(),
        }
        if output == "zero":
            params["out"] = jnp.zeros((width, kinds))
        for number in range(depth):
            params[f"layer{number}"] = {
                "norm1": norm(),
                "norm2": norm(),
                "attention": matrix(width, 3 * width, width**-0.5),
                "attended": matrix(width, width, width**-0.5),
                "up": matrix(width, 4 * width, width**-0.5),
                "down": matrix(4 * width, width, (4 * width) ** -0.5),
            }
        return params

    def logits_of(params: Any, windows: Any) -> Any:
        x = params["characters"][windows] + params["positions"]
        for number in range(depth):
            layer = params[f"layer{number}"]
            h = normalized(layer["norm1"], x) @ layer["attention"]
            x += attention(h, heads) @ layer["attended"]
            x += jax.nn.gelu(normalized(layer["norm2"], x) @ layer["up"]) @ layer["down"]
        out = params["out"] if output == "zero" else params["characters"].T
        return normalized(params["norm"], x) @ out

    return language_model(data, init, logits_of, batch)


def normalized(norm: Any, x: Any) -> Any:
    """Layer normalization."""
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * norm["scale"] + norm["shift"]


def attention(h: Any, heads: int) -> Any:
    """What each place of windows sees of those before it; ``h`` is query, keys and values."""
    count, length, _ = h.shape
    split = lambda a: a.reshape(count, length, heads, -1).transpose(0, 2, 1, 3)
    query, keys, values = map(split, jnp.split(h, 3, axis=-1))
    scores = query @ keys.swapaxes(-1, -2) * query.shape[-1] ** -0.5
    causal = np.tril(np.ones((length, length), bool))
    seen = jax.nn.softmax(jnp.where(causal, scores, -1e9)) @ values
    return seen.transpose(0, 2, 1, 3).reshape(count, length, -1)
