"""How much the learning rate matters, on MNIST and its like: every study is a list of cases.

    python -m benchmarks.studies convex --data mnist
    python -m benchmarks.studies robustness_cnn --data mnist --minutes 60
    python -m benchmarks.studies --help            # which there are

Batches of 64, one epoch, 3 seeds. Logistic regression is run on sets of several sizes with linear
momenta, networks on no set with fixed ones. A study writes ``runs.json``, a line for each run, and
its pictures into ``benchmarks/results/<study>_<data>``; a command that was stopped goes on from
there, and one that had finished only draws the pictures again. Runs that another study has made are
taken over from it. Measured on MNIST: μ²-SGD at 0.884 to 0.885 for every rate from 0.01 to 10,000.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

import mu2_optax
from benchmarks import experiment
from benchmarks.experiment import Case, Cell
from benchmarks.files import RESULTS
from benchmarks.image_tasks import cnn_task, dense_task, logistic_task
from benchmarks.optimizers import MOMENTA, OPTIMIZERS, PAPER, PARTS, Setting
from benchmarks.rate_pictures import draw_curves, draw_rates
from benchmarks.robustness_measures import BUDGETS, with_budget
from benchmarks.training import Functions, make_train
from examples import data as datasets
from mu2_optax.sweep import Data

BATCH = 64
POINTS = 14  # of a curve: every 67 steps of an epoch of 60,000 images
RATES = tuple(10.0**power for power in range(-4, 5))
NETWORK_RATES = RATES[:6]
SHOWN = (0.01, 1.0, 100.0)  # the rates whose curves are kept
OTHERS = ("schedule_free_sgd", "schedule_free_adamw", "prodigy", "dog_last")
PROJECTIONS = {
    "per_tensor": mu2_optax.per_tensor(mu2_optax.onto_l2_ball(1.0)),
    "global": mu2_optax.onto_l2_ball(1.0),
    "ball_4": mu2_optax.onto_l2_ball(4.0),
    "none": None,
}
IN_WORDS = {
    "per_tensor": "each tensor in its unit ball",
    "global": "the whole vector in the unit ball",
    "ball_4": "the whole vector in a ball of radius 4",
    "none": "not constrained",
}
LOGISTIC, CNN = "logistic regression", "the paper's CNN, with ReLUs"
MLP = "dense layers 784-256-256-10"


class Study(NamedTuple):
    """What is compared.

    Attributes:
      summary: What it asks.
      model: The model.
      optimizers: Who is compared.
      rates: The learning rates.
      projections: The sets, of logistic regression.
      budgets: At equal steps, at equal gradient evaluations, or both: an optimizer that takes k
        gradients a step then takes a k-th of SGD's steps.
      known: The study whose runs are taken over.
      seeds: How many.
      panels: Of the pictures; a picture for each projection, or one with a panel for each.
      ylim: The range of their accuracies.
    """

    summary: str
    model: str
    optimizers: tuple[str, ...]
    rates: tuple[float, ...] = RATES
    projections: tuple[str, ...] = ("none",)
    budgets: tuple[str, ...] = ("steps",)
    known: str | None = None
    seeds: int = 3
    panels: str | None = None
    ylim: tuple[float, float] = (0.0, 1.0)


STRONGEST = ("mu2_sgd", "mu2_extra_sgd", "mu2_adam", "sgd", "momentum", "adam", *OTHERS)
STUDIES = {
    "convex": Study(
        "the paper's figure 1 and its appendix: logistic regression on sets",
        LOGISTIC,
        PAPER,
        projections=("per_tensor", "global", "none"),
        panels="projection",
    ),
    "nonconvex": Study(
        "the paper's CNN, with fixed momenta",
        CNN,
        (*PAPER, "schedule_free_sgd"),
        NETWORK_RATES,
        panels="projection",
    ),
    "robustness_logistic": Study(
        "the strongest peers that Optax has, at equal steps and equal evaluations",
        LOGISTIC,
        STRONGEST,
        projections=("per_tensor", "none"),
        budgets=tuple(BUDGETS),
        known="convex",
        panels="budget",
    ),
    "robustness_cnn": Study(
        "the same on the paper's CNN",
        CNN,
        STRONGEST,
        NETWORK_RATES,
        budgets=tuple(BUDGETS),
        known="nonconvex",
        panels="budget",
    ),
    "measured": Study(
        "β measured against β = 1/t, on sets of three sizes",
        LOGISTIC,
        ("mu2_sgd", "mu2_sgd_measured", "sgd"),
        projections=("per_tensor", "ball_4", "none"),
        budgets=tuple(BUDGETS),
        known="convex",
        panels="sets",
        ylim=(0.5, 1.0),
    ),
    "part": Study(
        "the correction on a part of the batch, at equal evaluations",
        LOGISTIC,
        ("mu2_sgd", "mu2_sgd_measured", "sgd", *PARTS),
        projections=("per_tensor", "ball_4", "none"),
        budgets=("evaluations",),
        known="measured",
    ),
    "exact_gradient": Study(
        "an estimate without any error: Anytime-SGD with the gradient of all images",
        LOGISTIC,
        ("anytime_exact",),
        RATES[3:],
        projections=("ball_4",),
        seeds=1,
    ),
    "measured_networks_mlp": Study(
        "β measured with each momentum, on dense layers", MLP, tuple(MOMENTA), RATES[2:6]
    ),
    "measured_networks_cnn": Study("the same on the paper's CNN", CNN, tuple(MOMENTA), RATES[2:6]),
}


def folder(name: str, data: str) -> Path:
    """Where the results of a study on a data set are."""
    if name.startswith("measured_networks") and data == "mnist":
        return RESULTS / name
    return RESULTS / f"{name}_{data.replace('-', '_')}"


def cases(study: Study, optimizers: list[str], steps: int) -> list[Case]:
    """Every optimizer on every set, with each number of steps that it is run for."""
    counts = {
        "steps": lambda name: steps,
        "evaluations": lambda name: int(steps // OPTIMIZERS[name].gradients),
    }
    every = [
        Case(name, counts[budget](name), projection)
        for projection in study.projections
        for budget in study.budgets
        for name in optimizers
    ]
    return list(dict.fromkeys(every))


def make_trains(
    name: str, study: Study, data: Data
) -> Callable[[Case], Callable[..., dict[str, Any]]]:
    """From a case to the function that is swept over."""
    exact = name == "exact_gradient"
    tasks: dict[str, Callable[[], Functions]] = {
        LOGISTIC: lambda: logistic_task(data, BATCH, exact),
        MLP: lambda: dense_task(data, (256, 256), BATCH),
        CNN: lambda: cnn_task(data, BATCH),
    }
    task = tasks[study.model]()
    linear = study.model == LOGISTIC
    momentum = mu2_optax.linear_momentum() if linear else mu2_optax.fixed_momentum()

    def of_case(case: Case) -> Callable[..., dict[str, Any]]:
        own = Setting(momentum, PROJECTIONS[case.projection])
        points = POINTS if name == "convex" and case.steps % POINTS == 0 else 0
        train = make_train(task, OPTIMIZERS[case.optimizer], own, case.steps, points)
        return train if linear else jax.jit(train)

    return of_case


def draw(study: Study, results: experiment.Results, title: str, out: Path) -> None:
    """Draws test accuracy against the rate, as the study says."""
    sets = [name for name in study.projections if name != "global"]  # which looks like per_tensor
    words = {name: f"{title}, {IN_WORDS[name]}" if len(sets) > 1 else title for name in sets}
    files = [out / (f"figure_{name}.png" if i else "figure.png") for i, name in enumerate(sets)]
    if study.panels == "sets":
        panels = {IN_WORDS[n]: with_budget(results, "steps", projection=n) for n in sets}
        draw_rates(panels, title, files[0], study.ylim)
        return
    for name, file in zip(sets, files, strict=True):
        if study.panels == "budget":
            shown = BUDGETS.items()
            panels = {t: with_budget(results, b, projection=name) for b, t in shown}
        else:
            panels = {"": experiment.select(results, projection=name)}
        draw_rates(panels, words[name], file, study.ylim)


def main() -> None:
    """Runs a study."""
    known = "\n".join(f"    {name:22} {study.summary}" for name, study in STUDIES.items())
    about = f"{__doc__}\nStudies:\n\n{known}"
    parser = experiment.make_parser(about, data="mnist", rates=(), optimizers=())
    parser.add_argument("study", choices=STUDIES)
    args = parser.parse_args()
    if args.data == "cifar10":
        parser.error("the models take grey images: use benchmarks.cifar10 for cifar10")
    study = STUDIES[args.study]
    args.lrs, args.seeds = args.lrs or study.rates, args.seeds or study.seeds
    args.out = args.out or folder(args.study, args.data)
    data = datasets.load_or_exit(parser, args)
    run(study, data, args)
    results = experiment.load(args.out)
    title = f"{datasets.TITLES[args.data]}: {study.model.removesuffix(', with ReLUs')}"
    if study.panels:
        draw(study, results, title, args.out)
    curves = experiment.load(args.out, metric="test_loss_curve")
    if curves := experiment.select(curves):
        words = f"{title}, {IN_WORDS[study.projections[0]]}"
        draw_curves(curves, words, args.out / "curves.png")


def run(study: Study, data: Data, args: argparse.Namespace) -> None:
    """Runs what is missing."""

    def kept(cell: Cell, metric: str) -> bool:
        drawn = cell.projection == study.projections[0] and cell.rate in SHOWN
        return drawn or not metric.endswith("curve")

    batch = len(data.train_y) if args.study == "exact_gradient" else BATCH
    steps = args.steps or -(-len(data.train_y) // BATCH)
    experiment.run(
        cases(study, args.optimizers or list(study.optimizers), steps),
        make_trains(args.study, study, data),
        args,
        "benchmarks.studies",
        task=experiment.setting(study.model, args, data, batch=batch),
        known=folder(study.known, args.data) if study.known else None,
        strategy={CNN: "python", MLP: "loop"}.get(study.model, "vmap"),
        kept=kept,
    )


if __name__ == "__main__":
    main()
