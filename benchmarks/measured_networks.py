"""β measured on a network: where a small error of d is not yet a good step.

    python -m benchmarks.measured_networks --data mnist

An MLP 784-256-256-10, one epoch of batches of 64, three seeds, rates from 0.01 to 10; a fixed γ of
0.1 (the paper's choice for networks) and linear momenta; β as in the paper, β measured, and β = 1,
the plain gradient. It writes ``results.json`` and ``results.csv`` into
``benchmarks/results/measured_networks_<data>``, and prints the accuracies.
"""

import argparse
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

import mu2_optax
from benchmarks import experiment
from examples import data as datasets
from mu2_optax.sweep import Data, sweep

BATCH, STEPS = 64, 938
RATES = (0.01, 0.1, 1.0, 10.0)
MOMENTA = {
    "fixed γ, β = 0.9": mu2_optax.fixed_momentum(),
    "fixed γ, β measured": mu2_optax.fixed_momentum(beta=mu2_optax.measured_beta()),
    "fixed γ, no momentum of d": mu2_optax.fixed_momentum(beta=1.0),
    "linear γ, β = 1/t": mu2_optax.linear_momentum(),
    "linear γ, β measured": mu2_optax.linear_momentum(beta=mu2_optax.measured_beta()),
    "linear γ, no momentum of d": mu2_optax.linear_momentum(beta=1.0),
}


def make_train(
    data: Data, momentum: mu2_optax.DoubleMomentum, steps: int
) -> Callable[..., dict[str, Any]]:
    """Training of the MLP, as a function of a rate and a key."""
    train_x, train_y, test_x, test_y = (jnp.asarray(array) for array in data)
    train_x, test_x = (x.reshape(len(x), -1) for x in (train_x, test_x))
    sizes = (train_x.shape[1], 256, 256, 10)

    def forward(params: Any, x: Any) -> Any:
        for layer in params[:-1]:
            x = jax.nn.relu(x @ layer["w"] + layer["b"])
        return x @ params[-1]["w"] + params[-1]["b"]

    def loss_fn(params: Any, batch: Any) -> Any:
        logits = forward(params, batch[0])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[1]).mean()

    grad_fn = jax.grad(loss_fn)

    def train(learning_rate: Any, key: Any) -> dict[str, Any]:
        tx = mu2_optax.mu2_sgd(learning_rate, momentum)
        start, order = jax.random.split(key)
        params = [
            {
                "w": jax.random.uniform(k, (m, n), minval=-(m**-0.5), maxval=m**-0.5),
                "b": jnp.zeros(n),
            }
            for k, m, n in zip(jax.random.split(start, 3), sizes, sizes[1:], strict=False)
        ]
        epochs = -(-steps * BATCH // len(train_y))
        keys = jax.random.split(order, epochs)
        orders = jax.vmap(lambda k: jax.random.permutation(k, len(train_y)))(keys)

        def step(carry: Any, rows: Any) -> tuple[Any, None]:
            params, state = carry
            batch = (train_x[rows], train_y[rows])
            grads = grad_fn(params, batch)
            updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
            return (optax.apply_updates(params, updates), state), None

        rows = orders.reshape(-1)[: steps * BATCH].reshape(steps, BATCH)
        (params, _), _ = jax.lax.scan(step, (params, tx.init(params)), rows)
        logits = forward(params, test_x)
        hits = (logits.argmax(axis=-1) == test_y).mean()
        return {
            "test_accuracy": jnp.where(jnp.isfinite(logits).all(), hits, jnp.nan),
            "test_loss": loss_fn(params, (test_x, test_y)),
        }

    return train


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    experiment.add_arguments(parser, data="mnist", rates=RATES, optimizers=())
    args = parser.parse_args()
    name = args.data.replace("-", "_")
    args.out = args.out or experiment.RESULTS / f"measured_networks_{name}"
    data = datasets.load_or_exit(parser, args)
    results = []
    for number, (label, momentum) in enumerate(MOMENTA.items()):
        train = make_train(data, momentum, args.steps or STEPS)
        journal = args.out / "journal" / f"{number}.jsonl"
        result = sweep(train, args.lrs, args.seeds, strategy="loop", resume=journal, label=label)
        results.append(result)
        means = result.final("test_accuracy").mean(axis=1)
        print(f"{label:28}", *(f"{value:.3f}" for value in means), flush=True)
    experiment.save(results, args.out, "benchmarks.measured_networks")


if __name__ == "__main__":
    main()
