"""Long runs: a million steps of every optimizer, and a sweep of ten thousand cells.

    python -m benchmarks.long_runs --out benchmarks/results/long_runs        # about ten minutes

Each optimizer takes a million steps on least squares, in one process and with one compiled program,
in float32 and once more in float64 on the same samples. The sweep runs ten thousand cells, with a
journal. Both are looked at again and again: the memory of the process, the time, whether anything
was compiled. What float32 explains is a random walk of its roundings, ε √t times the size of x.
"""

import argparse
import functools
import multiprocessing
import pathlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax as m
from benchmarks.files import write_rows
from mu2_optax import lmo
from mu2_optax.sweep import sweep

STEPS, PIECES, DIMENSION = 10**6, 50, 6
BALL = m.onto_l2_ball(2.0)  # around zero; the solution is inside
OPTIMIZERS = {
    "mu2_sgd": lambda: m.mu2_sgd(0.1),
    "mu2_sgd, linear": lambda: m.mu2_sgd(0.1, m.linear_momentum(), projection=BALL),
    "mu2_sgd, measured β": lambda: m.mu2_sgd(
        0.1, m.linear_momentum(beta=m.measured_beta()), projection=BALL
    ),
    "mu2_sgd, lean": lambda: m.mu2_sgd(0.1, m.linear_momentum(), projection=BALL, lean=True),
    "mu2_extra_sgd": lambda: m.mu2_extra_sgd(0.1, projection=BALL, weighted_steps=False),
    "mu2_adam": lambda: m.mu2_adam(1e-3),
    "mu2_adamw": lambda: m.mu2_adamw(1e-3, weight_decay=1e-4),
    "mu2_frank_wolfe": lambda: m.mu2_frank_wolfe(lmo.l2_ball(2.0)),
    "mu2_auto": lambda: m.mu2_auto(),
    "storm": lambda: m.storm(0.1, m.uniform_momentum().beta, projection=BALL),
    "anytime_sgd": lambda: m.anytime_sgd(0.1, m.linear_momentum(), projection=BALL),
    "projected sgd": lambda: m.projected(optax.sgd(0.1), BALL),
    "reject_nonfinite": lambda: m.reject_nonfinite(m.mu2_sgd(0.1)),
    "accumulate_gradients": lambda: m.accumulate_gradients(m.mu2_sgd(0.1), 2),
}
SOLUTION = np.array([0.5, -0.25, 1.0, 0.75, -0.5, 0.25], np.float32)

COMPILES: list[str] = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, duration, **_: (
        COMPILES.append(event) if event.endswith("backend_compile_duration") else None
    )
)


def double_precision() -> Any:
    """A context in which JAX uses float64."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before JAX 0.8

    return enable_x64()


def resident() -> int:
    """The memory of this process, in bytes."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096


