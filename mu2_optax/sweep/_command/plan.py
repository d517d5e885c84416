"""What the options ask for: which functions to sweep, over which rates and seeds."""

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from mu2_optax import fixed_momentum, linear_momentum, onto_l2_ball
from mu2_optax.sweep._analysis.metrics import Mode, metric_mode
from mu2_optax.sweep._command.names import UsageError, choose, choose_folder, import_train
from mu2_optax.sweep._command.optimizers import (
    GROUPS,
    OPTIMIZERS,
    Setting,
    make_optimizer,
    python_template,
)
from mu2_optax.sweep._command.options import BALL_RATES, RATES, parse_rates
from mu2_optax.sweep._command.tasks import METRICS, TASKS, curve_steps, make_train
from mu2_optax.sweep._grid import LEARNING_RATE, make_grid
from mu2_optax.sweep._run.tracing import check_precision

MODES: dict[str | None, Mode] = {"high": "max", "low": "min"}  # by the value of --better
Train = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """What to run for one optimizer.

    Attributes:
      train: The function of a cell: of (learning_rate, key), or of ``key`` if there is no rate. If
        the plan has ``steps``, also of ``steps``.
      rates: Its learning rates, as `sweep` takes them: ``{}`` if it has none.
      info: What tables and pages want to know of it: ``untouched``, the rate that was published as
        its default, which is one of them; ``python``, the call that makes it, with
        ``{learning_rate}`` where the rate goes; and ``curve_steps``, the steps of its curves.
    """

    train: Train
    rates: list[float] | dict[str, Any]
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
      name: The task's name.
      rows: What is run under each label.
      seeds: The seeds.
      steps: The steps of a run; None if the task decides that itself.
      context: What must be the same when the run is resumed.
      folder: The run folder.
    """

    name: str
    rows: dict[str, Row]
    seeds: npt.NDArray[np.int64]
    steps: int | None
    context: dict[str, Any]
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
    if options.ball is not None and not 0 < options.ball < inf:
        raise UsageError(f"--ball must be positive and finite, got {options.ball:g}.")
    untraced = options.strategy == "python"
    if untraced and options.chunk_size is not None:
        raise UsageError(
            "--chunk-size does not apply to --strategy python, which runs one cell at a time."
        )
    lrs = options.lrs or parse_rates(RATES if options.ball is None else BALL_RATES)
    try:
        grid = make_grid(lrs, options.seeds)
        if not untraced:
            check_precision(grid)
    except ValueError as error:
        raise UsageError(str(error)) from error
    rates = grid.axes[LEARNING_RATE]
    name, steps, rows = (_own_task if options.function else _built_in_task)(options, rates)
    context = {"task": name, "ball": options.ball, "steps": steps}
    return Plan(name, rows, grid.seeds, steps, context, choose_folder(options, name))


def choose_metric(name: str | None, better: str | None, known: Iterable[str]) -> tuple[str, Mode]:
    """The metric of table and picture, and which way it is better.

    ``name`` and ``better`` are the values of ``--metric`` (the first known one if None) and
    ``--better`` (what the metric's name says if None).
    """
    available = list(known)
    (metric,) = choose("metric", available[0] if name is None else name, available)
    try:
        return metric, metric_mode(metric, MODES.get(better))
    except ValueError as error:
        raise UsageError(str(error)) from error


def _own_task(
    options: argparse.Namespace, rates: npt.NDArray[np.float64]
) -> tuple[str, int | None, dict[str, Row]]:
    """The name, the steps and the rows for ``MODULE:FUNCTION``."""
    train, takes_optimizer, takes_steps = import_train(options.function)
    name = re.sub(r"[^\w.-]+", "-", options.function)
    steps = options.steps
    if options.halving and (steps is None or not takes_steps):
        raise UsageError(
            "--halving needs a function that takes `steps`, such as (optimizer, key, steps), and "
            f"the --steps of a whole run; {options.function} "
            + ("has no --steps." if takes_steps else "does not take `steps`.")
        )
    if takes_optimizer:

        def with_steps(optimizer: Any, key: Any, steps: int | None) -> Any:
            given = takes_steps and steps is not None
            return train(optimizer, key, steps=steps) if given else train(optimizer, key)

        return name, steps, _with_each_optimizer(options, with_steps, steps, rates)
    if options.optimizers or options.ball:
        raise UsageError(
            f"{options.function} takes a learning rate and chooses its own optimizer, so "
            "--optimizers and --ball do not apply; let it take (optimizer, key)."
        )
    if steps is not None and not takes_steps:
        raise UsageError(f"--steps does not apply: {options.function} does not take `steps`.")
    label = options.function.partition(":")[2]
    own = train if steps is None else partial(train, steps=steps)
    return name, steps, {label: Row(own, rates.tolist())}


def _built_in_task(
    options: argparse.Namespace, rates: npt.NDArray[np.float64]
) -> tuple[str, int, dict[str, Row]]:
    """The name, the steps and the rows for ``--task``."""
    (name,) = choose("task", options.task or "digits", TASKS)
    task = TASKS[name]
    steps = options.steps or task.steps
    options.metric, _ = choose_metric(options.metric, options.better, METRICS)
    choose("optimizer", options.optimizers, OPTIMIZERS, GROUPS)
    try:
        data = jax.tree.map(jnp.asarray, task.load(options.data))
    except (FileNotFoundError, ModuleNotFoundError, ValueError) as error:
        raise UsageError(str(error)) from error

    def train(optimizer: Any, key: Any, steps: int) -> Any:
        return make_train(replace(task, steps=steps), data)(optimizer, key)

    rows = _with_each_optimizer(options, train, steps, rates)
    for row in rows.values():
        row.info["curve_steps"] = curve_steps(steps)
    return name, steps, rows


def _with_each_optimizer(
    options: argparse.Namespace,
    train: Train,
    steps: int | None,
    rates: npt.NDArray[np.float64],
) -> dict[str, Row]:
    """A row for each optimizer, from a function of (optimizer, key, steps)."""
    if options.ball is None:
        group, setting = "default", Setting(fixed_momentum(), None, steps)
    else:
        group = "paper"
        setting = Setting(linear_momentum(), onto_l2_ball(options.ball), steps)
    names = choose("optimizer", options.optimizers or group, OPTIMIZERS, GROUPS)
    unfit = [name for name in names if OPTIMIZERS[name].needs_steps and steps is None]
    if unfit and options.optimizers:
        raise UsageError(f"{unfit[0]} has a schedule, which needs the number of --steps.")
    names = [name for name in names if name not in unfit]
    if unfit and not options.quiet:
        listed = ", ".join(unfit)
        print(f"mu2-sweep: leaving out {listed}, whose schedule needs --steps", file=sys.stderr)
    outside = [name for name in names if not OPTIMIZERS[name].in_ball and options.ball is not None]
    if outside:
        raise UsageError(f"{outside[0]} cannot keep the params in a --ball; leave one of them out.")
    rows = {name: _row(name, train, setting, rates) for name in names}
    for name, row in rows.items():
        row.info["python"] = python_template(name, options.ball, steps)
    return rows


def _row(name: str, train: Train, setting: Setting, rates: npt.NDArray[np.float64]) -> Row:
    """An optimizer at the given rates, and at the one that was published as its default."""
    contender = OPTIMIZERS[name]

    def run(learning_rate: Any, key: Any, steps: int | None = setting.steps) -> Any:
        tx = make_optimizer(name, learning_rate, setting._replace(steps=steps))
        return train(tx, key, steps)

    if not contender.has_rate:
        return Row(partial(run, None), {})
    untouched = contender.untouched
    if untouched is not None:
        same = np.isclose(rates, untouched, rtol=1e-6, atol=0)
        if same.any():
            untouched = float(rates[same][0])
        else:
            rates = np.sort(np.append(rates, untouched))
    return Row(run, rates.tolist(), {"untouched": untouched})
