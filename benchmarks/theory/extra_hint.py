"""Why the error of mu2-ExtraSGD stops falling: its hint and its gradient share a sample.

    python -m benchmarks.theory.extra_hint

Algorithm 2 in the paper's letters, against a variant whose hint is taken on a sample of its own, so
that x_t does not depend on z_t (two samples and four gradients a step). Expected: on least squares
t E|error|^2 grows with t for the first and stays level for the second, at 1/(2L) and at ten times
that.

Then ``mu2_extra_sgd`` on batches of 8 samples: as in the paper, with the correction on one sample
(1.25 gradients a step), with the hint on one sample of its own and the
estimate on the other seven (3 gradients, as the paper's), and with the hint on one and the estimate
on another one (1.5 gradients). Takes about a minute on a 2-core x86-64 CPU without a GPU.
"""

import jax
import jax.numpy as jnp
import numpy as np

import mu2_optax
from benchmarks.theory.known_problems import batched, least_squares
from benchmarks.theory.measured_runs import errors, final_excess
from benchmarks.theory.report import write_csv

STEPS, SEEDS, TIMES = 2**14, 64, (64, 512, 4096, 2**14)


def run(problem, eta, own_hint, key):
    """Squared errors of d over the steps, and the last excess loss."""
    project = mu2_optax.onto_l2_ball(problem.radius)

    def round_t(carry, t):
        x, y, d = carry
        first, second = jax.random.split(jax.random.fold_in(key, t))
        z = problem.sample(first)
        z_hint = problem.sample(second) if own_hint else z
        alpha, beta, gamma = t + 1, 1 / (t + 1), 2 * (t + 1) / (t * (t + 3))
        keep = jnp.where(t == 1, 0, 1 - beta)
        x_hat = x + gamma * (y - x)
        d_hat = problem.grad_fn(x_hat, z_hint) + keep * (d - problem.grad_fn(x, z_hint))
        w = project(y - eta * alpha * d_hat)
        x_next = x + gamma * (w - x)
        d = problem.grad_fn(x_next, z) + keep * (d - problem.grad_fn(x, z))
        y = project(y - eta * alpha * d)
        return (x_next, y, d), jnp.sum((d - problem.gradient(x_next)) ** 2)

    zero = jnp.zeros(problem.dim)
    (x, _, _), errors = jax.lax.scan(round_t, (zero, zero, zero), jnp.arange(1, STEPS + 1))
    return errors, problem.excess(x)


def in_parts() -> list[dict[str, object]]:
    """The library's optimizer on batches of 8, with and without a hint of its own."""
    problem = batched(least_squares(), 8)
    variants = {
        "mu2_extra_sgd": ("the paper's", 3.0),
        "mu2_extra_sgd_part": ("the paper's, on 1/8", 1.25),
        "mu2_extra_sgd_hint": ("own 1/8, estimate on 7/8", 3.0),
        "mu2_extra_sgd_hint_and_part": ("own 1/8, estimate on 1/8", 1.5),
    }
    rows = []
    for multiple in (1, 10):
        for name, (hint, gradients) in variants.items():
            eta = multiple / (2 * problem.smoothness)
            mean = errors(problem, name, eta, STEPS, SEEDS).mean(0)
            level = [float(t * mean[int(t / 1.2) - 1 : t].mean()) for t in TIMES]
            row = {"learning_rate": f"{multiple}/(2L)", "hint": hint, "gradients": gradients}
            row |= {f"t_times_error_at_{t}": at for t, at in zip(TIMES, level, strict=True)}
            excess = final_excess(problem, name, [eta], STEPS, SEEDS).mean()
            rows.append(row | {"excess_loss": float(excess)})
            print(rows[-1])
    return rows


def main() -> None:
    """Measures."""
    jax.config.update("jax_enable_x64", True)
    problem = least_squares()
    keys = jax.random.split(jax.random.key(0), SEEDS)
    rows = []
    for multiple in (1, 10):
        for own in (False, True):
            eta = multiple / (2 * problem.smoothness)
            run_all = jax.jit(jax.vmap(lambda k, e=eta, own=own: run(problem, e, own, k)))
            errors, excess = map(np.asarray, run_all(keys))
            mean = errors.mean(0)
            level = [float(t * mean[int(t / 1.2) - 1 : t].mean()) for t in TIMES]
            hint = "own sample" if own else "the paper's"
            row = {"learning_rate": f"{multiple}/(2L)", "hint": hint}
            row |= {f"t_times_error_at_{t}": at for t, at in zip(TIMES, level, strict=True)}
            rows.append(row | {"excess_loss": float(excess.mean())})
            print(rows[-1])
    write_csv("extra_hint", rows)
    write_csv("extra_hint_in_parts", in_parts())


if __name__ == "__main__":
    main()
