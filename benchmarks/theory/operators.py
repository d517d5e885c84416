"""Corrected estimates of other operators, against their exact values.

    python -m benchmarks.theory.operators

Expected: the mean squared error falls like 1/t with the correction; one batch at a time it does not
fall, and a plain running average of the values is late.
Takes less than 20 s on a 2-core x86-64 CPU without a GPU.
"""

import functools

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import mu2_optax
from benchmarks.theory.report import save, write_csv
from mu2_optax.estimates import corrected_estimate

STEPS, SEEDS, SAMPLES, DIM = 4096, 32, 64, 3
DATA = np.random.default_rng(0).normal(size=(SAMPLES, DIM))
TARGETS = np.random.default_rng(1).normal(size=SAMPLES)


def loss(x, i):
    """A smooth convex loss on one of 64 samples."""
    return jnp.logaddexp(0.0, jnp.asarray(DATA)[i] @ x - jnp.asarray(TARGETS)[i])


GRAD = jax.grad(loss)
VECTOR = jnp.array([1.0, -1.0, 0.5])


def product(v, x, i):
    """The Hessian times v."""
    return jax.jvp(lambda x: GRAD(x, i), (x,), (v,))[1]


OPERATORS = {
    "loss value": loss,
    "gradient of another loss": jax.grad(lambda x, i: jnp.sum((x - jnp.asarray(DATA)[i]) ** 4)),
    "Hessian-vector product": functools.partial(product, VECTOR),
    "full Hessian": jax.hessian(loss),
    "moments of activations": lambda x, i: jnp.stack(
        [jnp.tanh(jnp.asarray(DATA)[i] * x), jnp.tanh(jnp.asarray(DATA)[i] * x) ** 2]
    ),
}
DIAGONAL = "Hessian diagonal (Hutchinson)"


def everything(x, batch):
    """All operators on one sample."""
    key, i = batch
    values = {name: operator(x, i) for name, operator in OPERATORS.items()}
    probe = jax.random.rademacher(key, x.shape, x.dtype)
    return values | {DIAGONAL: probe * product(probe, x, i)}


def exact(x):
    """All operators in the mean over the samples."""
    operators = OPERATORS | {DIAGONAL: lambda x, i: jnp.diag(jax.hessian(loss)(x, i))}
    rows = {k: jax.vmap(op, (None, 0))(x, jnp.arange(SAMPLES)) for k, op in operators.items()}
    return {name: jnp.mean(values, 0) for name, values in rows.items()}


def main() -> None:
    """Measures and draws."""
    tx = mu2_optax.mu2_sgd(
        0.3, mu2_optax.linear_momentum(1), projection=mu2_optax.onto_l2_ball(2.0)
    )
    tracked = corrected_estimate(everything, mu2_optax.polynomial_momentum(0).beta)
    times = np.unique(np.logspace(0, np.log10(STEPS), 30).astype(int))

    def run(key):
        x = jnp.full(DIM, 0.5)

        def step(carry, inputs):
            x, state, estimate, average = carry
            t, key = inputs
            draw, probe = jax.random.split(key)
            i = jax.random.randint(draw, (), 0, SAMPLES)
            value, estimate = tracked.update(estimate, x, (probe, i))
            once = everything(x, (probe, i))
            average = jax.tree.map(lambda m, a: m + (a - m) / t, average, once)
            updates, state = tx.update(GRAD(x, i), state, x, grad_fn=GRAD, batch=i)
            return (optax.apply_updates(x, updates), state, estimate, average), (
                x,
                value,
                once,
                average,
            )

        estimate = tracked.init(x, (key, 0))
        inputs = (jnp.arange(1, STEPS + 1), jax.random.split(key, STEPS))
        trajectory = jax.lax.scan(step, (x, tx.init(x), estimate, estimate.value), inputs)[1]
        xs, *found = jax.tree.map(lambda a: a[times - 1], trajectory)
        truth = jax.lax.map(exact, xs)
        return [
            {
                name: jnp.sum((values[name] - truth[name]).reshape(len(times), -1) ** 2, 1)
                for name in truth
            }
            for values in found
        ]

    keys = jax.random.split(jax.random.key(0), SEEDS)
    found = [
        {name: np.asarray(v).mean(0) for name, v in part.items()}
        for part in jax.jit(jax.vmap(run))(keys)
    ]
    rows = []
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 5.6), sharex=True)
    styles = (
        ("corrected, β = 1/t", "#0072b2"),
        ("one batch", "#d55e00"),
        ("plain running average", "#999999"),
    )
    for axis, name in zip(axes.flat, found[0], strict=True):
        for (label, color), part in zip(styles, found, strict=True):
            axis.loglog(times, part[name], color=color, label=label)
            fit = np.polyfit(np.log(times[10:]), np.log(part[name][10:]), 1)[0]
            row = {"operator": name, "estimate": label, "slope": float(fit)}
            rows.append(row | {f"error_at_{STEPS}": float(part[name][-1])})
        axis.loglog(times, found[0][name][0] / times, "k:", lw=0.8, label="1/t")
        axis.set_title(name, fontsize=9)
    for axis in axes[1]:
        axis.set_xlabel("t")
    for axis in axes[:, 0]:
        axis.set_ylabel("mean squared error")
    axes[0, 0].legend(fontsize=7)
    write_csv("operators", rows)
    for row in rows:
        print("{}, {}: slope {:.2f}, error {:.2g}".format(*row.values()))
    save(figure, "operators")


if __name__ == "__main__":
    main()
