"""Nothing to choose: ``mu2_auto()`` beside its peers, untouched and tuned, task by task.

    python -m benchmarks.no_tuning --task digits --seeds 5        # an MLP; 150 s
    python -m benchmarks.no_tuning --task logistic_mnist          # 103 s
    python -m benchmarks.no_tuning --task logistic_fashion_mnist  # 102 s
    python -m benchmarks.no_tuning --task mlp_mnist               # 6 minutes with --grid-seeds 1
    python -m benchmarks.no_tuning --task mlp_fashion_mnist       # 7 minutes with --grid-seeds 1
    python -m benchmarks.no_tuning --task transformer             # half an hour with --grid-seeds 1
    python -m benchmarks.no_tuning --task cnn_mnist

The times are of one core of a 2-core x86-64 CPU; that of the last is not known as a whole, but a
run takes about a quarter of a minute, so use ``--minutes``.

One gradient a step for all but μ²-SGD, which is run with as many steps and with half of them, which
are as many gradients. First every optimizer is run untouched: at the default of ``optax.contrib``
where it has one, else at the rate that is customary (``UNTOUCHED``). Then follow the decades from
1e-4 to 10, and for ``mu2_auto`` the factors from 0.01 to 100; tuned means the best mean of them
all, the untouched rate included. Schedule-free is evaluated at its average. The result to expect:
untouched ``mu2_auto`` is level with the best tuned peer on images, to 0.002, and behind Muon on the
transformer; its factor hardly matters.

Each command writes ``results.json`` and ``results.csv`` (a row per run) into
``benchmarks/results/no_tuning_<task>``, draws ``benchmarks/results/no_tuning/figure.png`` anew from
all tasks, and goes on where it was stopped, by ``--minutes`` or otherwise. Runs of the CNN that
``benchmarks.nonconvex`` or ``benchmarks.robustness`` has made are taken from their results.
"""

import argparse
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from benchmarks import character_task, experiment, image_tasks
from benchmarks.contenders import GRADIENTS, TITLES
from benchmarks.scanned_task import Task, make_train
from examples import data as datasets
from examples.option_types import positive_float, positive_int
from mu2_optax.sweep import SweepResult, load_results, merge, sweep

AUTO = "mu2_auto"
SPECTRAL = "mu2_auto_spectral"  # with orthogonal steps for the matrices inside the layers
# The rate of someone who does not choose one. Those of schedule-free, Prodigy, DoG, DoWG and
# D-Adapt are Optax's defaults; Optax has none for the others.
UNTOUCHED = {
    AUTO: 1.0,
    SPECTRAL: 1.0,
    "adam": 1e-3,
    "sgd": 0.1,
    "momentum": 0.1,
    "schedule_free_sgd": 1.0,
    "schedule_free_adamw": 0.0025,
    "prodigy": 1.0,
    "dog": 1.0,
    "dowg": 1.0,
    "dadapt_adamw": 1.0,
    "muon": 0.02,
    "mu2_sgd": 0.1,
}
RATES = (1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0)
FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)
SAME_RUNS = ("nonconvex_mnist", "robustness_cnn_mnist")


class Setting(NamedTuple):
    """A task: its name in words, data, steps, batch, and the metric that decides.

    ``hidden`` has the sizes of an MLP's hidden layers; without any it is logistic regression. A
    ``variant`` of another task, longer or with smaller batches, is not in the picture.
    """

    title: str
    data: str
    steps: int
    batch: int
    judged_by: str = "test_accuracy"
    strategy: str = "loop"
    hidden: tuple[int, ...] = ()
    variant: bool = False


