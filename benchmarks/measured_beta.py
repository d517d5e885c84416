"""β measured against β = 1/t: test accuracy against the learning rate, on sets of three sizes.

    python -m benchmarks.measured_beta --data mnist
    python -m benchmarks.measured_beta --data fashion-mnist

Logistic regression as in ``benchmarks.convex``: each tensor in its unit ball, the whole vector in a
ball of radius 4, and no set; rates from 1e-4 to 1e4, 3 seeds; μ²-SGD with both choices of β
with as many steps as SGD, and with half of them, which are as many gradients. It writes
``results.json``, ``results.csv`` and ``figure.png`` into ``benchmarks/results/measured_<data>``.
Runs of ``benchmarks.convex`` in the same setting are taken over from its results.
"""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import convex, experiment, logistic_task
from benchmarks.contenders import GRADIENTS
from examples import data as datasets
from mu2_optax.sweep import Data, load_results, plot_sweep

OPTIMIZERS = ("mu2_sgd", "mu2_sgd_measured", "sgd")
PROJECTIONS = ("per_tensor", "ball_4", "none")


def run_on_sets(
    args: argparse.Namespace, data: Data, steps_of: Callable[[str], Iterable[int]], known: Path
) -> experiment.Results:
    """Every optimizer on each of the sets, with the numbers of steps that ``steps_of`` gives it.

    Runs in the file ``known`` of the same case and setting are taken over.
    """
    results = experiment.run(
        [
            experiment.Case(optimizer, steps, projection)
            for projection in PROJECTIONS
            for optimizer in args.optimizers
            for steps in dict.fromkeys(steps_of(optimizer))
        ],
        lambda case: logistic_task.make_train(case, data),
        args,
        setting=convex.setting(args, data),
        known=load_results(known) if known.is_file() else None,
    )
    return {name: experiment.without_curves(result) for name, result in results.items()}


def draw_sets(
    shown: Callable[[str], experiment.Results], title: str, file: Path, height: float = 4.2
) -> None:
    """A panel for each set, with the results that ``shown`` gives for it."""
    figure = Figure(figsize=(8, height), dpi=200, layout="constrained")
    panels = figure.subplots(1, len(PROJECTIONS), sharex=True, sharey=True)
    for axes, projection in zip(panels, PROJECTIONS, strict=True):
        plot_sweep(shown(projection), "test_accuracy", axes=axes, ylim=(0.5, 1.0))
        axes.set_title(logistic_task.IN_WORDS[projection], fontsize=9)
    experiment.finish_figure(figure, title, file)


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
    results = run_on_sets(
        args,
        datasets.load_or_exit(parser, args),
        lambda optimizer: (steps, steps // GRADIENTS[optimizer]),
        experiment.RESULTS / f"convex_{name}" / "results.json",
    )
    experiment.save(results.values(), args.out, "benchmarks.measured_beta")
    draw_sets(
        lambda projection: experiment.select(results, projection=projection, steps=steps),
        f"{datasets.TITLES[args.data]}: logistic regression, {steps} steps",
        args.out / "figure.png",
    )


if __name__ == "__main__":
    main()
