"""Training of a network over learning rates and seeds: one compiled step, called from a loop.

On a CPU, XLA runs convolutions inside ``lax.scan`` many times slower than outside, so the loop is
Python's. The learning rate is an argument of the compiled step: one compile for all cells.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import records
from figures import against_rate
from flags import positive_int  # examples/flags.py
from optimizers import GRADIENTS, TITLES, evaluation_params, make_optimizer
from records import Row

import mu2_optax
from mu2_optax.sweep import save_results


class Task(NamedTuple):
    """A network and its data, as pure functions.

    Attributes:
      init: From a seed to (params, statistics).
      loss: Of (params, statistics, batch) in training mode; returns (loss, statistics).
      measure: Of (params, statistics), returns the test accuracy and the test loss.
      recalibrated: Of (params, statistics, seed), returns the statistics at these params.
      batches: From (seed, steps) to an iterator over the batches of training.
    """

    init: Callable[[int], tuple[Any, Any]]
    loss: Callable[[Any, Any, Any], tuple[Any, Any]]
    measure: Callable[[Any, Any], tuple[float, float]]
    recalibrated: Callable[[Any, Any, int], Any]
    batches: Callable[[int, int], Iterator[Any]]


def shuffled(images: int, batch: int, seed: int, count: int) -> Iterator[Any]:
    """The rows of ``count`` batches: all images in a new order in each epoch, none left over."""
    rng = np.random.default_rng(seed)
    epochs = -(-count * batch // images)
    order = np.concatenate([rng.permutation(images) for _ in range(epochs)])
    return (order[start : start + batch] for start in range(0, count * batch, batch))


def make_steps(task: Task, optimizer: str) -> tuple[Any, Any]:
    """The compiled first state of an optimizer, and its compiled step."""
    momentum = mu2_optax.fixed_momentum()
    value_and_grad = jax.value_and_grad(task.loss, has_aux=True)

    def grad_fn(params: Any, sample: Any) -> Any:
        return value_and_grad(params, *sample)[1]

    @jax.jit
    def init(learning_rate: Any, params: Any) -> Any:
        return make_optimizer(optimizer, learning_rate, momentum, None).init(params)

    @jax.jit
    def step(learning_rate: Any, params: Any, statistics: Any, state: Any, batch: Any) -> Any:
        tx = make_optimizer(optimizer, learning_rate, momentum, None)
        sample = (statistics, batch)  # both evaluations normalise and drop alike
        (_, statistics), grads = value_and_grad(params, *sample)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=sample)
        return optax.apply_updates(params, updates), statistics, state

    return init, step


def run_cell(task: Task, steps: tuple[Any, Any], rate: float, seed: int, count: int) -> Any:
    """Trains once; returns the test accuracy and the test loss."""
    init, step = steps
    rate = np.float32(rate)
    params, statistics = task.init(seed)
    state = init(rate, params)
    for batch in task.batches(seed, count):
        params, statistics, state = step(rate, params, statistics, state, batch)
    final = evaluation_params(state, params)
    if final is not params:  # schedule-free: the running statistics are not those of its average
        statistics = task.recalibrated(final, statistics, seed)
    return task.measure(final, statistics)


def run_grid(
    task: Task,
    optimizers: Sequence[tuple[str, int]],
    rates: Sequence[float],
    seeds: int,
    journal: Path,
    known: Sequence[Row] = (),
    deadline: float = float("inf"),
) -> list[Row]:
    """Runs every cell that is not known yet, a seed after another, and records each at once.

    Args:
      task: The network.
      optimizers: Pairs of an optimizer's name and its number of steps.
      rates: The learning rates.
      seeds: How many seeds.
      journal: A file with a line per finished cell; what it holds is not run again.
      known: Rows of other experiments with the same setting, which are taken over.
      deadline: When to start no further cell, by ``time.monotonic``.

    Returns:
      The rows of all finished cells, by seed, optimizer and rate.
    """
    rows: dict[Any, Row] = {}
    journal.parent.mkdir(parents=True, exist_ok=True)
    lines = journal.read_text().splitlines() if journal.is_file() else []
    for row in [*known, *map(json.loads, lines)]:
        rows[_key(row)] = row
    wanted = {}
    for seed, (name, steps), rate in itertools.product(range(seeds), optimizers, rates):
        row = {
            "optimizer": name,
            "learning_rate": float(rate),
            "seed": seed,
            "projection": "none",
            "steps": steps,
            "gradient_evaluations": steps * GRADIENTS[name],
        }
        wanted[_key(row)] = row
    compiled: dict[str, Any] = {}
    for key, row in wanted.items():
        if key in rows or time.monotonic() > deadline:
            continue
        name = row["optimizer"]
        start = time.perf_counter()
        if name not in compiled:
            compiled[name] = make_steps(task, name)
        accuracy, loss = run_cell(
            task, compiled[name], row["learning_rate"], row["seed"], row["steps"]
        )
        rows[key] = row | {"test_accuracy": accuracy, "test_loss": loss}
        with journal.open("a") as file:
            file.write(json.dumps(rows[key]) + "\n")
        print(
            f"seed {row['seed']}  {name:20} rate {row['learning_rate']:<8g} {row['steps']} steps  "
            f"accuracy {accuracy:.4f}  loss {loss:.4g}  ({time.perf_counter() - start:.0f} s)",
            flush=True,
        )
    return [rows[key] for key in wanted if key in rows]


def complete_seeds(
    rows: Sequence[Row], optimizers: Sequence[tuple[str, int]], rates: Sequence[float]
) -> int:
    """For how many seeds, from 0 on, every pair of optimizer and steps has every rate."""
    found = {_key(row) for row in rows}
    complete = (
        all(
            (name, float(rate), seed, steps) in found
            for name, steps in optimizers
            for rate in rates
        )
        for seed in itertools.count()
    )
    return sum(1 for _ in itertools.takewhile(bool, complete))


def add_arguments(
    parser: argparse.ArgumentParser, rates: Sequence[float], optimizers: Sequence[str]
) -> None:
    """Adds the options that the experiments on networks share."""
    parser.add_argument("--lrs", type=records.rates, default=rates, help="learning rates, a,b,c")
    parser.add_argument("--seeds", type=positive_int, default=3, help="how many")
    parser.add_argument(
        "--optimizers", type=records.some_of(tuple(TITLES)), default=optimizers, help="a,b,c"
    )
    parser.add_argument("--steps", type=positive_int, help="default: the whole epochs")
    parser.add_argument(
        "--minutes", type=positive_int, help="start no run after so many; go on another time"
    )


def run_experiment(
    task: Task,
    optimizers: Sequence[tuple[str, int]],
    args: argparse.Namespace,
    *,
    out: Path,
    title: str,
    facts: dict[str, Any],
) -> None:
    """Runs a grid and writes its rows, its picture and how it was run."""
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    journal, results = out / "journal.jsonl", out / "results.csv"
    _check_setting(out / "run.json", facts)
    known = records.read_rows(results) if results.is_file() else []
    rows = run_grid(task, optimizers, args.lrs, args.seeds, journal, known, deadline)
    finished = complete_seeds(rows, optimizers, args.lrs)
    if not finished:
        print("no seed is complete yet: run the command again to go on")
        return
    rows = [row for row in rows if row["seed"] < finished]
    sweeps = records.as_sweeps(rows, TITLES)
    records.write_rows(rows, results)
    save_results(sweeps, out / "results.json")
    against_rate(sweeps, out / "figure.png", title=title)
    records.write_run(out / "run.json", seeds=finished, **facts)
    if finished == args.seeds:
        journal.unlink(missing_ok=True)
    print(f"wrote {out} with {finished} of {args.seeds} seeds")


def _check_setting(path: Path, facts: dict[str, Any]) -> None:
    """Refuses to go on from runs of another network, batch or data set; else notes the setting."""
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        records.write_run(path, seeds=0, **facts)
        return
    found = json.loads(path.read_text(encoding="utf-8"))
    for name, value in facts.items():
        if found.get(name) != value:
            raise SystemExit(
                f"{path.parent} holds runs with {name} {found.get(name)}, not {value}: "
                "choose another folder with --out"
            )


def _key(row: Row) -> tuple[Any, ...]:
    return row["optimizer"], row["learning_rate"], row["seed"], row["steps"]