SMALL, WIDE = (64, 64), (256, 256)
TASKS = {
    "digits": Setting("digits, MLP 64-64-64-10", "digits", 450, 32, hidden=SMALL),
    "digits_batch_2": Setting(
        "digits, MLP 64-64-64-10, batches of 2", "digits", 4000, 2, hidden=SMALL, variant=True
    ),
    "logistic_mnist": Setting("MNIST, logistic regression", "mnist", 938, 64, strategy="vmap"),
    "logistic_fashion_mnist": Setting(
        "Fashion-MNIST, logistic regression", "fashion-mnist", 938, 64, strategy="vmap"
    ),
    "logistic_mnist_10_epochs": Setting(
        "MNIST, logistic regression, 10 epochs", "mnist", 9380, 64, strategy="vmap", variant=True
    ),
    "mlp_mnist": Setting("MNIST, MLP 784-256-256-10", "mnist", 938, 64, hidden=WIDE),
    "mlp_mnist_3_epochs": Setting(
        "MNIST, MLP 784-256-256-10, 3 epochs", "mnist", 2814, 64, hidden=WIDE, variant=True
    ),
    "mlp_mnist_batch_1": Setting(
        "MNIST, MLP 784-256-256-10, batches of 1", "mnist", 4000, 1, hidden=WIDE, variant=True
    ),
    "mlp_fashion_mnist": Setting(
        "Fashion-MNIST, MLP 784-256-256-10", "fashion-mnist", 938, 64, hidden=WIDE
    ),
    "cnn_mnist": Setting("MNIST, the paper's CNN", "mnist", 938, 64),
    "transformer": Setting("characters, transformer", "pydoc topics", 600, 16, "test_loss"),
}


class Part(NamedTuple):
    """A rectangle of rates and seeds of a case."""

    case: experiment.Case
    rates: tuple[float, ...]
    seeds: int


def make_task(name: str, data_dir: str | None) -> Task:
    """Loads the data of a task and makes it."""
    setting = TASKS[name]
    if name == "transformer":
        return character_task.transformer_task(character_task.text(), setting.batch)
    data = datasets.load(setting.data, data_dir)
    if name == "cnn_mnist":
        return image_tasks.cnn_task(data, setting.batch)
    return image_tasks.dense_task(data, setting.hidden, setting.batch)


