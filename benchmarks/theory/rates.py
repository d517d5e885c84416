"""The theorems on the excess loss, measured: its slope in T at the theorems' fixed rates.

    python -m benchmarks.theory.rates

Expected on the hard quadratic: slopes near -1 (mu2-SGD), -2 (mu2-ExtraSGD) and -1
(mu2-Frank-Wolfe) without noise, near -1/2 with noise, and every point below its bound. Least
squares and logistic regression are easier than the worst case and may be steeper.
Takes about 40 s on a 2-core x86-64 CPU without a GPU.
"""

import jax
import matplotlib.pyplot as plt
import numpy as np

from benchmarks.theory.known_problems import hard_quadratic, least_squares, logistic, noiseless
from benchmarks.theory.measured_runs import METHODS, bound, final_excess, rate, slope
from benchmarks.theory.report import COLORS, save, write_csv

STEPS = (64, 128, 256, 512, 1024, 2048, 4096)
NAMES = ("mu2_sgd", "uniform", "mu2_extra_sgd", "mu2_frank_wolfe")
SEEDS = 64


def main() -> None:
    """Measures, checks and draws."""
    jax.config.update("jax_enable_x64", True)
    points, slopes = [], []
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 6.4), sharex=True)
    for column, problem in enumerate((hard_quadratic(), least_squares(), logistic())):
        for row, (seen, seeds) in enumerate(((noiseless(problem), 1), (problem, SEEDS))):
            axis = axes[row, column]
            for name in NAMES:
                etas = [rate(problem, name, steps) for steps in STEPS]
                values = np.stack(
                    [
                        final_excess(seen, name, [eta], steps, seeds)[0]
                        for eta, steps in zip(etas, STEPS, strict=True)
                    ]
                )
                mean = values.mean(1)
                shown = {"problem": seen.name, "method": METHODS[name].name}
                kept = mean > 1e-14  # below that, rounding
                limits = [bound(seen, name, e, s) for e, s in zip(etas, STEPS, strict=True)]
                for steps, value, limit in zip(STEPS, mean, limits, strict=True):
                    points.append(
                        {**shown, "T": steps, "excess_loss": float(value), "bound": limit}
                    )
                held = bool(np.all(mean <= limits))
                if kept.sum() >= 4:
                    fit = slope(np.asarray(STEPS)[kept], values[kept])
                    slopes.append(
                        {
                            **shown,
                            **dict(zip(("slope", "low", "high"), fit, strict=True)),
                            "bounds_hold": held,
                        }
                    )
                    print(
                        seen.name,
                        name,
                        "slope {:.2f} [{:.2f}, {:.2f}]".format(*fit),
                        "bounds hold:",
                        held,
                    )
                axis.loglog(
                    np.asarray(STEPS)[kept],
                    mean[kept],
                    "o-",
                    ms=3,
                    color=COLORS[name],
                    label=METHODS[name].name,
                )
            axis.set_title(seen.name)
            steps = np.asarray(STEPS, float)
            top = axis.get_ylim()[1]
            for power, style in ((-1, "--"), (-2, ":")) if row == 0 else ((-0.5, "--"),):
                axis.plot(
                    steps,
                    top / 2 * (steps / steps[0]) ** power,
                    "k" + style,
                    lw=0.8,
                    label=f"T^{power}",
                )
            if row == 1:
                axis.set_xlabel("T")
        axes[0, column].set_ylim(1e-12, None)
    for row in (0, 1):
        axes[row, 0].set_ylabel("excess loss")
        axes[row, 2].legend(fontsize=7, bbox_to_anchor=(1.02, 1), loc="upper left")
    write_csv("rates", points)
    write_csv("slopes", slopes)
    save(figure, "rates")


if __name__ == "__main__":
    main()
