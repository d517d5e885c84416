"""The norm of the estimate as a stopping rule, and the same rule on SGD's gradient.

    python -m benchmarks.theory.stopping

Expected: with mu2-SGD the rule fires in every run, earlier for a larger tolerance, where the exact
gradient is small; with the error bar taken into account it fires later, and the exact gradient is
below the tolerance; with SGD's own gradient, at the same tolerances, it does not fire, but for a
chance.
Takes less than a minute on a 2-core x86-64 CPU without a GPU.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

import mu2_optax
from benchmarks.theory.known_problems import logistic
from benchmarks.theory.report import COLORS, save, write_csv
from mu2_optax.stopping import estimate_norm, run_until

MAX_STEPS, SEEDS = 20_000, 32
TOLERANCES = (0.3, 0.2, 0.1, 0.05, 0.025)


def main() -> None:
    """Measures and draws."""
    problem = logistic()
    ball = mu2_optax.onto_l2_ball(problem.radius)
    rate = 1 / (2 * problem.smoothness)
    optimizers = {
        "mu2_sgd": mu2_optax.mu2_sgd(rate, mu2_optax.linear_momentum(1), projection=ball),
        "mu2_sgd, error bar": mu2_optax.mu2_sgd(
            rate,
            mu2_optax.linear_momentum(1, beta=mu2_optax.measured_beta()),
            projection=ball,
        ),
        "sgd": mu2_optax.storm(rate, beta=1.0, projection=ball),  # beta = 1: d is the gradient
    }
    first = jnp.zeros(problem.dim)

    def run(name, tolerance, key):
        tx = optimizers[name]
        bound = lambda state: mu2_optax.error_bar(state).norm_bound
        norm = bound if name.endswith("bar") else estimate_norm

        def step(x, state, z):
            grads = problem.grad_fn(x, z)
            updates, state = tx.update(grads, state, x, grad_fn=problem.grad_fn, batch=z)
            return optax.apply_updates(x, updates), state

        draw = lambda count: problem.sample(jax.random.fold_in(key, count))
        out = run_until(
            step,
            first,
            tx.init(first),
            draw,
            tolerance=tolerance,
            max_steps=MAX_STEPS,
            norm=norm,
        )
        return out.reason, out.steps, jnp.linalg.norm(problem.gradient(out.params)), out.norm

    keys = jax.random.split(jax.random.key(0), SEEDS)
    rows = []
    for name in optimizers:
        one = lambda tolerance, key, name=name: run(name, tolerance, key)
        sweep = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
        reason, steps, gradient, norm = map(np.asarray, sweep(jnp.asarray(TOLERANCES), keys))
        for i, tolerance in enumerate(TOLERANCES):
            rows.append(
                {
                    "method": name,
                    "tolerance": tolerance,
                    "share_fired": float(np.mean(reason[i] == 0)),
                    "median_steps": float(np.median(steps[i])),
                    "mean_exact_gradient": float(gradient[i].mean()),
                    "max_exact_gradient": float(gradient[i].max()),
                    "mean_norm_of_d": float(norm[i].mean()),
                }
            )
            print(
                "{} tolerance {:g}: fired in {:.0%} of runs, median step {:.0f}, "
                "|grad f| mean {:.3g}, max {:.3g}; |d| {:.3g}".format(*rows[-1].values())
            )
    write_csv("stopping", rows)

    figure, axis = plt.subplots(figsize=(6, 3.8))
    for name in ("mu2_sgd", "sgd"):
        tx = optimizers[name]

        def step(carry, t, tx=tx):
            x, state = carry
            z = problem.sample(jax.random.fold_in(jax.random.key(1), t))
            grads = problem.grad_fn(x, z)
            updates, state = tx.update(grads, state, x, grad_fn=problem.grad_fn, batch=z)
            exact = jnp.linalg.norm(problem.gradient(x))
            return (optax.apply_updates(x, updates), state), (estimate_norm(state), exact)

        _, (seen, exact) = jax.lax.scan(step, (first, tx.init(first)), jnp.arange(5000))
        label = "μ²-SGD" if name == "mu2_sgd" else "SGD"
        what = "‖d‖" if name == "mu2_sgd" else "‖g‖"
        axis.loglog(
            np.arange(1, 5001),
            seen,
            color=COLORS[name],
            lw=0.6,
            alpha=0.6,
            label=f"{label}: {what}, what the rule sees",
        )
        axis.loglog(
            np.arange(1, 5001),
            exact,
            color=COLORS[name],
            lw=1.6,
            ls="--",
            label=f"{label}: ‖∇f(x)‖, exact",
        )
    axis.set(xlabel="t", title="one run on the logistic problem", ylim=(3e-3, None))
    axis.legend(fontsize=7)
    save(figure, "stopping")


if __name__ == "__main__":
    main()
