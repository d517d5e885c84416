"""How long a sweep takes, divided by the same cells run one after another.

    python -m benchmarks.sweep_throughput

Both run through functions that are compiled once, and both times leave the compilation out (it is
shown apart). All ways take turns, round after round: the ratio is that of the fastest rounds, and
beside it stands the median of each round's ratio. Batches are made-up numbers of MNIST's shape.
The targets on a CPU, with `auto`: logistic regression (6 rates x 3 seeds x 938 steps) at most 0.35,
the network at most 0.6, and a cell of it at most 1.2 times the same steps called from Python. The
results of a 2-core x86-64 CPU without GPU are in `benchmarks/results/sweep_throughput`; the run
took three minutes.
"""

import argparse
import dataclasses
import json
import os
import platform
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm import tqdm

from benchmarks.experiment import RESULTS
from benchmarks.timing import CORES
from examples.cpu_layers import keep_freed_memory
from mu2_optax import fixed_momentum, mu2_sgd
from mu2_optax.sweep import Data, sweep
from mu2_optax.sweep._command import tasks

RATES = np.logspace(-4, 1, 6)
SEEDS = 3


def make_train(apply, init, images, labels, steps, batch_size=64):
    """SGD on batches that depend on the key alone."""

    def loss_fn(params, batch):
        logits = apply(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    def train(learning_rate, key):
        tx = optax.sgd(learning_rate)
        rows = jax.random.randint(key, (steps, batch_size), 0, len(images))

        def step(carry, row):
            params, state = carry
            loss, grads = jax.value_and_grad(loss_fn)(params, (images[row], labels[row]))
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), loss

        _, losses = jax.lax.scan(step, (init, tx.init(init)), rows)
        return {"loss": losses}

    return train


def logistic(steps, count=60_000):
    """Logistic regression of MNIST's shape."""
    rng = np.random.default_rng(0)
    images = jnp.asarray(rng.normal(size=(count, 784)), jnp.float32)
    labels = jnp.asarray(rng.integers(0, 10, count))
    init = {"w": jnp.zeros((784, 10)), "b": jnp.zeros(10)}
    return make_train(lambda p, x: x @ p["w"] + p["b"], init, images, labels, steps)


