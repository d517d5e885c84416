"""Embeddings, most of whose rows are rarely seen: factorization, and words in their context."""

import re
from pydoc_data import topics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.self_tuning.task import on_rows, split
from benchmarks.training import Functions

USERS, ITEMS, RANK = 1000, 500, 8
WORDS, DIMENSIONS, NEGATIVES, REACH = 1000, 32, 5, 3


def load_ratings() -> Any:
    """Noisy entries of a matrix of rank 8, whose rows and columns are seen as Zipf's law says."""
    rng = np.random.default_rng(0)
    often = lambda count: (p := 1 / np.arange(1, count + 1)) / p.sum()
    user = rng.choice(USERS, 60_000, p=often(USERS)).astype(np.int32)
    item = rng.choice(ITEMS, 60_000, p=often(ITEMS)).astype(np.int32)
    left, right = rng.standard_normal((USERS, RANK)), rng.standard_normal((ITEMS, RANK))
    rating = (left[user] * right[item]).sum(-1) / RANK**0.5 + 0.1 * rng.standard_normal(60_000)
    return split((user, item, rating.astype(np.float32)), 5000, 5000)


def factorization(data: Any, batch: int = 256, rank: int = 2 * RANK) -> Functions:
    """Finds two factors of a matrix from some entries."""

    def init(key: Any) -> Any:
        left, right = jax.random.split(key)
        return {
            "users": 0.1 * jax.random.normal(left, (USERS, rank)),
            "items": 0.1 * jax.random.normal(right, (ITEMS, rank)),
        }

    def loss(params: Any, some: Any) -> Any:
        user, item, rating = some
        return (((params["users"][user] * params["items"][item]).sum(-1) - rating) ** 2).mean()

    return on_rows(data, init, loss, batch)


def load_words() -> Any:
    """Pairs of words of Python's manual that stand near each other, and random words to compare."""
    pages = "\n".join(topics.topics[name] for name in sorted(topics.topics))
    words, codes, counts = np.unique(
        re.findall("[a-z_]+", pages.lower()), return_inverse=True, return_counts=True
    )
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(words), np.int32)
    place[order] = np.arange(len(words))
    text = place[codes]
    text = text[text < WORDS]
    rng = np.random.default_rng(0)
    centre = np.arange(REACH, len(text) - REACH)
    # Blocks of text are held out, not pairs, which would share their words with others.
    cut = [len(centre) * 8 // 10, len(centre) * 9 // 10]
    often = np.bincount(text, minlength=WORDS) ** 0.75

    def pairs(centre: np.ndarray, count: int) -> tuple[np.ndarray, ...]:
        centre = rng.choice(centre, count)
        offset = rng.integers(1, REACH + 1, count) * rng.choice((-1, 1), count)
        others = rng.choice(WORDS, (count, NEGATIVES), p=often / often.sum())
        return text[centre], text[centre + offset], others.astype(np.int32)

    train, validation, test = np.split(centre, cut)
    return {
        "train": pairs(train, 200_000),
        "validation": pairs(validation, 5000),
        "test": pairs(test, 5000),
    }


def skip_gram(data: Any, batch: int = 128) -> Functions:
    """Tells a neighbour of a word from random words."""

    def init(key: Any) -> Any:
        words = jax.random.uniform(key, (WORDS, DIMENSIONS), minval=-0.5, maxval=0.5)
        return {"words": words / DIMENSIONS, "contexts": jnp.zeros((WORDS, DIMENSIONS))}

    def loss(params: Any, some: Any) -> Any:
        word, near, others = some
        candidates = params["contexts"][jnp.concatenate([near[:, None], others], -1)]
        logits = jnp.einsum("bd,bkd->bk", params["words"][word], candidates)
        labels = jnp.zeros_like(logits).at[:, 0].set(1.0)
        return optax.sigmoid_binary_cross_entropy(logits, labels).sum(-1).mean()

    return on_rows(data, init, loss, batch)
