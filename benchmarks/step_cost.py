"""What a step costs beside a step of SGD: time and state.

    python -m benchmarks.step_cost --out benchmarks/results/step_cost

Runs one jitted step of each optimizer in turn, round after round, on logistic regression and on an
MLP of MNIST's shape (float32, batch 64). Prints the median over the rounds of the time divided by
that of plain SGD in the same round, and the size of the state divided by that of the params. Takes
about a minute on two CPU cores.
"""

import argparse
import csv
import pathlib
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax

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
MODELS = {"logistic regression": (784, 10), "MLP 784-512-512-10": (784, 512, 512, 10)}
STEPS = 20


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


def make_step(tx):
    grad_fn = jax.grad(loss)
    tx = optax.with_extra_args_support(tx)

    @jax.jit
    def step(params, state, batch):
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state

    return step


def seconds(step, params, state, batch):
    """The time of a few steps, one after another."""
    start = time.perf_counter()
    for _ in range(STEPS):
        params, state = step(params, state, batch)
    jax.block_until_ready(params)
    return time.perf_counter() - start


def size(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def measure(sizes, rounds):
    """Rows of (optimizer, time ratio, state ratio)."""
    params = initial_params(jax.random.key(0), sizes)
    batch = (jax.random.normal(jax.random.key(1), (64, 784)), jnp.arange(64) % 10)
    steps = {name: make_step(tx) for name, tx in OPTIMIZERS.items()}
    states = {name: tx.init(params) for name, tx in OPTIMIZERS.items()}
    for name, step in steps.items():
        seconds(step, params, states[name], batch)  # compile
    times = [
        {name: seconds(step, params, states[name], batch) for name, step in steps.items()}
        for _ in range(rounds)
    ]
    for name in OPTIMIZERS:
        ratio = np.median([t[name] / t["optax.sgd"] for t in times])
        yield name, float(ratio), size(states[name]) / size(params)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="rounds to take the median of")
    parser.add_argument("--out", type=pathlib.Path, help="folder for results.csv")
    args = parser.parse_args()
    rows = []
    for model, sizes in MODELS.items():
        print(f"\n{model}: time of a step and size of the state, beside optax.sgd and the params")
        for name, ratio, state in measure(sizes, args.rounds):
            print(f"  {name:22s} {ratio:6.2f} x   {state:5.2f} x")
            rows.append([model, name, f"{ratio:.2f}", f"{state:.2f}"])
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        with open(args.out / "results.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["model", "optimizer", "time_ratio", "state_ratio"])
            writer.writerows(rows)


if __name__ == "__main__":
    main()
