"""β measured against β = 1/t: test accuracy against the learning rate, on sets of three sizes.

    python -m benchmarks.measured_beta --data mnist
    python -m benchmarks.measured_beta --data fashion-mnist

Logistic regression as in ``benchmarks.convex``: each tensor in its unit ball, the whole vector in a
ball of radius 4, and no set; rates from 1e-4 to 1e4, 3 seeds; μ²-SGD with both choices of β
with as many steps as SGD, and with half of them, which are as many gradients. It writes
``results.csv``, ``meta.json`` and ``figure.png`` into ``benchmarks/results/measured_<data>``.
Runs of ``benchmarks.convex`` in the same setting are taken over from its results.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import convex, experiment, logistic_task
from benchmarks.optimizers import OPTIMIZERS
from examples import data as datasets
from mu2_optax.sweep import Data, plot_sweep

COMPARED = ("mu2_sgd", "mu2_sgd_measured", "sgd")
PROJECTIONS = ("per_tensor", "ball_4", "none")


def run_on_sets(
    args: argparse.Namespace, data: Data, steps_of: Callable[[str], Iterable[int]], known: Path
) -> experiment.Results:
    """Every optimizer on each of the sets, with the numbers of steps that ``steps_of`` gives it.

    Runs in the folder ``known`` of the same case and setting are taken over.
    """
    return experiment.run(
        [
            experiment.Case(optimizer, steps, projection)
            for projection in PROJECTIONS
            for optimizer in args.optimizers
            for steps in dict.fromkeys(steps_of(optimizer))
        ],
        lambda case: logistic_task.make_train(case, data),
        args,
        setting=convex.setting(args, data),
        known=experiment.load(known),
    )


def draw(results: experiment.Results, steps: int, title: str, file: Path) -> None:
    """A panel for each set, with the results of so many steps."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    panels = figure.subplots(1, len(PROJECTIONS), sharex=True, sharey=True)
    for axes, projection in zip(panels, PROJECTIONS, strict=True):
        own = experiment.select(results, projection=projection, steps=steps)
        plot_sweep(own, "test_accuracy", axes=axes, ylim=(0.5, 1.0))
        axes.set_title(logistic_task.IN_WORDS[projection], fontsize=9)
    experiment.finish_figure(figure, title, file)


def arguments(
    description: str | None, optimizers: Sequence[str], kind: str
) -> tuple[argparse.Namespace, Data]:
    """The options of a comparison whose results are of this kind, and its data."""
    parser = experiment.make_parser(
        description, data="mnist", rates=convex.RATES, optimizers=optimizers
    )
    args = parser.parse_args()
    args.out = args.out or experiment.folder(kind, args.data)
    args.steps = args.steps or convex.STEPS
    return args, datasets.load_or_exit(parser, args)


def main() -> None:
    """Runs the comparison."""
    args, data = arguments(__doc__, COMPARED, "measured")
    steps = args.steps
    results = run_on_sets(
        args,
        data,
        lambda optimizer: (steps, int(steps // OPTIMIZERS[optimizer].gradients)),
        experiment.folder("convex", args.data),
    )
    experiment.save(results.values(), args.out, "benchmarks.measured_beta")
    title = f"{datasets.TITLES[args.data]}: logistic regression, {steps} steps"
    draw(results, steps, title, args.out / "figure.png")


if __name__ == "__main__":
    main()