def batch_of(count: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """The sample of a step: the same numbers in either precision."""
    draws = jax.random.normal(
        jax.random.fold_in(jax.random.key(0, impl="rbg"), count), (2, DIMENSION + 1), jnp.float32
    )
    features, noise = draws[:, :-1], draws[:, -1]
    targets = features @ SOLUTION + noise
    return features.astype(dtype), targets.astype(dtype)


def grad_fn(x: jax.Array, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    features, targets = batch
    return (features.T @ (features @ x - targets)) / len(targets)


class Piece(NamedTuple):
    """A look at a run.

    Attributes:
      x: The params.
      seconds: The time of this piece.
      memory: The process's memory after it.
      compiles: What was compiled in it.
    """

    x: np.ndarray
    seconds: float
    memory: int
    compiles: int


def run(tx: Any, steps: int, pieces: int, dtype: Any) -> Iterator[Piece]:
    """Steps from zero, in pieces of one compiled scan."""

    def step(carry, _):
        x, state, count = carry
        batch = batch_of(count, dtype)
        updates, state = tx.update(grad_fn(x, batch), state, x, grad_fn=grad_fn, batch=batch)
        return (optax.apply_updates(x, updates), state, count + 1), None

    @functools.partial(jax.jit, donate_argnums=0)
    def piece(carry):
        return jax.lax.scan(step, carry, length=steps // pieces)[0]

    x = jnp.zeros(DIMENSION, dtype)
    carry = (x, tx.init(x), jnp.zeros([], jnp.int32))
    for _ in range(pieces):
        before, start = len(COMPILES), time.perf_counter()
        carry = jax.block_until_ready(piece(carry))
        seconds = time.perf_counter() - start
        yield Piece(np.asarray(carry[0]), seconds, resident(), len(COMPILES) - before)


def long_run(name: str, steps: int = STEPS, pieces: int = PIECES) -> dict[str, Any]:
    """What a run looks like from its beginning to its end."""
    narrow = list(run(OPTIMIZERS[name](), steps, pieces, jnp.float32))
    with double_precision():
        wide = list(run(OPTIMIZERS[name](), steps, pieces, jnp.float64))
    times = steps // pieces * (1 + np.arange(pieces))
    apart = np.array([np.abs(a.x - b.x).max() for a, b in zip(narrow, wide, strict=True)])
    size = np.array([np.abs(b.x).max() for b in wide])
    roundings = apart / (np.finfo(np.float32).eps * np.sqrt(times) * size)
    tenth = max(1, pieces // 10)
    seconds = np.array([piece.seconds for piece in narrow[1:]])
    excess = [float(np.sum((run[-1].x - SOLUTION) ** 2) / 2) for run in (narrow, wide)]
    return {
        "optimizer": name,
        "steps": steps,
        "memory_mb": (narrow[-1].memory - narrow[tenth].memory) / 2**20,
        "compiles": sum(piece.compiles for piece in narrow[1:]),
        "time_ratio": float(np.median(seconds[-tenth:]) / np.median(seconds[:tenth])),
        "apart": float(apart[-1]),
        "roundings": float(roundings.max()),
        "excess_float32": excess[0],
        "excess_float64": excess[1],
    }


# A sweep


def cell(learning_rate, key):
    x = jnp.ones(4)
    for noise in jax.random.normal(key, (3, 4)):
        x = x - learning_rate * (x + noise)
    return {"loss": jnp.sum(x**2)}


def watched(run: Callable[[], Any], done: Callable[[], int], pause: float) -> np.ndarray:
    """Rows of (seconds, cells, bytes) while something runs."""
    rows, over = [], threading.Event()

    def watch() -> None:
        while not over.wait(pause):
            rows.append((time.perf_counter(), done(), resident()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        over.set()
        watcher.join()
    return np.array(rows, dtype=float).reshape(-1, 3)


def long_sweep(strategy: str, side: int = 100, pause: float = 0.005) -> dict[str, Any]:
    """A sweep of ``side`` rates and seeds: memory and time from its beginning to its end."""
    rates = np.logspace(-3, 0, side)
    with tempfile.TemporaryDirectory() as folder:
        journal = pathlib.Path(folder, "journal.jsonl")
        counted = lambda: journal.stat().st_size if journal.exists() else 0
        options = {"strategy": strategy, "progress": False, "resume": journal}
        rows = watched(lambda: sweep(cell, rates, side, **options), counted, pause)
        size = journal.stat().st_size
    rows = rows[(rows[:, 1] > 0) & (rows[:, 1] < size)]
    cells = rows[:, 1] / size * side**2
    early, late = cells < 0.2 * side**2, cells > 0.8 * side**2

    if min(len(np.unique(cells[part])) for part in (early, late)) < 2:
        raise ValueError(
            f"a sweep of {side**2} cells was over before it could be watched twice in its first "
            "and in its last fifth; give it a larger side"
        )

    def per_cell(chosen: np.ndarray) -> float:
        return float(np.ptp(rows[chosen, 0]) / np.ptp(cells[chosen]))

    growth = np.polyfit(cells[cells > 0.1 * side**2], rows[cells > 0.1 * side**2, 2], 1)[0]
    return {
        "strategy": strategy,
        "cells": side**2,
        "bytes_per_cell": float(growth),
        "milliseconds_early": 1e3 * per_cell(early),
        "milliseconds_late": 1e3 * per_cell(late),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--side", type=int, default=100, help="rates, and seeds, of the sweep")
    parser.add_argument("--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS))
    parser.add_argument("--out", type=pathlib.Path, help="folder for steps.csv and sweep.csv")
    args = parser.parse_args()
    runs = []
    for name in args.optimizers:
        runs.append(long_run(name, args.steps))
        print(runs[-1], flush=True)
    sweeps = []
    for strategy in ("loop", "python"):  # each in a process of its own, whose memory is its own
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            sweeps.append(pool.apply(long_sweep, (strategy, args.side)))
    print(*sweeps, sep="\n")
    if args.out:
        write_rows(args.out / "steps.csv", runs, digits=4)
        write_rows(args.out / "sweep.csv", sweeps, digits=4)


if __name__ == "__main__":
    main()
