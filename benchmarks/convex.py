"""The paper's convex experiment (its figure 1 and its appendix), on real data.

Logistic regression, batch 64, one epoch, the weights in the unit L2 ball (each tensor in its own,
as in the authors' code; or all of them in one, as in the paper's text; or not constrained at all),
learning rates from 1e-4 to 1e4 (the paper's end at 10), 3 seeds, α_t = t and β_t = 1/t:

    python -m benchmarks.convex --data mnist
    python -m benchmarks.convex --data fashion-mnist

Each writes ``results.json`` (with the test accuracy and loss over the iterations), ``results.csv``
(a row per run), ``figure.png``, ``curves.png`` and their companions into
``benchmarks/results/convex_<data>``. What has finished is kept in ``journal/`` there; a command
that was stopped goes on from it, and one that had finished only draws the pictures again. Measured
on MNIST: μ²-SGD at 0.884 to 0.885 for every rate from 0.01 to 10,000.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks import experiment, logistic_task
from benchmarks.contenders import PAPER
from examples import data as datasets
from examples.option_types import positive_int
from mu2_optax.sweep import Data, plot_curves, plot_sweep

STEPS, EVALUATIONS = 938, 14  # one epoch of 60,000 images; every 67 steps
RATES = tuple(10.0**power for power in range(-4, 5))
SHOWN = (0.01, 1.0, 100.0)  # the rates whose curves are drawn


def setting(args: argparse.Namespace, data: Data) -> dict[str, Any]:
    """What the numbers depend on, besides optimizer, projection, steps, rate and seed."""
    return {
        "model": "logistic regression",
        "data": args.data,
        "images": [len(data.train_y), len(data.test_y)],
        "batch": logistic_task.BATCH,
    }


def draw(results: experiment.Results, out: Path, name: str) -> None:
    """Draws the accuracies against the rate, and the curves, for each projection."""
    for number, projection in enumerate(experiment.projections(results)):
        suffix = f"_{projection}" if number else ""
        own = experiment.select(results, projection=projection)
        in_words = logistic_task.IN_WORDS[projection]
        title = f"{datasets.TITLES[name]}: logistic regression, {in_words}"
        file = out / f"figure{suffix}.png"
        plot_sweep(own, "test_accuracy", file, title=title, ylim=(0.0, 1.0))
        draw_curves(own, out / f"curves{suffix}.png", title)


def draw_curves(results: experiment.Results, file: Path, title: str) -> None:
    """Draws test accuracy and test loss over the steps, at three learning rates."""
    first = next(iter(results.values()))
    known = first.learning_rates.tolist()
    rates = [rate for rate in SHOWN if rate in known] or known[:3]
    values = first.metric("test_loss_curve").shape[-1]
    steps = np.linspace(0, first.info["context"]["steps"], values).tolist()
    figure = Figure(figsize=(8, 5.4), dpi=200, layout="constrained")
    grid = figure.subplots(2, len(rates), sharex=True, sharey="row", squeeze=False)
    for row, metric in zip(grid, ("test accuracy", "test loss"), strict=True):
        curve = f"{metric.replace(' ', '_')}_curve"
        for axes, rate in zip(row, rates, strict=True):
            plot_curves(results, curve, axes=axes, learning_rate=rate, steps=steps)
        row[0].set_ylabel(metric)
    for axes, rate in zip(grid[0], rates, strict=True):
        axes.set_title(f"learning rate {rate:g}", fontsize=11)
    experiment.finish_figure(figure, title, file)


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    experiment.add_arguments(parser, data="mnist", rates=RATES, optimizers=PAPER)
    known = ("per_tensor", "global", "none")
    parser.add_argument("--projections", choices=known, nargs="+", default=known)
    parser.add_argument(
        "--evaluations", type=positive_int, default=EVALUATIONS, help="must divide the steps"
    )
    args = parser.parse_args()
    steps = args.steps or STEPS
    if steps % args.evaluations:
        parser.error(f"--evaluations {args.evaluations} does not divide --steps {steps}")
    args.out = args.out or experiment.RESULTS / f"convex_{args.data.replace('-', '_')}"
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
    draw(results, args.out, args.data)


if __name__ == "__main__":
    main()
