"""An experiment: a sweep for each of several cases, in one folder, resumed where it stopped."""

import argparse
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from matplotlib.figure import Figure

from benchmarks import files
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.pictures import write_picture
from examples import data as datasets
from examples.option_types import positive_float, positive_int
from mu2_optax.sweep import SweepResult, load_results, plot_sweep, sweep

Results = dict[str, SweepResult]
MADE = ("command", "versions", "machine")  # what is kept of how a result was made


class Case(NamedTuple):
    """What a sweep is made for; its label is ``per_tensor/mu2_sgd/938``."""

    optimizer: str
    steps: int
    projection: str = "none"

    @property
    def label(self) -> str:
        """The label of the case's sweep."""
        return f"{self.projection}/{self.optimizer}/{self.steps}"


def make_parser(
    description: str | None, *, data: str, rates: Sequence[float], optimizers: Sequence[str]
) -> argparse.ArgumentParser:
    """The options that all experiments share, with these defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser, default=data)
    add = parser.add_argument
    add("--lrs", type=positive_float, nargs="+", default=rates, metavar="RATE", help="the rates")
    add("--seeds", type=positive_int, default=3, metavar="N", help="how many; default: 3")
    add("--optimizers", choices=OPTIMIZERS, nargs="+", default=optimizers, metavar="NAME")
    add("--steps", type=positive_int, metavar="N", help="default: whole epochs")
    add("--minutes", type=positive_float, help="start no run after so many; go on another time")
    add("--out", type=Path, metavar="DIR", help="default: a folder in benchmarks/results")
    return parser


def folder(kind: str, data: str) -> Path:
    """Where results of a kind on a data set are, such as those of ``"convex"``."""
    return files.RESULTS / f"{kind}_{data.replace('-', '_')}"


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
      args: The options of `make_parser`.
      setting: What else the numbers depend on; runs of another setting are refused.
      known: Results of another experiment, taken over where case and setting are the same.
      strategy: The strategy of `sweep`.

    Returns:
      A result for each case that has a finished run, by its label.
    """
    deadline = args.minutes and time.monotonic() / 60 + args.minutes
    own = load(args.out)
    results = {}
    for case in cases:
        gradients = OPTIMIZERS[case.optimizer].gradients
        context = case._asdict() | {"gradients_per_step": gradients, **setting}
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
    """Writes ``results.csv``, a row per run without curves, and ``meta.json``.

    Args:
      results: The results; those that were taken over say so by the command they have already.
      out: The folder. The journals of what has finished are removed from it.
      module: The module whose command makes them, such as ``"benchmarks.convex"``.
    """
    made = {"command": files.command_line(module)}
    versions = files.versions()
    results = [
        replace(
            result,
            info=made | result.info | {"versions": versions | result.info.get("versions", {})},
        )
        for result in results
    ]
    write(results, out)
    for result in results:
        if result.finished.all():
            journal_of(out, result.label).unlink(missing_ok=True)
    if not any(out.glob("journal/*")):
        shutil.rmtree(out / "journal", ignore_errors=True)
    print(f"wrote {out}: {sum(int(result.finished.sum()) for result in results)} runs")


def write(results: Sequence[SweepResult], out: Path) -> None:
    """Writes the final metrics, and what made them: what all have in common is said once."""
    rows = []
    for result in results:
        rows += cells(result, [name for name in result.metrics if not name.endswith("curve")])
    files.write_rows(out / "results.csv", rows)
    infos = [
        {name: result.info[name] for name in MADE if name in result.info} for result in results
    ]
    contexts = [result.info["context"] for result in results]
    shared, context = _common(infos), _common(contexts)
    lines = [
        json.dumps({result.label: _without(info, shared) | {"context": _without(own, context)}})
        for result, info, own in zip(results, infos, contexts, strict=True)
    ]
    head = json.dumps({**shared, "context": context}, indent=1)
    own_lines = ",\n  ".join(line[1:-1] for line in lines)
    text = f'{head[:-2]},\n "results": {{\n  {own_lines}\n }}\n}}\n'
    (out / "meta.json").write_text(text, encoding="utf-8")


def load(folder: Path) -> Results:
    """The results that `save` has written to a folder; none if it has not."""
    if not (folder / "meta.json").is_file():
        return {}
    shared = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    own = shared.pop("results")
    context = shared.pop("context")
    return {
        label: replace(
            result,
            info=shared | own[label] | {"context": context | own[label]["context"]},
        )
        for label, result in load_results(folder / "results.csv").items()
    }


def cells(result: SweepResult, metrics: Iterable[str]) -> Iterator[dict[str, Any]]:
    """A row of a CSV file for each run that has finished, as `load_results` reads it."""
    for cell in np.argwhere(result.finished):
        *point, seed = map(int, cell)
        row = {"optimizer": result.label}
        row |= {name: axis[i] for (name, axis), i in zip(result.axes.items(), point, strict=True)}
        row |= {"seed": result.seeds[seed]}
        row |= {name: result.metrics[name][tuple(cell)] for name in metrics}
        yield row | ({"error": result.errors.get((*point, seed), "")} if result.errors else {})


def select(results: Results, **values: Any) -> Results:
    """Results by their optimizer's title, of those whose case or setting has these values."""
    chosen = {
        result.info["context"]["optimizer"]: result
        for result in results.values()
        if all(result.info["context"][name] == value for name, value in values.items())
    }
    order = [name for name in (*OPTIMIZERS, *chosen) if name in chosen]
    return {OPTIMIZERS[n].title if n in OPTIMIZERS else n: chosen[n] for n in order}


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
    write_picture(figure, file)


def draw_sweep(results: Results, title: str, file: Path) -> None:
    """Draws the test accuracy against the learning rate."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    plot_sweep(results, "test_accuracy", axes=figure.subplots(), ylim=(0.0, 1.0))
    finish_figure(figure, title, file)


def seed_of(key: jax.Array) -> int:
    """The seed of ``jax.random.key(seed)``, for NumPy's generators: the last word of the key."""
    return int(jax.random.key_data(key)[-1])


def _covers(result: SweepResult, context: Mapping[str, Any], args: argparse.Namespace) -> bool:
    """Whether a result has every rate and seed that is asked for, in the same setting."""
    return (
        result.info["context"] == context
        and result.learning_rates.tolist() == sorted(args.lrs)
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


def _common(of_results: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The items that all have."""
    first, *others = of_results
    return {n: v for n, v in first.items() if all(n in o and o[n] == v for o in others)}


def _without(info: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in info.items() if name not in shared}
