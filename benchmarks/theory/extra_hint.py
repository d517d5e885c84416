"""Why the error of mu2-ExtraSGD stops falling: its hint and its gradient share a sample.

    python -m benchmarks.theory.extra_hint

``mu2_extra_sgd`` on batches of 8 samples of least squares: as in the paper, with the correction on
one sample (1.25 gradients a step), with the hint on one sample of its own and the estimate on the
other seven, so that x_t does not depend on them (3 gradients, as the paper's), and with the hint on
one and the estimate on another one (1.5 gradients). Expected: at ten times 1/(2L), t E|error|^2
grows with t for the paper's and stays level with a hint of its own. Takes about a minute on a
2-core x86-64 CPU without a GPU.
"""

import jax

from benchmarks.theory.known_problems import batched, least_squares
from benchmarks.theory.measured_runs import errors, final_excess
from benchmarks.theory.report import write_csv

STEPS, SEEDS, TIMES = 2**14, 64, (64, 512, 4096, 2**14)
VARIANTS = {
    "mu2_extra_sgd": ("the paper's", 3.0),
    "mu2_extra_sgd_part": ("the paper's, on 1/8", 1.25),
    "mu2_extra_sgd_hint": ("own 1/8, estimate on 7/8", 3.0),
    "mu2_extra_sgd_hint_and_part": ("own 1/8, estimate on 1/8", 1.5),
}


def main() -> None:
    """Measures."""
    jax.config.update("jax_enable_x64", True)
    problem = batched(least_squares(), 8)
    rows = []
    for multiple in (1, 10):
        for name, (hint, gradients) in VARIANTS.items():
            eta = multiple / (2 * problem.smoothness)
            mean = errors(problem, name, eta, STEPS, SEEDS).mean(0)
            level = [float(t * mean[int(t / 1.2) - 1 : t].mean()) for t in TIMES]
            row = {"learning_rate": f"{multiple}/(2L)", "hint": hint, "gradients": gradients}
            row |= {f"t_times_error_at_{t}": at for t, at in zip(TIMES, level, strict=True)}
            excess = final_excess(problem, name, [eta], STEPS, SEEDS).mean()
            rows.append(row | {"excess_loss": float(excess)})
            print(rows[-1])
    write_csv("extra_hint_in_parts", rows)


if __name__ == "__main__":
    main()
