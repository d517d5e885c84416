"""The error bar where its assumption fails: batches that depend on one another, and heavy tails.

    python -m benchmarks.theory.dependent_batches

Gradients x - z at a point that moves little (μ²-SGD with linear momenta, β measured, rate 0.01, 10
dimensions), with z independent, autoregressive, sorted into ten classes, or of a heavy tail.
Estimated over true squared error of d, medians over the seeds. Expected: about 1 where samples are
independent, (1 - ρ)/(1 + ρ) and less where they are not. Takes about a minute on a 2-core x86-64
CPU without a GPU.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.theory.report import write_csv

STEPS, SEEDS, DIM, TIMES = 3000, 64, 10, (100, 300, 1000, 3000)


def autoregressive(correlation: float) -> Callable[[jax.Array], jax.Array]:
    """Samples of variance 1, each correlated with the one before."""

    def draw(key: jax.Array) -> jax.Array:
        fresh = jax.random.normal(key, (STEPS, DIM))

        def step(z: jax.Array, new: jax.Array) -> tuple[jax.Array, jax.Array]:
            z = correlation * z + (1 - correlation**2) ** 0.5 * new
            return z, z

        return jax.lax.scan(step, fresh[0], fresh)[1]

    return draw


def by_class(key: jax.Array) -> jax.Array:
    """The samples of one of ten classes after those of another; the classes differ by 1."""
    centers, own = jax.random.split(key)
    means = jax.random.normal(centers, (10, DIM))
    which = jnp.arange(STEPS) * 10 // STEPS
    return (means - means.mean(0))[which] + jax.random.normal(own, (STEPS, DIM))


CASES = {
    "independent": autoregressive(0.0),
    "autoregressive, correlation 0.5": autoregressive(0.5),
    "autoregressive, correlation 0.9": autoregressive(0.9),
    "sorted by class": by_class,
    "Student's t with 2.1 degrees": lambda key: jax.random.t(key, 2.1, (STEPS, DIM)),
}


def ratios(draw: Callable[[jax.Array], jax.Array], key: jax.Array) -> jax.Array:
    """Estimated over true error after each step."""
    grad_fn = lambda x, z: x - z
    tx = mu2_optax.mu2_sgd(0.01, mu2_optax.linear_momentum(beta=mu2_optax.measured_beta()))

    def step(carry: tuple, z: jax.Array) -> tuple[tuple, jax.Array]:
        x, state = carry
        updates, state = tx.update(grad_fn(x, z), state, x, grad_fn=grad_fn, batch=z)
        true = jnp.sum((state.d - x) ** 2)  # the mean of z is 0
        return (optax.apply_updates(x, updates), state), mu2_optax.error_bar(state).error / true

    x = jnp.ones(DIM)
    return jax.lax.scan(step, (x, tx.init(x)), draw(key))[1]


def main() -> None:
    """Measures."""
    rows = []
    for name, draw in CASES.items():
        keys = jax.random.split(jax.random.key(0), SEEDS)
        found = np.asarray(jax.jit(jax.vmap(lambda key, draw=draw: ratios(draw, key)))(keys))
        median = np.median(found, axis=0)
        rows.append({"batches": name} | {f"at_{t}": float(median[t - 1]) for t in TIMES})
        print(rows[-1])
    write_csv("dependent_batches", rows)


if __name__ == "__main__":
    main()
