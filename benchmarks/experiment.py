"""An experiment: runs of several optimizers, rates and seeds, kept in one file of records."""

import argparse
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.optimizers import OPTIMIZERS
from benchmarks.records import Records, Runs, made_by
from examples import data as datasets
from examples.option_types import positive_float, positive_int
from mu2_optax.sweep import Data, SweepResult, sweep

FILE = "runs.json"
Results = dict[str, SweepResult]


class Case(NamedTuple):
    """What rates and seeds are swept for."""

    optimizer: str
    steps: int
    projection: str = "none"


class Cell(NamedTuple):
    """Which run it is."""

    optimizer: str
    projection: str
    steps: int
    rate: float
    seed: int

    @property
    def case(self) -> Case:
        """Its case."""
        return Case(self.optimizer, self.steps, self.projection)


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
    add("--seeds", type=positive_int, metavar="N", help="how many; default: 3")
    add("--optimizers", choices=OPTIMIZERS, nargs="+", default=optimizers, metavar="NAME")
    add("--steps", type=positive_int, metavar="N", help="default: whole epochs")
    add("--minutes", type=positive_float, help="start nothing after so many; go on another time")
    add("--out", type=Path, metavar="DIR", help="default: a folder in benchmarks/results")
    return parser


def setting(model: str, args: argparse.Namespace, data: Data, **more: Any) -> dict[str, Any]:
    """What the numbers of a file depend on, besides optimizer, projection, steps, rate and seed."""
    images = [len(data.train_y), len(data.test_y)]
    return {"model": model, "data": args.data, "images": images, **more}


def run(
    cases: Iterable[Case],
    make_train: Callable[[Case], Callable[..., Mapping[str, Any]]],
    args: argparse.Namespace,
    module: str,
    *,
    task: Mapping[str, Any],
    known: Path | None = None,
    strategy: Any = "vmap",
    kept: Callable[[Cell, str], bool] = lambda cell, metric: True,
) -> None:
    """Runs what the folder ``args.out`` does not hold yet; what has finished is kept at once.

    Args:
      cases: What to run, one after another, each in a sweep over rates and seeds.
      make_train: Makes the function that a sweep of a case calls.
      args: The options of `make_parser`.
      module: The module whose command this is, such as ``"benchmarks.cifar10"``.
      task: What the numbers depend on; the runs of another task are refused.
      known: The folder of another experiment on the same task, whose runs are taken over.
      strategy: The strategy of `sweep`.
      kept: Whether a metric of a run is kept.
    """
    deadline = args.minutes and time.monotonic() + 60 * args.minutes
    records, info = Records(args.out / FILE, Cell, dict(task)), made_by(module)
    taken = Records(known / FILE, Cell, dict(task)) if known else None
    for case in cases:
        wanted = [_cell(case, rate, seed) for rate in args.lrs for seed in range(args.seeds)]
        if set(wanted) <= set(records.read()):
            continue
        if taken and set(wanted) <= set(runs := taken.read()):
            for cell in wanted:
                records.add({cell: runs[cell]}, taken.info()[runs[cell].pop("info")])
            continue
        if deadline and time.monotonic() > deadline:
            print("stopped: go on with the same command")
            return
        result = sweep(
            make_train(case), sorted(args.lrs), args.seeds, strategy=strategy, label=str(case)
        )
        found: Runs = {}
        for i, rate in enumerate(result.learning_rates.tolist()):
            for j, seed in enumerate(result.seeds.tolist()):
                cell = _cell(case, rate, seed)
                values = {n: a[i, j].tolist() for n, a in result.metrics.items() if kept(cell, n)}
                found[cell] = values
        records.add(found, info)
    print(f"{records.file}: {len(records.read())} runs")


def load(folder: Path, metric: str = "test_loss") -> Results:
    """A result for each case in a folder, of the runs that have a metric."""
    cases: dict[Case, Runs] = {}
    for cell, run in Records(folder / FILE, Cell, None).read().items():
        if metric in run:
            cases.setdefault(cell.case, {})[cell] = run
    return {"/".join(map(str, case)): as_result(case, runs) for case, runs in cases.items()}


def as_result(case: Case, runs: Runs) -> SweepResult:
    """The runs of a case as a sweep gives them; of the metrics, those that all runs have."""
    rates = sorted({cell.rate for cell in runs})
    seeds = sorted({cell.seed for cell in runs})
    names = set.intersection(*(set(run) for run in runs.values())) - {"info"}
    ordered = lambda name: [[runs[_cell(case, r, s)][name] for s in seeds] for r in rates]
    context = case._asdict() | {"gradients_per_step": OPTIMIZERS[case.optimizer].gradients}
    return SweepResult(
        metrics={name: np.array(ordered(name)) for name in sorted(names)},
        axes={"learning_rate": np.array(rates)},
        seeds=np.array(seeds),
        finished=np.ones((len(rates), len(seeds)), bool),
        label=OPTIMIZERS[case.optimizer].title,
        info={"context": context},
    )


def select(results: Results, **values: Any) -> Results:
    """Results by their optimizer's title, of those whose case has these values."""
    chosen = {
        result.info["context"]["optimizer"]: result
        for result in results.values()
        if all(result.info["context"][name] == value for name, value in values.items())
    }
    return {OPTIMIZERS[name].title: chosen[name] for name in OPTIMIZERS if name in chosen}


def seed_of(key: jax.Array) -> int:
    """The seed of ``jax.random.key(seed)``, for NumPy's generators: the last word of the key."""
    return int(jax.random.key_data(key)[-1])


def _cell(case: Case, rate: float, seed: int) -> Cell:
    return Cell(case.optimizer, case.projection, case.steps, float(rate), seed)
