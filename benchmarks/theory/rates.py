"""The theorems on the excess loss, measured: its slope in T at the theorems' fixed rates.

    python -m benchmarks.theory.rates

Expected on the hard quadratic: slopes near -1 (mu2-SGD), -2 (mu2-ExtraSGD) and -1
(mu2-Frank-Wolfe) without noise, near -1/2 with noise, and every point below its bound. Least
squares and logistic regression are easier than the worst case and may be steeper.
Takes about 40 s on a 2-core x86-64 CPU without a GPU.
"""

import itertools

import altair as alt
import jax
import numpy as np

from benchmarks.pictures import BLACK, axis, lines
from benchmarks.theory.known_problems import hard_quadratic, least_squares, logistic, noiseless
from benchmarks.theory.measured_runs import METHODS, bound, final_excess, rate, slope
from benchmarks.theory.report import COLORS, points, save, write_csv

STEPS = (64, 128, 256, 512, 1024, 2048, 4096)
NAMES = ("mu2_sgd", "uniform", "mu2_extra_sgd", "mu2_frank_wolfe")
SEEDS = 64
LEAST = 1e-12  # that is drawn
GUIDES = (("1/T", -1), ("1/T²", -2), ("1/√T", -0.5))  # two without noise, and one with it


def main() -> None:
    """Measures, checks and draws."""
    jax.config.update("jax_enable_x64", True)
    rows, slopes, drawn = [], [], []
    problems = (hard_quadratic(), least_squares(), logistic())
    pairs = (((noiseless(p), 1, GUIDES[:2]), (p, SEEDS, GUIDES[2:])) for p in problems)
    for seen, seeds, guides in itertools.chain(*pairs):
        for name in NAMES:
            etas = [rate(seen, name, steps) for steps in STEPS]
            runs = zip(etas, STEPS, strict=True)
            values = np.stack([final_excess(seen, name, [e], s, seeds)[0] for e, s in runs])
            mean = values.mean(1)
            title = METHODS[name].name
            shown = {"problem": seen.name, "method": title}
            kept = mean > 1e-14  # below that, rounding
            limits = [bound(seen, name, e, s) for e, s in zip(etas, STEPS, strict=True)]
            for steps, value, limit in zip(STEPS, mean, limits, strict=True):
                rows.append({**shown, "T": steps, "excess_loss": float(value), "bound": limit})
            held = bool(np.all(mean <= limits))
            if kept.sum() >= 4:
                fit = slope(np.asarray(STEPS)[kept], values[kept])
                slopes.append({**shown, **dict(zip(("slope", "low", "high"), fit, strict=True))})
                slopes[-1]["bounds_hold"] = held
                print(seen.name, name, "slope {:.2f} [{:.2f}, {:.2f}]".format(*fit), held)
            visible = mean > LEAST
            drawn += points(title, np.asarray(STEPS)[visible], mean[visible], seen.name)
        top = max(row["y"] for row in drawn if row["panel"] == seen.name) / 2
        for guide, power in guides:
            heights = top * (np.array(STEPS) / STEPS[0]) ** power
            drawn += points(guide, STEPS, heights, seen.name)
    drawn.sort(key=lambda row: "noiseless" not in row["panel"])  # in the upper row
    write_csv("rates", rows)
    write_csv("slopes", slopes)
    looks = {METHODS[name].name: (COLORS[name], ()) for name in NAMES}
    looks |= {guide: (BLACK, (2 * i + 2, 3)) for i, (guide, _) in enumerate(GUIDES)}
    x, y = axis(alt.X, "x", "T", log=True), axis(alt.Y, "y", "excess loss", log=True)
    save(lines(drawn, x, y, looks, columns=3, marks=True, legend=7), "rates")


if __name__ == "__main__":
    main()
