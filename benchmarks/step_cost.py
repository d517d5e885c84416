"""What a step costs beside a step of SGD: time and state.

    python -m benchmarks.step_cost --out benchmarks/results/step_cost

Runs one jitted step of each optimizer in turn, round after round, on logistic regression, on an MLP
of MNIST's shape and on the paper's CNN (float32, batch 64). Prints the median over the rounds of
the time divided by that of the first optimizer in the same round, and the size of the state divided
by that of the params. ``--cpu`` counts the processor time of all threads instead of the time
that passes, which other programs on the machine change less.
"""

import argparse
import csv
import pathlib
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.image_tasks import cnn_task
from mu2_optax.sweep import Data

BATCH = 64
OPTIMIZERS = {
    "optax.sgd": optax.sgd(0.1),
    "optax.adam": optax.adam(1e-3),
    "anytime_sgd": mu2_optax.anytime_sgd(0.1, mu2_optax.fixed_momentum()),
    "storm": mu2_optax.storm(0.1, 0.9),
    "mu2_sgd": mu2_optax.mu2_sgd(0.1),
    "mu2_sgd, β measured": mu2_optax.mu2_sgd(
        0.1, mu2_optax.fixed_momentum(beta=mu2_optax.measured_beta())
    ),
    "mu2_adam": mu2_optax.mu2_adam(1e-3),
    "mu2_extra_sgd": mu2_optax.mu2_extra_sgd(0.1),
    "mu2_auto": mu2_optax.mu2_auto(),
}


class Model(NamedTuple):
    """A loss, its first params and a batch, made when called; and the steps of a round."""

    make: Callable
    steps: int


def dense(*sizes):
    """Dense layers with ReLUs between them."""
    batch = (jax.random.normal(jax.random.key(1), (BATCH, 784)), jnp.arange(BATCH) % 10)
    return loss, initial_params(jax.random.key(0), sizes), batch


def cnn():
    """The paper's CNN."""
    images = np.random.default_rng(0).normal(size=(BATCH, 28, 28)).astype(np.float32)
    labels = np.arange(BATCH, dtype=np.int32) % 10
    task = cnn_task(Data(images, labels, images, labels), BATCH)
    return task.loss, task.init(jax.random.key(0)), task.batch(jnp.arange(BATCH))


def initial_params(key, sizes):
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (n, m)) / jnp.sqrt(n), "b": jnp.zeros(m)}
        for k, n, m in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def loss(params, batch):
    x, labels = batch
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    logits = x @ params[-1]["w"] + params[-1]["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


MODELS = {
    "logistic regression": Model(lambda: dense(784, 10), 100),
    "MLP 784-512-512-10": Model(lambda: dense(784, 512, 512, 10), 20),
    "the paper's CNN": Model(cnn, 2),
}


def make_step(loss, tx):
    grad_fn = jax.grad(loss)
    tx = optax.with_extra_args_support(tx)

    @jax.jit
    def step(params, state, batch):
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state

    return step


def seconds(step, params, state, batch, steps, clock):
    """The time of a few steps, one after another."""
    start = clock()
    for _ in range(steps):
        params, state = step(params, state, batch)
    jax.block_until_ready(params)
    return clock() - start


def size(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def measure(model, optimizers, rounds, clock):
    """Rows of (optimizer, time ratio, state ratio)."""
    loss, params, batch = model.make()
    steps = {name: make_step(loss, OPTIMIZERS[name]) for name in optimizers}
    states = {name: OPTIMIZERS[name].init(params) for name in optimizers}

    def one_round():
        return {
            name: seconds(step, params, states[name], batch, model.steps, clock)
            for name, step in steps.items()
        }

    one_round()  # compiles
    times = [one_round() for _ in range(rounds)]
    first = optimizers[0]
    for name in optimizers:
        ratio = np.median([t[name] / t[first] for t in times])
        yield name, float(ratio), size(states[name]) / size(params)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="rounds to take the median of")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=list(OPTIMIZERS), metavar="NAME"
    )
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    parser.add_argument("--out", type=pathlib.Path, help="folder for results.csv")
    args = parser.parse_args()
    clock = time.process_time if args.cpu else time.perf_counter
    rows = []
    for model in args.models:
        print(f"\n{model}: time of a step beside {args.optimizers[0]}, state beside the params")
        for name, ratio, state in measure(MODELS[model], args.optimizers, args.rounds, clock):
            print(f"  {name:22s} {ratio:6.2f} x   {state:5.2f} x", flush=True)
            rows.append([model, name, f"{ratio:.2f}", f"{state:.2f}"])
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        with open(args.out / "results.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["model", "optimizer", "time_ratio", "state_ratio"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
