"""The programs that are killed: each goes on where it was, and leaves what came out of it.

``orbax`` and ``bytes`` train, with checkpoints by Orbax or in Flax's bytes; ``sweep`` is a sweep
with a journal. Each checkpoint is sealed, and there is one after every step, so that most of the
time goes into writing them. In the end ``final`` holds the train state, or the sweep's metrics.
"""

import functools
import os
import pathlib
from collections.abc import Callable
from multiprocessing.connection import Connection

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from mu2_optax.sweep import save_results, sweep

WIDTH = 128
RATES, SEEDS, CELL_STEPS = 30, 5, 2000
TX = mu2_optax.mu2_sgd(0.05, mu2_optax.linear_momentum())


def loss(params, batch):
    x, y = batch
    return jnp.mean((jnp.tanh(x @ params["hidden"]) @ params["out"] - y) ** 2)


def first_state():
    """Step, params and the optimizer's state; about 200 kB."""
    keys = jax.random.split(jax.random.key(0))
    params = {
        "hidden": jax.random.normal(keys[0], (96, WIDTH)) / 10,
        "out": jax.random.normal(keys[1], (WIDTH, 4)) / 10,
    }
    return {"step": jnp.zeros([], jnp.int32), "params": params, "state": TX.init(params)}


@functools.partial(jax.jit, donate_argnums=0)
def step(train):
    """A step whose batch is a function of its number."""
    keys = jax.random.split(jax.random.fold_in(jax.random.key(1), train["step"]))
    batch = jax.random.normal(keys[0], (16, 96)), jax.random.normal(keys[1], (16, 4))
    grad_fn = jax.grad(loss)
    params = train["params"]
    grads = grad_fn(params, batch)
    updates, state = TX.update(grads, train["state"], params, grad_fn=grad_fn, batch=batch)
    return {
        "step": train["step"] + 1,
        "params": optax.apply_updates(params, updates),
        "state": state,
    }


def write(path: pathlib.Path, content: bytes) -> None:
    """Writes all or nothing."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error


class BytesStore:
    """One file, which is replaced."""

    def __init__(self, folder: pathlib.Path):
        self.path = folder / "bytes"

    def save(self, train) -> None:
        from flax import serialization

        from mu2_optax import checkpoint

        write(self.path, serialization.to_bytes(checkpoint.seal(train)))

    def restore(self):
        from mu2_optax import checkpoint

        if not self.path.exists():
            return first_state()
        target = checkpoint.seal(first_state())
        sealed = checkpoint.from_bytes(target, self.path.read_bytes(), self.path)
        return checkpoint.unseal(sealed, self.path)

    def close(self) -> None:
        pass


class OrbaxStore:
    """The last two checkpoints, written in the background."""

    def __init__(self, folder: pathlib.Path):
        import orbax.checkpoint as ocp

        self.ocp, self.folder = ocp, folder / "orbax"
        options = ocp.CheckpointManagerOptions(max_to_keep=2)
        self.manager = ocp.CheckpointManager(self.folder, options=options)

    def save(self, train) -> None:
        from mu2_optax import checkpoint

        args = self.ocp.args.StandardSave(checkpoint.seal(train))
        self.manager.save(int(train["step"]), args=args)

    def restore(self):
        from mu2_optax import checkpoint

        latest = self.manager.latest_step()
        if latest is None:
            return first_state()
        target = jax.eval_shape(lambda: checkpoint.seal(first_state()))
        args = self.ocp.args.StandardRestore(target)
        return checkpoint.unseal(self.manager.restore(latest, args=args), self.folder)

    def close(self) -> None:
        self.manager.close()


def train(make_store: Callable, steps: int, folder: pathlib.Path, done: Callable) -> bytes:
    store = make_store(folder)
    state = store.restore()
    while int(state["step"]) < steps:
        state = step(state)
        store.save(state)
        done()
    store.close()
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state))


def cell(learning_rate, key):
    tx = mu2_optax.mu2_sgd(learning_rate)
    grad_fn = lambda x, noise: x - noise

    def one(carry, noise):
        x, state = carry
        updates, state = tx.update(grad_fn(x, noise), state, x, grad_fn=grad_fn, batch=noise)
        return (optax.apply_updates(x, updates), state), None

    x = jnp.ones(8)
    noises = jax.random.normal(key, (CELL_STEPS, 8))
    (x, _), _ = jax.lax.scan(one, (x, tx.init(x)), noises)
    return {"loss": jnp.sum(x**2), "x": x}


def run_sweep(folder: pathlib.Path, done: Callable) -> bytes:
    del done  # its journal tells
    rates, journal = np.logspace(-3, 0, RATES), folder / "journal.jsonl"
    result = sweep(cell, rates, SEEDS, strategy="loop", progress=False, resume=journal)
    save_results(result, folder / "result.json")
    return b"".join(result.metrics[name].tobytes() for name in sorted(result.metrics))


PROGRAMS = {
    "orbax": functools.partial(train, OrbaxStore, 25),
    "bytes": functools.partial(train, BytesStore, 120),
    "sweep": run_sweep,
}


def run(name: str, folder: pathlib.Path, progress: Connection) -> None:
    """Runs a program to its end; sends a word after each step."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # Orbax says how long it waited
    write(folder / "final", PROGRAMS[name](folder, lambda: progress.send(None)))
