"""What the options ask for: which functions to sweep, over what, where, and into which folder."""

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

from mu2_optax import fixed_momentum, linear_momentum, onto_l2_ball
from mu2_optax.sweep._analysis.metrics import Mode, metric_mode
from mu2_optax.sweep._command.optimizers import OPTIMIZERS, make_optimizer
from mu2_optax.sweep._command.parsing import UsageError, choose, import_train
from mu2_optax.sweep._command.tasks import METRICS, TASKS
from mu2_optax.sweep._grid import Grid, make_grid
from mu2_optax.sweep._run.tracing import check_precision

Train = Callable[..., Any]


@dataclass(frozen=True)
class Plan:
    """What will be run.

    Attributes:
      name: The task's name.
      trains: A function of (learning_rate, key) for each label.
      radius: The radius of the ball that holds the params, or None.
      grid: The rates and seeds.
      folder: The run folder.
    """

    name: str
    trains: dict[str, Train]
    radius: float | None
    grid: Grid
    folder: Path


def make_plan(options: argparse.Namespace) -> Plan:
    """Reads the plan from the options.

    Raises:
      UsageError: If they contradict each other, or name what does not exist.
    """
    if options.function and options.task:
        raise UsageError("give --task or a function of your own, not both.")
    if options.function and options.data:
        raise UsageError("--data is the folder of a built-in task; a function reads its own data.")
    if options.radius is not None and not 0 < options.radius < inf:
        raise UsageError(f"--radius must be positive and finite, got {options.radius:g}.")
    by_hand = options.strategy == "python"
    if by_hand and options.chunk_size is not None:
        raise UsageError("--chunk-size does not apply to --strategy python: one cell at a time.")
    try:
        grid = make_grid(options.lrs, options.seeds)
        if not by_hand:
            check_precision(grid)
    except ValueError as error:
        raise UsageError(str(error)) from error
    name, trains, radius = _own_task(options) if options.function else _built_in_task(options)
    return Plan(name, trains, radius, grid, _folder(options, name))


@contextmanager
def open_executor(options: argparse.Namespace) -> Iterator[Executor | None]:
    """Connects to ``--scheduler``, or starts ``--workers`` processes, and closes what it opened.

    The processes speak TLS with a key made for them alone, so that nobody else who can reach their
    ports can join.

    Args:
      options: The options.

    Yields:
      Dask's executor, or None if neither option is given.

    Raises:
      UsageError: If Dask is missing or there is no such scheduler.
    """
    if options.scheduler is None and options.workers is None:
        yield None
        return
    try:
        import cloudpickle
        from distributed import Client, LocalCluster
    except ModuleNotFoundError as error:
        raise UsageError(
            "--scheduler and --workers need Dask: `pip install distributed cloudpickle "
            "cryptography`."
        ) from error
    if options.workers is not None:
        with (
            LocalCluster(
                n_workers=options.workers,
                threads_per_worker=1,
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                security=True,
            ) as cluster,
            Client(cluster) as client,
        ):
            yield client.get_executor()
        return
    if options.function:  # workers elsewhere need not have the module
        cloudpickle.register_pickle_by_value(sys.modules[options.function.partition(":")[0]])
    try:
        client = Client(options.scheduler, timeout="10s")
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no Dask scheduler answers at {options.scheduler} ({error}); start one with `dask "
            "scheduler`, and give the address that it prints, such as tcp://host:8786."
        ) from error
    with client:
        yield client.get_executor()


def choose_metric(name: str | None, better: str | None, known: Iterable[str]) -> tuple[str, Mode]:
    """The metric of table and picture, and which way it is better.

    Args:
      name: The value of ``--metric``; the first known one if None.
      better: The value of ``--better``, or None to tell from the metric's name.
      known: The metrics that there are.

    Returns:
      The metric's name and its mode.

    Raises:
      UsageError: If there is no such metric, or its name does not tell which way is better.
    """
    available = list(known)
    (metric,) = choose("metric", available[0] if name is None else name, available)
    mode: Mode | None = None if better is None else "max" if better == "high" else "min"
    try:
        return metric, metric_mode(metric, mode)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _own_task(options: argparse.Namespace) -> tuple[str, dict[str, Train], float | None]:
    """The name, the functions and the radius for ``MODULE:FUNCTION``."""
    train, takes_optimizer = import_train(options.function)
    name = re.sub(r"[^\w.-]+", "-", options.function)
    if takes_optimizer:
        momentum = fixed_momentum() if options.radius is None else linear_momentum()
        return name, _with_each_optimizer(options, train, momentum, options.radius), options.radius
    if options.optimizers or options.radius:
        raise UsageError(
            f"{options.function} takes a learning rate and chooses its own optimizer, so "
            "--optimizers and --radius do not apply; let it take (optimizer, key)."
        )
    return name, {options.function.partition(":")[2]: train}, None


def _built_in_task(options: argparse.Namespace) -> tuple[str, dict[str, Train], float | None]:
    """The name, the functions and the radius for ``--task``."""
    (name,) = choose("task", options.task or "digits", TASKS)
    task = TASKS[name]
    choose_metric(options.metric, options.better, METRICS)
    radius = task.radius if options.radius is None else options.radius
    choose("optimizer", options.optimizers, OPTIMIZERS)
    try:
        train = task.build(options.data)
    except (FileNotFoundError, ModuleNotFoundError, ValueError) as error:
        raise UsageError(str(error)) from error
    return name, _with_each_optimizer(options, train, task.momentum, radius), radius


def _with_each_optimizer(
    options: argparse.Namespace, train: Train, momentum: Any, radius: float | None
) -> dict[str, Train]:
    """A function of (learning_rate, key) for each optimizer, from one of (optimizer, key)."""
    projection = None if radius is None else onto_l2_ball(radius)

    def with_rate(optimizer: str) -> Train:
        return lambda learning_rate, key: train(
            make_optimizer(optimizer, learning_rate, momentum, projection), key
        )

    return {name: with_rate(name) for name in choose("optimizer", options.optimizers, OPTIMIZERS)}


def _folder(options: argparse.Namespace, name: str) -> Path:
    """The run folder: given, or the next free name; only --resume goes into an old one."""
    if options.out:
        folder = Path(options.out)
        if (folder / "journal").exists() and not options.resume:
            raise UsageError(
                f"{folder} holds a run already; go on with it by --resume, or choose another --out."
            )
        place = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
        if not place.is_dir() or not os.access(place, os.W_OK):
            what = "cannot be written to" if place.is_dir() else "is a file"
            raise UsageError(f"--out must name a folder, got {options.out}: {place} {what}.")
        return folder
    names = [Path(f"mu2-sweep-{name}" + (f"-{i}" if i > 1 else "")) for i in range(1, 1000)]
    free = next(i for i, folder in enumerate(names) if not folder.exists())
    if not options.resume:
        return names[free]
    if free == 0:
        raise UsageError(f"there is no {names[0]} to resume; name the run folder with --out.")
    return names[free - 1]
