"""The theorem on the error, with the correction on a part of the batch: t E|error|^2 over t.

    python -m benchmarks.theory.part

μ²-SGD on batches of 8 samples, the correction on 1, 1/2, 1/4 and 1/8 of each, at the theorem's rate
and at 10⁵ times that. Expected: level over t for every share, larger for smaller ones, and below
the bound with σ_L² |B|/|S|. Takes about a minute on a 2-core x86-64 CPU without a GPU.
"""

import jax
import numpy as np

from benchmarks.theory.known_problems import batched, least_squares, logistic
from benchmarks.theory.measured_runs import errors, rate, variance
from benchmarks.theory.report import write_csv
from mu2_optax import theory

STEPS, SEEDS, BATCH, TIMES = 2**14, 64, 8, (64, 512, 4096, 2**14)
SHARES = {"mu2_sgd": 1.0, "mu2_sgd_part_2": 1 / 2, "mu2_sgd_part_4": 1 / 4, "mu2_sgd_part_8": 1 / 8}


def main() -> None:
    """Measures."""
    jax.config.update("jax_enable_x64", True)
    rows = []
    for problem in (batched(least_squares(), BATCH), batched(logistic(), BATCH)):
        for multiple in (1, 1e5):
            for name, share in SHARES.items():
                eta = multiple * rate(problem, "mu2_sgd", STEPS)
                mean = errors(problem, name, eta, STEPS, SEEDS).mean(0)
                t = np.arange(1, STEPS + 1)
                limit = theory.error_bound(t=t, variance=variance(problem, share))
                level = [float(t * mean[int(t / 1.2) - 1 : t].mean()) for t in TIMES]
                row = {"problem": problem.name, "rate": f"{multiple:g}/(8LT)", "share": share}
                row |= {f"t_times_error_at_{t}": at for t, at in zip(TIMES, level, strict=True)}
                row |= {"bound": variance(problem, share)}
                row |= {"below_it_at_every_t": bool(np.all(mean <= np.asarray(limit)))}
                rows.append(row)
                print(row)
    write_csv("part", rows)


if __name__ == "__main__":
    main()
