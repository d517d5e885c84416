"""An experiment: a sweep for each of several cases, in one folder, resumed where it stopped."""

import argparse
import importlib.metadata
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
from matplotlib.figure import Figure

from benchmarks.contenders import GRADIENTS, TITLES
from examples import data as datasets
from examples.option_types import positive_float, positive_int
from mu2_optax.sweep import SweepResult, load_results, save_results, sweep

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("mu2-optax", "jax", "optax", "flax", "numpy", "scikit-learn")

Results = dict[str, SweepResult]


class Case(NamedTuple):
    """What a sweep is made for; its label is ``per_tensor/mu2_sgd/938``."""

    optimizer: str
    steps: int
    projection: str = "none"

    @property
    def label(self) -> str:
        """The label of the case's sweep."""
        return f"{self.projection}/{self.optimizer}/{self.steps}"


def add_arguments(
    parser: argparse.ArgumentParser, *, data: str, rates: Sequence[float], optimizers: Sequence[str]
) -> None:
    """Adds the options that all experiments share."""
    datasets.add_arguments(parser, default=data)
    add = parser.add_argument
    add("--lrs", type=positive_float, nargs="+", default=rates, metavar="RATE", help="the rates")
    add("--seeds", type=positive_int, default=3, metavar="N", help="how many; default: 3")
    add("--optimizers", choices=TITLES, nargs="+", default=optimizers, metavar="NAME")
    add("--steps", type=positive_int, metavar="N", help="default: whole epochs")
    add("--minutes", type=positive_float, help="start no run after so many; go on another time")
    add("--out", type=Path, metavar="DIR", help="default: a folder in benchmarks/results")


def run(
    cases: Iterable[Case],
    make_train: Callable[[Case], Callable[..., Mapping[str, Any]]],
    args: argparse.Namespace,
    *,
    setting: Mapping[str, Any],
    known: Results | None = None,
    strategy: str = "auto",
) -> Results:
    """Runs the cases that the folder ``args.out`` does not hold yet.

    Args:
      cases: What to run, one after another.
      make_train: Makes the function that a sweep of a case calls.
      args: The options of `add_arguments`.
      setting: What else the numbers depend on; runs of another setting are refused.
      known: Results of another experiment, taken over where case and setting are the same.
      strategy: The strategy of `sweep`.

    Returns:
      A result for each case that has a finished run, by its label.
    """
    deadline = args.minutes and time.monotonic() / 60 + args.minutes
    file = args.out / "results.json"
    own = load_results(file) if file.is_file() else {}
    results = {}
    for case in cases:
        context = case._asdict() | {"gradients_per_step": GRADIENTS[case.optimizer], **setting}
        if case.label in own:
            _check_setting(own[case.label], context, args.out)
        found = own.get(case.label) or (known or {}).get(case.label)
        if found is not None and _covers(found, context, args):
            results[case.label] = found
            continue
        results[case.label] = sweep(
            make_train(case),
            args.lrs,
            args.seeds,
            strategy=strategy,
            resume=journal_of(args.out, case.label),
            label=case.label,
            context=context,
            minutes=deadline and max(1e-6, deadline - time.monotonic() / 60),
        )
    return {label: result for label, result in results.items() if result.finished.any()}


def save(results: Iterable[SweepResult], out: Path, module: str) -> None:
    """Writes ``results.json``, with everything, and ``results.csv``, a row per run without curves.

    Args:
      results: The results; those that were taken over say so by the command they have already.
      out: The folder. The journals of what has finished are removed from it.
      module: The module whose command makes them, such as ``"benchmarks.convex"``.
    """
    versions = {package: importlib.metadata.version(package) for package in PACKAGES}
    made = {"command": command_line(module)}
    results = [
        replace(
            result,
            info=made | result.info | {"versions": versions | result.info.get("versions", {})},
        )
        for result in results
    ]
    save_results(results, out / "results.json")
    save_results([without_curves(result) for result in results], out / "results.csv")
    for result in results:
        if result.finished.all():
            journal_of(out, result.label).unlink(missing_ok=True)
    if not any(out.glob("journal/*")):
        shutil.rmtree(out / "journal", ignore_errors=True)
    print(f"wrote {out}: {sum(int(result.finished.sum()) for result in results)} runs")


def select(results: Results, **values: Any) -> Results:
    """Results by their optimizer's title, of those whose case or setting has these values."""
    chosen = {
        result.info["context"]["optimizer"]: result
        for result in results.values()
        if all(result.info["context"][name] == value for name, value in values.items())
    }
    order = dict.fromkeys((*TITLES, *chosen))
    return {TITLES.get(name, name): chosen[name] for name in order if name in chosen}


def projections(results: Results) -> list[str]:
    """The projections that the cases have, each once."""
    return list(dict.fromkeys(result.info["context"]["projection"] for result in results.values()))


def finish_figure(figure: Figure, title: str, file: Path) -> None:
    """Gives panels that share their axes a title and one legend, and writes the picture."""
    entries: dict[str, Any] = {}
    for axes in figure.axes:
        axes.label_outer()
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    figure.legend(
        entries.values(), entries, loc="outside lower center", ncols=4, frameon=False, fontsize=10
    )
    figure.savefig(file)


def without_curves(result: SweepResult) -> SweepResult:
    """A result without the metrics whose names end in ``curve``."""
    kept = {name: a for name, a in result.metrics.items() if not name.endswith("curve")}
    return replace(result, metrics=kept)


def command_line(module: str, options: Sequence[str] | None = None) -> str:
    """The command that runs a module, with DATA for the folder of the data."""
    text = " ".join(["python -m", module, *(sys.argv[1:] if options is None else options)])
    return re.sub(r"(--data-dir[= ])\S+", r"\1DATA", text)


def seed_of(key: jax.Array) -> int:
    """The seed of ``jax.random.key(seed)``, for NumPy's generators: the last word of the key."""
    return int(jax.random.key_data(key)[-1])


def _covers(result: SweepResult, context: Mapping[str, Any], args: argparse.Namespace) -> bool:
    """Whether a result has every rate and seed that is asked for, in the same setting."""
    return (
        result.info["context"] == context
        and result.learning_rates.tolist() == list(args.lrs)
        and result.seeds.tolist() == list(range(args.seeds))
        and bool(result.finished.all())
    )


def journal_of(out: Path, label: str) -> Path:
    """Where an unfinished case is kept."""
    return out / "journal" / f"{label.replace('/', '-')}.jsonl"


def _check_setting(result: SweepResult, context: Mapping[str, Any], out: Path) -> None:
    for name, value in context.items():
        found = result.info["context"].get(name)
        if found != value:
            raise SystemExit(
                f"{out} holds runs with {name} {found}, not {value}: choose another folder with "
                "--out"
            )
