"""Uniformly small errors: batch sizes ceil(T/t) against one sample a step.

    python -m benchmarks.theory.dynamic_batches

Expected: with b_t = ceil(T/t) the mean squared error of d is flat over t and below sigma_tilde^2/T
at every t, for about T log T samples; with one sample a step it falls like 1/t.
Takes less than a minute on a 2-core x86-64 CPU without a GPU.
"""

import altair as alt
import jax
import jax.numpy as jnp
import numpy as np

import mu2_optax
from benchmarks.pictures import BLUE, ORANGE, axis, lines
from benchmarks.theory.known_problems import least_squares
from benchmarks.theory.measured_runs import rate, variance
from benchmarks.theory.report import points, save, write_csv
from mu2_optax import theory

STEPS, SEEDS = (256, 1024), 64


def main() -> None:
    """Measures, checks and draws."""
    problem = least_squares()
    ball = mu2_optax.onto_l2_ball(problem.radius)
    rows, drawn, looks = [], [], {}
    for steps, color in zip(STEPS, (BLUE, ORANGE), strict=True):
        tx = mu2_optax.mu2_sgd(
            100 * rate(problem, "mu2_sgd", steps),
            mu2_optax.linear_momentum(1),
            projection=ball,
            weighted_steps=True,
        )

        def run(key, size, tx=tx, steps=steps):
            record = lambda x, state: jnp.sum((state.d - problem.gradient(state.x)) ** 2)
            out = theory.run_dynamic(
                tx,
                problem.grad_fn,
                problem.sample,
                jnp.zeros(problem.dim),
                key,
                steps=steps,
                size=size,
                record=record,
            )
            return out.records, out.samples

        keys = jax.random.split(jax.random.key(0), SEEDS)
        single = lambda t, T: jnp.ones_like(t)
        for label, size, dash in (("b = ⌈T/t⌉", None, ()), ("b = 1", single, (2, 2))):
            records, samples = jax.jit(jax.vmap(lambda k, size=size: run(k, size)))(keys)
            mean = np.asarray(records).mean(0)
            held = bool(np.all(mean <= variance(problem) / steps))
            first, last = mean[: steps // 16].mean(), mean[-steps // 16 :].mean()
            rows.append(
                {
                    "T": steps,
                    "batch_size": label,
                    "samples": int(samples[0]),
                    "mean_error_first_16th": float(first),
                    "mean_error_last_16th": float(last),
                    "largest_mean_error": float(mean.max()),
                    "bound": variance(problem) / steps,
                    "bound_holds_at_every_t": held,
                }
            )
            print(rows[-1])
            line = f"T = {steps}, {label}, {int(samples[0])} samples"
            drawn += points(line, np.arange(1, steps + 1), mean)
            looks[line] = (color, dash)
        line = f"the bound, T = {steps}"
        drawn += points(line, (1, steps), [variance(problem) / steps] * 2)
        looks[line] = (color, (7, 4))
    write_csv("dynamic_batches", rows)
    x, y = axis(alt.X, "x", "t", log=True), axis(alt.Y, "y", "mean of |d − ∇f(x)|²", log=True)
    save(lines(drawn, x, y, looks, size=(480, 280), legend=2), "dynamic_batches")


if __name__ == "__main__":
    main()
