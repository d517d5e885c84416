"""The range of good learning rates, measured against T, with and without noise.

    python -m benchmarks.theory.stability

Expected: with noise the ratio of the range grows with T for both algorithms of the paper and stays
near 30 for SGD; the theorems' rates are within twice the best with and without noise, while the
best rate of SGD falls by orders of magnitude when noise comes in.
Takes about 40 s on a 2-core x86-64 CPU without a GPU.
"""

import altair as alt
import jax
import numpy as np

from benchmarks.pictures import axis, lines
from benchmarks.theory.known_problems import hard_quadratic, noiseless
from benchmarks.theory.measured_runs import METHODS, final_excess, rate, variance, within_twice_best
from benchmarks.theory.report import COLORS, points, save, write_csv
from mu2_optax import theory

STEPS, SEEDS = (64, 256, 1024, 4096), 16
MULTIPLES = 10 ** np.arange(-6, 4.01, 0.125)
NAMES = ("sgd", "mu2_sgd", "mu2_extra_sgd", "uniform")


def ceiling(problem, name, steps):
    """The largest rate of the theory."""
    return 1 / (2 * problem.smoothness) if name == "sgd" else rate(problem, name, steps)


def main() -> None:
    """Measures and draws."""
    jax.config.update("jax_enable_x64", True)
    problem = hard_quadratic()
    rows, curves, ratios = [], {}, {}
    for name in NAMES:
        noise = problem.gradient_variance if name == "sgd" else variance(problem)
        for steps in STEPS:
            etas = MULTIPLES * ceiling(problem, name, steps)
            allowed = MULTIPLES <= 1.0001
            for seen, seeds in ((noiseless(problem), 1), (problem, SEEDS)):
                means = final_excess(seen, name, etas, steps, seeds).mean(1)
                curves[name, steps, seen.name] = (etas, means)
                low, high, ratio = within_twice_best(etas[allowed], means[allowed])
                _, top, full = within_twice_best(etas, means)
                at_ceiling = means[allowed][-1] / means[allowed].min()
                predicted = theory.stable_rates(
                    smoothness=problem.smoothness,
                    steps=steps,
                    diameter=problem.diameter,
                    variance=noise,
                    method=name,
                )
                rows.append(
                    {
                        "problem": seen.name,
                        "method": METHODS[name].name,
                        "T": steps,
                        "low": float(low),
                        "high": float(high),
                        "ratio": ratio,
                        "predicted_ratio": float(predicted.ratio) if seen is problem else "",
                        "high_of_all_rates": float(top),
                        "ratio_of_all_rates": full,
                        "reaches_end_of_grid": top >= etas[-1] / 1.001,
                        "loss_at_theorem_rate_over_best": float(at_ceiling),
                    }
                )
                if seen is problem:  # a range that reaches the first rate has no end
                    measured = ratio if low > etas[0] else float("nan")
                    ratios[name, steps] = (measured, float(predicted.ratio))
    write_csv("stability", rows)

    titles = {name: METHODS[name].name for name in NAMES}
    looks = {titles[name]: (COLORS[name], ()) for name in NAMES}
    steps, drawn, growth = 1024, [], []
    for seen in (noiseless(problem), problem):
        for name in NAMES:
            etas, means = curves[name, steps, seen.name]
            known = np.isfinite(means)
            relative = etas[known] / ceiling(problem, name, steps)
            drawn += points(titles[name], relative, means[known], f"{seen.name}, T = {steps}")
    for name in NAMES:
        measured, predicted = np.array([ratios[name, s] for s in STEPS]).T
        known = ~np.isnan(measured)
        growth += points(titles[name], np.array(STEPS)[known], measured[known])
        growth += points(f"{titles[name]}, predicted", STEPS, predicted)
        looks[f"{titles[name]}, predicted"] = (COLORS[name], (4, 3))
    x = axis(alt.X, "x", "η / the theory's largest η", log=True)
    left = lines(drawn, x, axis(alt.Y, "y", "excess loss", log=True), looks, columns=2, legend=4)
    y = axis(alt.Y, "y", "ratio of the good rates", log=True)
    right = lines(growth, axis(alt.X, "x", "T", log=True), y, looks, marks=True, legend=4)
    save(left | right, "stability")


if __name__ == "__main__":
    main()
