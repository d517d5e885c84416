"""A file that is cut off at a random place, or in which a random bit has flipped, is read back.

It survives if it is refused with its name, if what is damaged is dropped and said, or if what is
read is what was written all the same. It is lost if anything else is read without a word. Formats
that have no checksum of their own are tried with and without what the library adds.
"""

import gzip
import logging
import pathlib
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from flax import serialization

import mu2_optax
from benchmarks.faults.count import LOST, Count, count
from mu2_optax import checkpoint
from mu2_optax.sweep import load_mnist, load_results, save_results, sweep

RATES, SEEDS = np.logspace(-3, 0, 6), 3
SAME, REFUSED, UNNAMED, SAID = "the same", "refused by name", "refused", "dropped and said"


def cell(learning_rate, key):
    x = learning_rate * jax.random.normal(key, (3,))
    return {"loss": jnp.sum(x**2), "curve": x}


def bits(tree: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def damage(path: pathlib.Path, rng: random.Random) -> None:
    """Cuts a file off, or flips one of its bits."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(len(content))
    if rng.random() < 0.5:
        del content[place:]
    else:
        content[place] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def trial(folder: pathlib.Path, read: Callable, expected: list[bytes], rng: random.Random) -> str:
    """Damages one of the files of a folder and reads them; how that ended."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and f.stat().st_size)
    damaged = rng.choices(files, [f.stat().st_size ** 0.5 for f in files])[0]
    damage(damaged, rng)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            found = bits(read(folder))
        except Exception as error:
            return REFUSED if str(folder) in str(error) else UNNAMED
    if found != expected:
        return LOST
    return SAID if any(str(damaged) in str(warning.message) for warning in said) else SAME


def trials(what: str, make: Callable, read: Callable, number: int) -> Count:
    """Damages a fresh copy of what ``make`` puts into a folder, so many times."""
    rng, outcomes = random.Random(what), []
    with tempfile.TemporaryDirectory() as root:
        whole = pathlib.Path(root, "whole")
        whole.mkdir()
        make(whole)
        expected = bits(read(whole))
        for index in range(number):
            copy = pathlib.Path(root, f"copy{index}")
            shutil.copytree(whole, copy)
            outcomes.append(trial(copy, read, expected, rng))
            shutil.rmtree(copy)
    return count("damaged file", what, outcomes)


# A sweep's files


def swept(folder: pathlib.Path) -> Any:
    options = {"strategy": "loop", "progress": False, "resume": folder / "journal.jsonl"}
    return sweep(cell, RATES, SEEDS, **options).metrics


def saved(name: str) -> Callable:
    return lambda folder: save_results(sweep(cell, RATES, SEEDS, progress=False), folder / name)


def saved_alone(folder: pathlib.Path) -> None:
    saved("result.csv")(folder)
    (folder / "result.csv.sha256").unlink()


def loaded(name: str) -> Callable:
    def load(folder: pathlib.Path) -> Any:
        result = load_results(folder / name)[""]
        return result.metrics, result.axes, result.seeds, result.finished

    return load


# Checkpoints


def train_state() -> Any:
    params = {"w": jax.random.normal(jax.random.key(0), (64, 64)), "b": jnp.ones(64)}
    return {"params": params, "state": mu2_optax.mu2_sgd(0.1).init(params)}


def sealed_state() -> Any:
    return checkpoint.seal(train_state())


def to_bytes(state: Callable) -> Callable:
    return lambda folder: (folder / "state").write_bytes(serialization.to_bytes(state()))


def from_bytes(state: Callable) -> Callable:
    def read(folder: pathlib.Path) -> Any:
        path = folder / "state"
        return checkpoint.from_bytes(state(), path.read_bytes(), path)

    return read


def to_orbax(state: Callable) -> Callable:
    def make(folder: pathlib.Path) -> None:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / "state", state())

    return make


def from_orbax(state: Callable) -> Callable:
    def read(folder: pathlib.Path) -> Any:
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(folder / "state", jax.eval_shape(state))

    return read


def unsealed(read: Callable) -> Callable:
    return lambda folder: checkpoint.unseal(read(folder), folder)


# Data


def idx(array: np.ndarray) -> bytes:
    """An array of bytes as an IDX file."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return head + array.astype(np.uint8).tobytes()


def images(suffix: str) -> Callable:
    compress = gzip.compress if suffix else bytes

    def make(folder: pathlib.Path) -> None:
        rng = np.random.default_rng(0)
        for part, size in (("train", 20), ("t10k", 10)):
            x, y = rng.integers(0, 256, (size, 28, 28)), rng.integers(0, 10, size)
            (folder / f"{part}-images-idx3-ubyte{suffix}").write_bytes(compress(idx(x)))
            (folder / f"{part}-labels-idx1-ubyte{suffix}").write_bytes(compress(idx(y)))

    return make


KINDS = {
    "journal": (lambda folder: swept(folder), swept),
    "results, JSON": (saved("result.json"), loaded("result.json")),
    "results, CSV": (saved("result.csv"), loaded("result.csv")),
    "Flax's bytes, sealed": (to_bytes(sealed_state), unsealed(from_bytes(sealed_state))),
    "Orbax, sealed": (to_orbax(sealed_state), unsealed(from_orbax(sealed_state))),
    "IDX, gzipped": (images(".gz"), load_mnist),
    "results, CSV without its .sha256": (saved_alone, loaded("result.csv")),
    "Flax's bytes": (to_bytes(train_state), from_bytes(train_state)),
    "Orbax": (to_orbax(train_state), from_orbax(train_state)),
    "IDX, plain": (images(""), load_mnist),
}


def measure(number: int) -> list[Count]:
    """Every kind of file that is read back."""
    logging.disable(logging.CRITICAL)
    return [trials(what, make, read, number) for what, (make, read) in KINDS.items()]
