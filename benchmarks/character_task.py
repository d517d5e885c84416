"""A small transformer that learns to write Python's manual, character by character, as a task.

The text is ``pydoc_data.topics``, what ``help()`` shows about the language: every Python ships it,
under Python's own licence, so that there is nothing to download and none of it is kept here. It
differs a little from one version of Python to the next, and so do the figures.
"""

from pydoc_data import topics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.training import Functions, cross_entropy

CHARACTERS = 200_000
LAYERS, WIDTH, HEADS, CONTEXT = 2, 64, 4, 48
HELD_OUT_WINDOWS = 200


def text() -> np.ndarray:
    """The first 200,000 characters of the manual's pages in alphabetical order, as small integers.

    Whatever is not ASCII is left out.
    """
    pages = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    codes = np.frombuffer(pages.encode("ascii", "ignore")[:CHARACTERS], np.uint8)
    return np.unique(codes, return_inverse=True)[1].astype(np.int32)


def transformer_task(characters: np.ndarray, batch: int) -> Functions:
    """Causal self-attention with normalization before each part; the last tenth is held out."""
    cut = len(characters) * 9 // 10
    known, held_out = jnp.asarray(characters[:cut]), characters[cut:]
    kinds = int(characters.max()) + 1
    window = np.arange(CONTEXT + 1)
    starts = np.random.default_rng(0).integers(0, len(held_out) - CONTEXT, HELD_OUT_WINDOWS)
    test = jnp.asarray(held_out[starts[:, None] + window])

    def init(key: Any) -> Any:
        keys = iter(jax.random.split(key, 3 + 4 * LAYERS))
        matrix = lambda m, n, size: size * jax.random.normal(next(keys), (m, n))
        norm = lambda: {"scale": jnp.ones(WIDTH), "shift": jnp.zeros(WIDTH)}
        params: dict[str, Any] = {
            "characters": matrix(kinds, WIDTH, 0.02),
            "positions": matrix(CONTEXT, WIDTH, 0.02),
            "out": matrix(WIDTH, kinds, WIDTH**-0.5),
            "norm": norm(),
        }
        for number in range(LAYERS):
            params[f"layer{number}"] = {
                "norm1": norm(),
                "norm2": norm(),
                "attention": matrix(WIDTH, 3 * WIDTH, WIDTH**-0.5),
                "attended": matrix(WIDTH, WIDTH, WIDTH**-0.5),
                "up": matrix(WIDTH, 4 * WIDTH, WIDTH**-0.5),
                "up_bias": jnp.zeros(4 * WIDTH),
                "down": matrix(4 * WIDTH, WIDTH, (4 * WIDTH) ** -0.5),
                "down_bias": jnp.zeros(WIDTH),
            }
        return params

    def measure(params: Any, rows: Any, part: str) -> tuple[Any, Any]:
        del rows, part
        logits, labels = logits_of(params, test[:, :-1]), test[:, 1:]
        return (logits.argmax(-1) == labels).mean(), cross_entropy(logits, labels)

    return Functions(
        init=init,
        draw=lambda key, steps: jax.random.randint(key, (steps, batch), 0, cut - CONTEXT),
        batch=lambda row: known[row[:, None] + window],
        loss=lambda params, batch: cross_entropy(logits_of(params, batch[:, :-1]), batch[:, 1:]),
        measure=measure,
    )


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


def logits_of(params: Any, windows: Any) -> Any:
    """What comes next after each character of windows (count, CONTEXT)."""
    x = params["characters"][windows] + params["positions"]
    for number in range(LAYERS):
        layer = params[f"layer{number}"]
        h = normalized(layer["norm1"], x) @ layer["attention"]
        x += attention(h, HEADS) @ layer["attended"]
        h = normalized(layer["norm2"], x) @ layer["up"] + layer["up_bias"]
        x += jax.nn.relu(h) @ layer["down"] + layer["down_bias"]
    return normalized(params["norm"], x) @ params["out"]
