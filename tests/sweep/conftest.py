import gzip
import os
import struct
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

COMPILES: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: (
        COMPILES.append(event) if event.endswith("backend_compile_duration") else None
    )
)


@pytest.fixture
def compiles():
    """The compilations since the test began."""
    COMPILES.clear()
    return COMPILES


def make_logistic(counter: list[int] | None = None, steps=12):
    """Logistic regression on made-up data: the batches depend on the key, the rest on the rate."""
    rng = np.random.default_rng(0)
    xs = jnp.asarray(rng.normal(size=(128, 6)), jnp.float32)
    ys = jnp.asarray(rng.integers(0, 3, 128))

    def loss_fn(w, batch):
        logits = batch[0] @ w
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    def train(learning_rate, key):
        if counter is not None:
            counter.append(1)
        tx = optax.sgd(learning_rate)
        w = 0.3 * jnp.sin(jnp.arange(18.0)).reshape(6, 3)  # no random numbers, long to compile
        rows = (jax.random.bits(key, (steps, 16)) % len(xs)).astype(jnp.int32)

        def step(carry, row):
            w, state = carry
            loss, grads = jax.value_and_grad(loss_fn)(w, (xs[row], ys[row]))
            updates, state = tx.update(grads, state, w)
            return (optax.apply_updates(w, updates), state), loss

        (w, _), curve = jax.lax.scan(step, (w, tx.init(w)), rows)
        return {"loss": loss_fn(w, (xs, ys)), "curve": curve}

    return train


def environment() -> dict[str, str]:
    """An environment for subprocesses that finds the package from any folder."""
    env = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "MU2_OPTAX_DATA")}
    root = str(Path(__file__).resolve().parents[2])
    return env | {"PYTHONPATH": root, "JAX_PLATFORMS": "cpu"}


PATIENCE = 1200  # seconds that a process may take on a very busy machine


def start(*arguments: str, cwd: Path) -> subprocess.Popen:
    """Starts ``mu2-sweep``, which is installed beside Python, with the arguments."""
    return subprocess.Popen(
        [Path(sys.executable).with_name("mu2-sweep"), *arguments],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str, cwd: Path) -> tuple[int, str, str]:
    """Runs it to the end: exit status, stdout, stderr."""
    process = start(*arguments, cwd=cwd)
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, out, err


def write_idx(path, array, zipped=True):
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    content = header + array.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(content) if zipped else content)


def write_mnist(folder, zipped=True):
    """Four tiny files in MNIST's format; returns the images and labels."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in (("train", 70), ("t10k", 10)):
        arrays[f"{part}-images-idx3"] = rng.integers(0, 256, (count, 28, 28))
        arrays[f"{part}-labels-idx1"] = np.arange(count) % 10
    for name, array in arrays.items():
        write_idx(folder / f"{name}-ubyte{'.gz' if zipped else ''}", array, zipped)
    return list(arrays.values())
