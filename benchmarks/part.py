"""The correction on a part of the batch: test accuracy against the learning rate, at equal cost.

    python -m benchmarks.part --data mnist
    python -m benchmarks.part --data fashion-mnist

Logistic regression as in ``benchmarks.measured_beta``: each tensor in its unit ball, the whole
vector in a ball of radius 4, and no constraint; rates from 1e-4 to 1e4, 3 seeds. μ²-SGD with
β = 1/t and with measured β, the correction on 1, 1/2, 1/4, 1/8 and 1/16 of each batch of 64, which
costs 1 + share gradients a step; with as many gradients as SGD, and measured β also with as many
steps. It writes ``results.json``, ``results.csv`` and ``figure.png`` into
``benchmarks/results/part_<data>``. Runs on the whole batch are those of
``benchmarks.measured_beta``.
"""

import argparse

from matplotlib.figure import Figure

from benchmarks import convex, experiment, logistic_task
from benchmarks.contenders import GRADIENTS, SHARES
from benchmarks.robustness_measures import with_budget
from examples import data as datasets
from mu2_optax.sweep import load_results, plot_sweep

OPTIMIZERS = ("mu2_sgd", "mu2_sgd_measured", "sgd", *SHARES)
PROJECTIONS = ("per_tensor", "ball_4", "none")


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    experiment.add_arguments(parser, data="mnist", rates=convex.RATES, optimizers=OPTIMIZERS)
    args = parser.parse_args()
    name = args.data.replace("-", "_")
    args.out = args.out or experiment.RESULTS / f"part_{name}"
    steps = args.steps or convex.STEPS
    data = datasets.load_or_exit(parser, args)
    made = experiment.RESULTS / f"measured_{name}" / "results.json"

    def budgets(optimizer: str) -> list[int]:
        equal_cost = int(steps // GRADIENTS[optimizer])
        only = optimizer in SHARES and "measured" not in optimizer
        return [equal_cost] if only else list(dict.fromkeys((steps, equal_cost)))

    results = experiment.run(
        [
            experiment.Case(optimizer, budget, projection)
            for projection in PROJECTIONS
            for optimizer in args.optimizers
            for budget in budgets(optimizer)
        ],
        lambda case: logistic_task.make_train(case, data),
        args,
        setting=convex.setting(args, data),
        known=load_results(made) if made.is_file() else None,
    )
    results = {name: experiment.without_curves(result) for name, result in results.items()}
    experiment.save(results.values(), args.out, "benchmarks.part")
    figure = Figure(figsize=(8, 4.6), dpi=200, layout="constrained")
    panels = figure.subplots(1, len(PROJECTIONS), sharex=True, sharey=True)
    for axes, projection in zip(panels, PROJECTIONS, strict=True):
        own = with_budget(results, "evaluations", projection=projection)
        shown = {title: result for title, result in own.items() if "measured" in title}
        plot_sweep(shown, "test_accuracy", axes=axes, ylim=(0.5, 1.0))
        axes.set_title(logistic_task.IN_WORDS[projection], fontsize=9)
    title = f"{datasets.TITLES[args.data]}: logistic regression, gradients of {steps} steps of SGD"
    experiment.finish_figure(figure, title, args.out / "figure.png")


if __name__ == "__main__":
    main()