def parts(args: argparse.Namespace) -> Iterator[Part]:
    """Everything untouched, then the factors of ``mu2_auto``, then the rates of the others.

    Rates that are run side by side are not parted, because that would compile twice.
    """
    setting = TASKS[args.task]
    steps = args.steps or setting.steps
    cases = [
        experiment.Case(name, count)
        for name in args.optimizers
        if name != SPECTRAL or args.task == "transformer"
        for count in dict.fromkeys((steps, steps // GRADIENTS[name]))
    ]
    cases.sort(key=lambda case: case.optimizer != AUTO)
    first, second = [], []
    for case in cases:
        start = UNTOUCHED[case.optimizer]
        own = case.optimizer in (AUTO, SPECTRAL)
        rates = FACTORS if own else args.lrs
        rest = tuple(rate for rate in rates if rate != start)
        seeds = args.grid_seeds if args.grid_seeds and not own else args.seeds
        if setting.strategy == "vmap" and seeds == args.seeds:
            first.append(Part(case, (start, *rest), seeds))
            continue
        first.append(Part(case, (start,), args.seeds))
        if rest:
            second.append(Part(case, rest, seeds))
    yield from first
    yield from second


def run(args: argparse.Namespace) -> experiment.Results:
    """Runs what the folder ``args.out`` does not hold yet, and writes after each part."""
    deadline = args.minutes and time.monotonic() + 60 * args.minutes
    file = args.out / "results.json"
    results = load_results(file) if file.is_file() else {}
    setting = TASKS[args.task]
    task = None
    for part in parts(args):
        case = part.case
        before = results.get(case.label)
        context = case._asdict() | {
            "gradients_per_step": GRADIENTS[case.optimizer],
            "model": setting.title,
            "task": args.task,
            "data": setting.data,
            "batch": setting.batch,
            "judged_by": setting.judged_by,
            "untouched": UNTOUCHED[case.optimizer],
        }
        if before is not None and before.info["context"] != context:
            raise SystemExit(f"{args.out} holds runs of another setting: choose another with --out")
        if (known := same_runs(case, args)) is not None:
            known = replace(known, info=known.info | {"context": context})
            before = results[case.label] = merge(*filter(None, (before, known)))
            experiment.save(results.values(), args.out, "benchmarks.no_tuning")
        rates, seeds = missing(before, part)
        if not rates:
            continue
        left = deadline and (deadline - time.monotonic()) / 60
        if left is not None and left <= 0:
            break
        task = task or make_task(args.task, args.data_dir)
        journal = args.out / "journal" / f"{case.label.replace('/', '-')}-{rates[0]:g}.jsonl"
        found = sweep(
            make_train(task, case),
            rates,
            seeds,
            strategy=setting.strategy,
            resume=journal,
            label=case.label,
            context=context,
            minutes=left,
        )
        if found.finished.any():
            results[case.label] = merge(*filter(None, (before, found)))  # which sorts the rates
            experiment.save(results.values(), args.out, "benchmarks.no_tuning")
        journal.unlink(missing_ok=True)  # what it has is in the results now
        if journal.parent.is_dir() and not any(journal.parent.iterdir()):
            journal.parent.rmdir()
    return results


def same_runs(case: experiment.Case, args: argparse.Namespace) -> SweepResult | None:
    """What other experiments have of a case: their CNN, data and batches are the same."""
    if args.task != "cnn_mnist":
        return None
    files = (experiment.RESULTS / name / "results.json" for name in SAME_RUNS)
    known = (load_results(file).get(case.label) for file in files if file.is_file())
    found = [experiment.without_curves(result) for result in known if result is not None]
    return merge(*found) if found else None


def missing(result: SweepResult | None, part: Part) -> tuple[list[float], list[int]]:
    """The rates and the seeds of a part for which a result lacks a run."""
    done = {
        (float(result.learning_rates[i]), int(result.seeds[j]))
        for i, j in (() if result is None else np.argwhere(result.finished))
    }
    cells = [cell for cell in itertools.product(part.rates, range(part.seeds)) if cell not in done]
    return list(dict.fromkeys(rate for rate, _ in cells)), sorted({seed for _, seed in cells})


class Outcome(NamedTuple):
    """An optimizer's mean over the seeds at a rate; how many seeds there were."""

    rate: float
    test_accuracy: float
    test_loss: float
    seeds: int

    def judged(self, metric: str) -> float:
        """The metric that decides, larger is better, never NaN."""
        value = getattr(self, metric) * (-1 if metric == "test_loss" else 1)
        return value if np.isfinite(value) else -np.inf


def outcomes(result: SweepResult) -> list[Outcome]:
    """The means over the seeds that were run, a row per rate; NaN if one of them diverged."""
    found = []
    for index in np.argsort(result.learning_rates):
        seen = result.finished[index]
        if seen.any():
            accuracy, loss = (
                float(result.final(name)[index][seen].mean())
                for name in ("test_accuracy", "test_loss")
            )
            rate = float(result.learning_rates[index])
            found.append(Outcome(rate, accuracy, loss, int(seen.sum())))
    return found


def untouched(result: SweepResult) -> Outcome | None:
    """The outcome at the rate of someone who does not choose one."""
    rate = result.info["context"]["untouched"]
    return next((outcome for outcome in outcomes(result) if outcome.rate == rate), None)


def tuned(result: SweepResult) -> Outcome:
    """The best outcome of all rates."""
    metric = result.info["context"]["judged_by"]
    return max(outcomes(result), key=lambda outcome: outcome.judged(metric))


def title_of(result: SweepResult, steps: int) -> str:
    """The optimizer's title, and that it took half the steps if it did."""
    context = result.info["context"]
    half = "" if context["steps"] == steps else ", half the steps"
    return TITLES[context["optimizer"]] + half


def draw(results: dict[str, experiment.Results], file: Path) -> None:
    """A panel for each task: the metric that decides against the rate, ``mu2_auto`` on top."""
    shown = [name for name, task in TASKS.items() if results.get(name) and not task.variant]
    shown = shown or list(results)
    columns = min(3, len(shown))
    lines = -(-len(shown) // columns)
    figure = Figure(figsize=(3.9 * columns, 3.1 * lines + 0.9), dpi=150, layout="constrained")
    grid = np.ravel(figure.subplots(lines, columns, squeeze=False, sharex=True))
    entries: dict[str, Any] = {}
    for axes, name in itertools.zip_longest(grid, shown):
        if name is None:
            axes.set_axis_off()
        else:
            draw_task(axes, TASKS[name], results[name])
            axes.tick_params(labelbottom=True)
            handles, labels = axes.get_legend_handles_labels()
            entries |= dict(zip(labels, handles, strict=True))
    figure.suptitle(
        "Large marks: untouched. Lines that leave a panel go on below it (above it for a loss).\n"
        "A factor: mu2_auto, Prodigy, DoG, DoWG and D-Adapt. A learning rate: all others.",
        fontsize=10,
    )
    marks = list(entries.values()), list(entries)
    if len(shown) < len(grid):  # in the place of a panel, and of more room to its right
        legend = grid[len(shown)].legend(
            *marks, loc="center left", ncols=2, frameon=False, fontsize=10
        )
        legend.set_in_layout(False)
    else:
        figure.legend(*marks, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)


def draw_task(axes: Any, setting: Setting, results: experiment.Results) -> None:
    """One panel, at equal steps, cut off where a line is of no interest any more."""
    metric = setting.judged_by
    steps = max(result.info["context"]["steps"] for result in results.values())
    own = {
        result.info["context"]["optimizer"]: result
        for result in results.values()
        if result.info["context"]["steps"] == steps
    }
    for number, (optimizer, start) in enumerate(UNTOUCHED.items()):
        if optimizer in own:
            found = [row for row in outcomes(own[optimizer]) if np.isfinite(row.test_loss)]
            points = [(row.rate, getattr(row, metric)) for row in found]
            untuned = [point for point in points if point[0] == start]
            axes.plot(*np.reshape(points, (-1, 2)).T, label=TITLES[optimizer], **style(number))
            axes.plot(*np.reshape(untuned, (-1, 2)).T, **style(number) | {"ms": 8, "ls": ""})
    best = max(tuned(result).judged(metric) for result in own.values())
    low = metric == "test_loss"
    worst = min(outcome.judged(metric) for result in own.values() for outcome in outcomes(result))
    limits = (-best - 0.08, -best + 1.2) if low else (max(best - 0.12, worst - 0.01), best + 0.008)
    axes.set(xscale="log", ylim=limits)
    axes.set_title(setting.title, fontsize=10)
    axes.set_xlabel("learning rate, or factor on it", fontsize=9)
    axes.set_ylabel("validation loss" if low else "test accuracy", fontsize=9)
    axes.grid(alpha=0.25)


def style(number: int) -> dict[str, Any]:
    """The colour, mark and line of an optimizer; the first two are thick and in front."""
    colors = (
        "#D55E00",
        "#882255",
        "#0072B2",
        "#7F7F7F",
        "#000000",
        "#009E73",
        "#CC79A7",
        "#56B4E9",
        "#E69F00",
    )
    marks = "osv^DPX*<>ph"
    chosen = {
        "color": colors[number % len(colors)],
        "marker": marks[number % len(marks)],
        "ls": ("-", "--")[number // len(colors)],
        "lw": 1.2,
        "ms": 4,
        "zorder": 2,
    }
    return chosen | {"lw": 3, "zorder": 5} if number < 2 else chosen


def load_all(folder: Path = experiment.RESULTS) -> dict[str, experiment.Results]:
    """The results of every task that has some, by the task's name."""
    files = {name: folder / f"no_tuning_{name}" / "results.json" for name in TASKS}
    return {name: load_results(file) for name, file in files.items() if file.is_file()}


def main() -> None:
    """Runs a task."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add: Callable[..., Any] = parser.add_argument
    add("--task", choices=TASKS, required=True)
    add("--data-dir", metavar="DIR", help="folder with the data set's canonical files")
    add("--optimizers", choices=UNTOUCHED, nargs="+", default=tuple(UNTOUCHED), metavar="NAME")
    add("--lrs", type=positive_float, nargs="*", default=RATES, metavar="RATE")
    add("--seeds", type=positive_int, default=3, metavar="N", help="default: 3")
    add("--grid-seeds", type=positive_int, metavar="N", help="of the tuned peers; default: as many")
    add("--steps", type=positive_int, metavar="N", help="default: those of the task")
    add("--minutes", type=positive_float, help="start no run after so many; go on another time")
    add("--out", type=Path, metavar="DIR", help="default: a folder in benchmarks/results")
    args = parser.parse_args()
    own = args.out is None
    args.out = args.out or experiment.RESULTS / f"no_tuning_{args.task}"
    try:
        results = run(args)
    except datasets.DataError as error:
        parser.exit(1, f"{error}\n")
    every = load_all() if own else {args.task: results}
    draw(every, (experiment.RESULTS / "no_tuning" if own else args.out) / "figure.png")


if __name__ == "__main__":
    main()
