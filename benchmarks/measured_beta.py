"""β measured against β = 1/t: test accuracy against the learning rate, on sets of three sizes.

    python -m benchmarks.measured_beta --data mnist
    python -m benchmarks.measured_beta --data fashion-mnist

Logistic regression as in ``benchmarks.convex``: each tensor in its unit ball, the whole vector in a
ball of radius 4, and no constraint; rates from 1e-4 to 1e4, 3 seeds; μ²-SGD with both choices of β
with as many steps as SGD, and with half of them, which are as many gradients. It writes
``results.json``, ``results.csv`` and ``figure.png`` into ``benchmarks/results/measured_<data>``.
Runs of ``benchmarks.convex`` in the same setting are taken over from its results.
"""

import argparse

from matplotlib.figure import Figure

from benchmarks import convex, experiment, logistic_task
from benchmarks.contenders import GRADIENTS
from examples import data as datasets
from mu2_optax.sweep import load_results, plot_sweep

OPTIMIZERS = ("mu2_sgd", "mu2_sgd_measured", "sgd")
PROJECTIONS = ("per_tensor", "ball_4", "none")


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    experiment.add_arguments(parser, data="mnist", rates=convex.RATES, optimizers=OPTIMIZERS)
    args = parser.parse_args()
    name = args.data.replace("-", "_")
    args.out = args.out or experiment.RESULTS / f"measured_{name}"
    steps = args.steps or convex.STEPS
    data = datasets.load_or_exit(parser, args)
    made = experiment.RESULTS / f"convex_{name}" / "results.json"
    results = experiment.run(
        [
            experiment.Case(optimizer, budget, projection)
            for projection in PROJECTIONS
            for optimizer in args.optimizers
            for budget in dict.fromkeys((steps, steps // GRADIENTS[optimizer]))
        ],
        lambda case: logistic_task.make_train(case, data),
        args,
        setting=convex.setting(args, data),
        known=load_results(made) if made.is_file() else None,
    )
    results = {name: experiment.without_curves(result) for name, result in results.items()}
    experiment.save(results.values(), args.out, "benchmarks.measured_beta")
    figure = Figure(figsize=(8, 4.2), dpi=200, layout="constrained")
    panels = figure.subplots(1, len(PROJECTIONS), sharex=True, sharey=True)
    for axes, projection in zip(panels, PROJECTIONS, strict=True):
        own = experiment.select(results, projection=projection, steps=steps)
        plot_sweep(own, "test_accuracy", axes=axes, ylim=(0.5, 1.0))
        axes.set_title(logistic_task.IN_WORDS[projection], fontsize=9)
    title = f"{datasets.TITLES[args.data]}: logistic regression, {steps} steps"
    experiment.finish_figure(figure, title, args.out / "figure.png")


if __name__ == "__main__":
    main()
