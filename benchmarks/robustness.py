"""μ² beside the strongest peers that Optax has, at equal steps and at equal gradient evaluations.

    python -m benchmarks.robustness --data mnist                # logistic regression
    python -m benchmarks.robustness --data fashion-mnist
    python -m benchmarks.robustness --task cnn --data mnist     # the paper's CNN

μ²-SGD, μ²-ExtraSGD and μ²-Adam; SGD, momentum SGD and Adam; schedule-free SGD and AdamW,
Prodigy and DoG (all four from ``optax.contrib``). Logistic regression is run with each tensor in
its unit ball, and not constrained at all. At equal evaluations an optimizer with k gradients a step
takes a k-th of SGD's steps. Each command prints the measures (plateau width, stability ratio,
learning-rate sensitivity and best accuracy, with 95 % intervals over seeds) and writes
``results.csv`` (a row per run), ``meta.json`` and pictures into
``benchmarks/results/robustness_<task>_<data>``. Runs that ``benchmarks.convex`` or
``benchmarks.nonconvex`` has made in the same setting are taken from their results. A command that
was stopped goes on where it was.
"""

import argparse
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks import convex, experiment, logistic_task, nonconvex
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.robustness_measures import BUDGETS, Robustness, robustness, with_budget
from examples import data as datasets
from mu2_optax.sweep import Data, plot_sweep

COMPARED = (
    "mu2_sgd",
    "mu2_extra_sgd",
    "mu2_adam",
    "sgd",
    "momentum",
    "adam",
    "schedule_free_sgd",
    "schedule_free_adamw",
    "prodigy",
    "dog_last",
)
PROJECTIONS = ("per_tensor", "none")


def cases(optimizers: list[str], steps: int, projection: str) -> list[experiment.Case]:
    """Every optimizer with each number of steps that it is run for."""
    equal_steps = [experiment.Case(name, steps, projection) for name in optimizers]
    equal_cost = [
        case._replace(steps=int(steps // OPTIMIZERS[case.optimizer].gradients))
        for case in equal_steps
    ]
    return list(dict.fromkeys(equal_steps + equal_cost))


def run(args: argparse.Namespace, data: Data, known: experiment.Results) -> experiment.Results:
    """Logistic regression, constrained and not, or the paper's CNN."""
    if args.task == "logistic":
        return experiment.run(
            [
                case
                for projection in PROJECTIONS
                for case in cases(args.optimizers, args.steps or convex.STEPS, projection)
            ],
            lambda case: logistic_task.make_train(case, data),
            args,
            setting=convex.setting(args, data),
            known=known,
        )
    return experiment.run(
        cases(args.optimizers, args.steps or nonconvex.steps_per_epoch(data), "none"),
        nonconvex.make_train(data),
        args,
        setting=nonconvex.setting(args, data),
        known=known,
        strategy="python",
    )


def measured(results: experiment.Results) -> dict[tuple[str, str, str], Robustness]:
    """The measures by projection, budget and optimizer, of what has finished."""
    return {
        (projection, budget, result.info["context"]["optimizer"]): robustness(result)
        for projection in experiment.projections(results)
        for budget in BUDGETS
        for result in with_budget(results, budget, projection=projection).values()
        if result.finished.all()
    }


def report(measures: dict[tuple[str, str, str], Robustness]) -> None:
    """Prints the measures."""
    print(f"{'':44}" + "".join(f"{name:>24}" for name in Robustness._fields))
    for key, found in measures.items():
        cells = (f"{m.value:.4g} [{m.low:.4g}, {m.high:.4g}]" for m in found)
        print("{:11} {:12} {:20}".format(*key) + "".join(f"{cell:>24}" for cell in cells))


def draw(results: experiment.Results, out: Path, subject: str) -> None:
    """Draws test accuracy against the rate, a panel for each budget."""
    for number, projection in enumerate(experiment.projections(results)):
        figure = Figure(figsize=(8, 5), layout="constrained")
        panels = figure.subplots(1, len(BUDGETS), sharex=True, sharey=True)
        for axes, (budget, title) in zip(panels, BUDGETS.items(), strict=True):
            own = with_budget(results, budget, projection=projection)
            plot_sweep(own, "test_accuracy", axes=axes, title=title, ylim=(0.0, 1.0))
        file = out / (f"figure_{projection}.png" if number else "figure.png")
        experiment.finish_figure(figure, f"{subject}, {logistic_task.IN_WORDS[projection]}", file)


def main() -> None:
    """Runs the comparison."""
    parser = experiment.make_parser(__doc__, data="mnist", rates=(), optimizers=COMPARED)
    parser.add_argument("--task", choices=("logistic", "cnn"), default="logistic")
    args = parser.parse_args()
    if args.data == "cifar10":
        parser.error("the models take grey images: mnist, fashion-mnist or digits")
    paper = convex if args.task == "logistic" else nonconvex
    name, model = {"logistic": ("convex", "logistic regression"), "cnn": ("nonconvex", "CNN")}[
        args.task
    ]
    args.lrs = args.lrs or paper.RATES
    args.out = args.out or experiment.folder(f"robustness_{args.task}", args.data)
    data = datasets.load_or_exit(parser, args)
    results = run(args, data, experiment.load(experiment.folder(name, args.data)))
    experiment.save(results.values(), args.out, "benchmarks.robustness")
    report(measured(results))
    draw(results, args.out, f"{datasets.TITLES[args.data]}, {model}")


if __name__ == "__main__":
    main()