def network(steps):
    """The command's ``mnist-cnn`` with μ²-SGD, on made-up images; and its steps from Python.

    Returns:
      The function of a cell, and a function that times the steps of all cells, called one by one.
    """
    rng = np.random.default_rng(0)
    images = rng.normal(size=(256, 28, 28)).astype(np.float32)
    labels = rng.integers(0, 10, 256).astype(np.int32)
    task = dataclasses.replace(tasks.TASKS["mnist-cnn"], steps=steps)
    run = tasks.make_train(task, Data(images, labels, images[:64], labels[:64]))

    def loss(params, batch):
        logits = task.apply(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    grad_fn = jax.grad(loss)

    @jax.jit
    def step(learning_rate, params, state, batch):
        tx = mu2_sgd(learning_rate, fixed_momentum())
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state

    def from_python():
        start = time.perf_counter()
        for rate in np.tile(RATES.astype(np.float32), SEEDS):
            params = task.init(jax.random.key(0), images.shape[1:])
            state = mu2_sgd(rate, fixed_momentum()).init(params)
            for _ in range(steps):
                rows = rng.integers(0, len(images), task.batch_size)
                params, state = step(rate, params, state, (images[rows], labels[rows]))
            jax.block_until_ready(params)
        return time.perf_counter() - start, 0.0

    from_python()
    return lambda learning_rate, key: run(
        mu2_sgd(learning_rate, fixed_momentum()), key
    ), from_python


def one_after_another(train):
    """The same cells through one compiled function; returns a function that times them."""
    one = jax.jit(train)
    cells = [(np.float32(rate), jax.random.key(seed)) for seed in range(SEEDS) for rate in RATES]
    start = time.perf_counter()
    one.lower(*cells[0]).compile()
    compile_seconds = time.perf_counter() - start

    def timed():
        start = time.perf_counter()
        for rate, key in cells:
            jax.device_get(one(rate, key))
        return time.perf_counter() - start, compile_seconds

    timed()
    return timed


def compare(train, ways, rounds, **others):
    """Seconds of each way, a sweep or one of the others: running (fastest round) and compiling."""
    others = {"one after another": one_after_another(train), **others}
    seconds = {name: [] for name in (*others, *ways)}
    for _ in tqdm(range(rounds), unit="round"):
        for name, timed in others.items():
            seconds[name].append(timed())
        for name, options in ways.items():
            info = sweep(train, RATES, SEEDS, progress=False, **options).info
            seconds[name].append((info["run_seconds"], info["compile_seconds"]))
    rows = {}
    reference = min(run for run, _ in seconds["one after another"])
    for name, pairs in seconds.items():
        run = min(run for run, _ in pairs)
        of_round = [p[0] / q[0] for p, q in zip(pairs, seconds["one after another"], strict=True)]
        rows[name] = {
            "seconds": round(run, 3),
            "ratio": round(run / reference, 3),
            "median_ratio": round(float(np.median(of_round)), 3),
            "compile_seconds": round(pairs[0][1], 2),  # later rounds find it in the cache
        }
    return rows


def growth(steps, rounds):
    """Seconds of one vmapped call as the number of lanes (rates of one seed) grows."""
    train = logistic(steps, count=10_000)
    rows = {}
    for lanes in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        rates = np.geomspace(1e-4, 10, lanes)
        runs = [
            sweep(train, rates, 1, strategy="vmap", progress=False).info["run_seconds"]
            for _ in range(rounds)
        ]
        rows[str(lanes)] = {"seconds": round(min(runs), 4)}
        rows[str(lanes)]["per_lane_of_one"] = round(min(runs) / lanes / rows["1"]["seconds"], 3)
    return rows


def report(result):
    """The result as Markdown."""
    lines = [
        f"Machine: {result['machine']}; jax {result['jax']}. Command: `{result['command']}`",
        "",
    ]
    for title, rows in result["grids"].items():
        lines += [title, "", "| | seconds | ratio | median of the rounds | compile, s |"]
        lines.append("|---|---|---|---|---|")
        for name, row in rows.items():
            lines.append(
                f"| {name} | {row['seconds']:.2f} | {row['ratio']:.2f} | "
                f"{row['median_ratio']:.2f} | {row['compile_seconds']:.1f} |"
            )
        lines.append("")
    lines += [f"One vmapped call, {result['growth_steps']} steps of logistic regression", ""]
    lines += ["| lanes | seconds | per lane, of a single lane |", "|---|---|---|"]
    for lanes, row in result["growth"].items():
        lines.append(f"| {lanes} | {row['seconds']:.3f} | {row['per_lane_of_one']:.2f} |")
    return "\n".join(lines) + "\n"


def main():
    """Runs the comparison, prints it, and writes it."""
    parser = argparse.ArgumentParser(description="Throughput of the sweep strategies.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=938, help="of logistic regression")
    parser.add_argument("--cnn-steps", type=int, default=40)
    parser.add_argument("--growth-steps", type=int, default=100)
    folder = RESULTS / "sweep_throughput"
    parser.add_argument("--out", type=Path, default=folder, help="for result.json and result.md")
    options = parser.parse_args()
    keep_freed_memory()
    # XLA reads this when the first array is made.
    os.environ.setdefault("XLA_FLAGS", f"--xla_force_host_platform_device_count={CORES}")
    cache = tempfile.TemporaryDirectory()
    jax.config.update("jax_compilation_cache_dir", cache.name)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    ways = {
        "auto": {},
        "vmap": {"strategy": "vmap"},
        "map": {"strategy": "map"},
        "map, chunks of 6": {"strategy": "map", "chunk_size": 6},
        "loop": {"strategy": "loop"},
        f"vmap, {CORES} host devices": {"strategy": "vmap", "devices": jax.devices()},
        f"loop, {CORES} host devices": {"strategy": "loop", "devices": jax.devices()},
    }
    cnn_ways = {name: way for name, way in ways.items() if name in ("auto", "vmap", "loop")}
    cell, from_python = network(options.cnn_steps)
    title = "{}: 6 rates x 3 seeds x {} steps"
    result = {
        "machine": f"{CORES}-core {platform.machine()} {jax.default_backend().upper()}",
        "jax": jax.__version__,
        "command": "python -m benchmarks.sweep_throughput "
        f"--rounds {options.rounds} --steps {options.steps} --cnn-steps {options.cnn_steps} "
        f"--growth-steps {options.growth_steps}",
        "grids": {
            title.format("Logistic regression", options.steps): compare(
                logistic(options.steps), ways, options.rounds
            ),
            title.format("The command's mnist-cnn", options.cnn_steps): compare(
                cell, cnn_ways, options.rounds, **{"steps from Python": from_python}
            ),
        },
        "growth_steps": options.growth_steps,
        "growth": growth(options.growth_steps, options.rounds),
    }
    print(report(result))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.out / "result.md").write_text(report(result))


if __name__ == "__main__":
    main()
