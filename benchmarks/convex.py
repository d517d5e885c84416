"""The paper's convex experiment (its figure 1 and its appendix), on real data.

Logistic regression, batch 64, one epoch, the weights in the unit L2 ball (each tensor in its own,
as in the authors' code; or all of them in one, as in the paper's text; or not constrained at all),
learning rates from 1e-4 to 1e4 (the paper's end at 10), 3 seeds, α_t = t and β_t = 1/t:

    python -m benchmarks.convex --data mnist
    python -m benchmarks.convex --data fashion-mnist

Each writes ``results.csv`` (a row per run), ``meta.json``, ``curves.csv`` (the test accuracy and
loss over the iterations, in the unit balls at three rates), ``figure.png``, ``curves.png`` and
companions for the other sets into ``benchmarks/results/convex_<data>``. What has finished is kept
in ``journal/`` there; a command that was stopped goes on from it, and one that had finished only
draws the pictures again. Measured on MNIST: μ²-SGD at 0.884 to 0.885 for every rate from 0.01 to
10,000.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import experiment, files, logistic_task
from benchmarks.optimizers import PAPER
from examples import data as datasets
from examples.option_types import positive_int
from mu2_optax.sweep import Data, load_results, plot_curves

STEPS, EVALUATIONS = 938, 14  # one epoch of 60,000 images; every 67 steps
RATES = tuple(10.0**power for power in range(-4, 5))
SHOWN = (0.01, 1.0, 100.0)  # the rates whose curves are drawn
CURVES = ("test_accuracy_curve", "test_loss_curve")
ALIKE = "global"  # gives the same picture as "per_tensor"


def setting(args: argparse.Namespace, data: Data) -> dict[str, Any]:
    """What the numbers depend on, besides optimizer, projection, steps, rate and seed."""
    return {
        "model": "logistic regression",
        "data": args.data,
        "images": [len(data.train_y), len(data.test_y)],
        "batch": logistic_task.BATCH,
    }


def save_curves(results: experiment.Results, rates: Sequence[float], file: Path) -> None:
    """Writes the curves that are drawn: those of the first projection at three rates.

    What had finished before has its curves in the file already.
    """
    first = experiment.projections(results)[0]
    rows = [
        row
        for result in results.values()
        if result.info["context"]["projection"] == first and CURVES[0] in result.metrics
        for row in experiment.cells(result, CURVES)
        if row["learning_rate"] in rates
    ]
    if rows:
        files.write_rows(file, files.with_kept(file, rows, ["optimizer"]))


def draw(results: experiment.Results, out: Path, name: str) -> None:
    """Draws the accuracies against the rate, and the curves of the first projection."""
    drawn = [name for name in experiment.projections(results) if name != ALIKE]
    for number, projection in enumerate(drawn):
        own = experiment.select(results, projection=projection)
        in_words = logistic_task.IN_WORDS[projection]
        title = f"{datasets.TITLES[name]}: logistic regression, {in_words}"
        file = out / (f"figure_{projection}.png" if number else "figure.png")
        experiment.draw_sweep(own, title, file)
        if number == 0:
            curves = load_results(out / "curves.csv")
            shown = {title: curves[own[title].label] for title in own}
            steps = next(iter(own.values())).info["context"]["steps"]
            draw_curves(shown, steps, title, out / "curves.png")


def draw_curves(results: experiment.Results, last: int, title: str, file: Path) -> None:
    """Draws test accuracy and test loss over the steps, at each learning rate."""
    first = next(iter(results.values()))
    rates = first.learning_rates.tolist()
    steps = np.linspace(0, last, first.metric(CURVES[0]).shape[-1]).tolist()
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    grid = figure.subplots(2, len(rates), sharex=True, sharey="row", squeeze=False)
    for row, curve in zip(grid, CURVES, strict=True):
        for axes, rate in zip(row, rates, strict=True):
            plot_curves(results, curve, axes=axes, learning_rate=rate, steps=steps)
        row[0].set_ylabel(curve.removesuffix("_curve").replace("_", " "))
    for axes, rate in zip(grid[0], rates, strict=True):
        axes.set_title(f"learning rate {rate:g}", fontsize=11)
    experiment.finish_figure(figure, title, file)


def main() -> None:
    """Runs the experiment."""
    parser = experiment.make_parser(__doc__, data="mnist", rates=RATES, optimizers=PAPER)
    known = ("per_tensor", "global", "none")
    parser.add_argument("--projections", choices=known, nargs="+", default=known)
    parser.add_argument(
        "--evaluations", type=positive_int, default=EVALUATIONS, help="must divide the steps"
    )
    args = parser.parse_args()
    steps = args.steps or STEPS
    if steps % args.evaluations:
        parser.error(f"--evaluations {args.evaluations} does not divide --steps {steps}")
    args.out = args.out or experiment.folder("convex", args.data)
    data = datasets.load_or_exit(parser, args)
    results = experiment.run(
        [
            experiment.Case(name, steps, projection)
            for projection in args.projections
            for name in args.optimizers
        ],
        lambda case: logistic_task.make_train(case, data, args.evaluations),
        args,
        setting=setting(args, data),
    )
    experiment.save(results.values(), args.out, "benchmarks.convex")
    shown = [rate for rate in SHOWN if rate in args.lrs] or args.lrs[:3]
    save_curves(results, shown, args.out / "curves.csv")
    draw(results, args.out, args.data)


if __name__ == "__main__":
    main()
