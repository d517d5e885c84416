"""The theorem on the error, measured: t E|d_t - grad f(x_t)|^2 over t.

    python -m benchmarks.theory.errors

Expected: bounded for mu2-SGD (linear and uniform weights) at every learning rate, and below the
bound; growing like t for SGD and Anytime-SGD; for STORM bounded at small and growing at large
rates; for mu2-ExtraSGD bounded at small rates and slowly growing at 1/(2L).
Takes about two minutes on a 2-core x86-64 CPU without a GPU.
"""

import itertools

import altair as alt
import jax
import numpy as np

from benchmarks.pictures import BLACK, axis, lines
from benchmarks.theory.known_problems import least_squares, logistic
from benchmarks.theory.measured_runs import METHODS, errors, rate, variance
from benchmarks.theory.report import COLORS, points, save, write_csv
from mu2_optax import theory

STEPS, SEEDS = 2**15, 32
DASHES = {1: (), 0.1: (2, 2), 10: (7, 3), 1e5: (7, 3), 128: (7, 3)}  # of multiples of the rate
BOUND = "the bound"


def cases():
    """Triples of (name, multiple of its rate, label); STORM's rates are multiples of 1/(8L)."""
    yield "mu2_sgd", 1, "μ²-SGD, η = 1/(8LT)"
    yield "mu2_sgd", 1e5, "μ²-SGD, η × 10⁵"
    yield "uniform", 1, "μ²-SGD uniform, η = 1/(16L(1+log T))"
    yield "mu2_extra_sgd", 0.1, "μ²-ExtraSGD, η = 1/(20L)"
    yield "mu2_extra_sgd", 1, "μ²-ExtraSGD, η = 1/(2L)"
    yield "mu2_extra_sgd", 10, "μ²-ExtraSGD, η = 5/L"
    yield "mu2_frank_wolfe", 1, "μ²-Frank-Wolfe, no η"
    yield "storm", 1, "STORM, η = 1/(8L)"
    yield "storm", 128, "STORM, η = 16/L"
    yield "anytime", 1, "Anytime-SGD"
    yield "sgd", 1, "SGD"


def main() -> None:
    """Measures, checks and draws."""
    jax.config.update("jax_enable_x64", True)
    times = np.unique(np.logspace(0, np.log10(STEPS), 40).astype(int))
    rows, drawn = [], []
    looks = {}
    for problem in (least_squares(), logistic()):
        for name, multiple, label in cases():
            measured = errors(problem, name, multiple * rate(problem, name, STEPS), STEPS, SEEDS)
            mean = measured.mean(0)
            # each point averages the seeds and the steps between two times, to see the trend
            edges = np.unique(np.concatenate([[0], times]))
            parts = itertools.pairwise(edges)
            binned = np.array([mean[a:b].mean() for a, b in parts]) * edges[1:]
            drawn += points(label, edges[1:], binned, problem.name)
            looks[label] = (COLORS[name], DASHES[multiple])
            t = np.arange(1, STEPS + 1)
            method = name if name in ("uniform", "mu2_extra_sgd") else "mu2_sgd"
            limit = np.asarray(theory.error_bound(t=t, variance=variance(problem), method=method))
            for s in (1, 64, 1024, 8192, STEPS):
                window = slice(max(0, int(s / 1.2) - 1), s)
                rows.append(
                    {
                        "problem": problem.name,
                        "method": METHODS[name].name,
                        "case": label,
                        "t": s,
                        "error": float(mean[window].mean()),
                        "t_times_error": float(s * mean[window].mean()),
                        "bound": float(limit[s - 1]),
                    }
                )
            print(problem.name, label, "below its bound at every t:", bool(np.all(mean <= limit)))
        bound = variance(problem) * times / (times + 1)
        drawn += points(BOUND, times, bound, problem.name)
    write_csv("errors", rows)
    x, y = axis(alt.X, "x", "t", log=True), axis(alt.Y, "y", "t · mean of |d − ∇f(x)|²", log=True)
    looks[BOUND] = (BLACK, (2, 3))
    save(lines(drawn, x, y, looks, size=(330, 260), columns=2, legend=3), "errors")


if __name__ == "__main__":
    main()
