"""What the options of ``mu2-sweep`` ask for: which functions to sweep, over which rates."""

import argparse
import difflib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, isclose
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mu2_optax import fixed_momentum, linear_momentum, onto_l2_ball
from mu2_optax.sweep._command.optimizers import (
    GROUPS,
    OPTIMIZERS,
    Setting,
    make_optimizer,
    python_line,
)
from mu2_optax.sweep._command.tasks import METRICS, TASKS, curve_steps, make_train
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._metrics import Mode

# The published defaults of the default optimizers are among the rates.
RATES, BALL_RATES = "1e-4,1e-3,2.5e-3,0.01,0.1,1,10,100", "1e-4:1e4:log9"
MODES: dict[str | None, Mode] = {"high": "max", "low": "min"}  # by the value of --better


class UsageError(Exception):
    """A value on the command line that cannot be used; the text says which, why and what to do."""


@dataclass(frozen=True)
class Row:
    """What to run for one optimizer.

    Attributes:
      train: The function of a cell: of (learning_rate, key), or of ``key`` if there is no rate. If
        the plan has ``steps``, also of ``steps``.
      rates: Its learning rates, as `sweep` takes them: ``{}`` if it has none.
      info: What tables and pages want to know of it: ``untouched``, the rate that was published as
        its default, which is one of them; ``python``, the call that makes it, of ``learning_rate``;
        and ``curve_steps``, the steps of its curves.
    """

    train: Callable[..., Any]
    rates: list[float] | dict[str, Any]
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """What to run: a row for each label, and what all rows share."""

    name: str
    rows: dict[str, Row]
    seeds: int | list[int]
    steps: int | None
    strategy: str
    context: dict[str, Any]
    folder: Path


def make_plan(options: argparse.Namespace) -> Plan:
    """Reads the plan from the options.

    Raises:
      UsageError: If they contradict each other, or name what does not exist.
    """
    if importlib.util.find_spec("altair") is None or importlib.util.find_spec("vl_convert") is None:
        raise UsageError(
            "the pictures need Altair and vl-convert: `pip install 'mu2-optax[sweep]'`."
        )
    if options.ball is not None and not 0 < options.ball < inf:
        raise UsageError(f"--ball must be positive and finite, got {options.ball:g}.")
    rates = parse_rates(options.lrs or (RATES if options.ball is None else BALL_RATES))
    seeds = parse_seeds(options.seeds)
    try:
        make_grid(rates, seeds)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if not options.function:
        return _built_in_task(options, rates, seeds)
    if options.task or options.data:
        raise UsageError("--task and --data are for built-in tasks; a function reads its own data.")
    train, names = import_train(options.function)
    steps = options.steps
    if (steps or options.halving) and "steps" not in names:
        raise UsageError(
            f"--steps and --halving need a function that takes `steps`; {options.function} does not."
        )
    if options.halving and steps is None:
        raise UsageError("--halving needs the --steps of a whole run.")
    if names[0] in ("optimizer", "tx"):
        rows = _with_each_optimizer(options, train, steps, rates)
    elif options.optimizers or options.ball:
        raise UsageError(
            f"{options.function} takes a learning rate and chooses its own optimizer, so "
            "--optimizers and --ball do not apply; let it take (optimizer, key)."
        )
    else:
        own = partial(train, steps=steps) if steps and not options.halving else train
        rows = {options.function.partition(":")[2]: Row(own, rates)}
    name = re.sub(r"[^\w.-]+", "-", options.function)
    return _plan(options, name, rows, seeds, steps, options.strategy or "vmap")


def _built_in_task(options: argparse.Namespace, rates: list[float], seeds: int | list[int]) -> Plan:
    """The plan for ``--task``."""
    (name,) = choose("task", options.task or "digits", TASKS)
    choose("metric", options.metric or METRICS[0], METRICS)
    task, steps = TASKS[name], options.steps or TASKS[name].steps
    choose("optimizer", options.optimizers or "all", OPTIMIZERS, GROUPS)
    try:
        data = jax.tree.map(jnp.asarray, task.load(options.data))
    except (FileNotFoundError, ModuleNotFoundError, ValueError) as error:
        raise UsageError(str(error)) from error

    def train(optimizer: Any, key: Any, steps: int) -> Any:
        return make_train(replace(task, steps=steps), data)(optimizer, key)

    rows = _with_each_optimizer(options, train, steps, rates)
    for row in rows.values():
        row.info["curve_steps"] = curve_steps(steps)
    return _plan(options, name, rows, seeds, steps, options.strategy or task.strategy)


def _plan(
    options: argparse.Namespace,
    name: str,
    rows: dict[str, Row],
    seeds: int | list[int],
    steps: int | None,
    strategy: str,
) -> Plan:
    context = {"task": name, "ball": options.ball, "steps": steps}
    return Plan(name, rows, seeds, steps, strategy, context, _choose_folder(options, name))


def _with_each_optimizer(
    options: argparse.Namespace, train: Callable[..., Any], steps: int | None, rates: list[float]
) -> dict[str, Row]:
    """A row for each optimizer, from a function of (optimizer, key) and perhaps ``steps``."""
    setting = Setting(fixed_momentum(), None, steps)
    if options.ball is not None:
        setting = Setting(linear_momentum(), onto_l2_ball(options.ball), steps)
    group = "default" if options.ball is None else "paper"
    names = choose("optimizer", options.optimizers or group, OPTIMIZERS, GROUPS)
    rows = {}
    for name in names:
        contender = OPTIMIZERS[name]
        if contender.needs_steps and steps is None:
            if options.optimizers:
                raise UsageError(f"{name} has a schedule, which needs the number of --steps.")
            print(f"mu2-sweep: leaving out {name}, whose schedule needs --steps", file=sys.stderr)
            continue
        if options.ball is not None and not contender.in_ball:
            raise UsageError(f"{name} cannot keep the params in a --ball; leave it out.")
        run = partial(_run, train, name, setting)
        info: dict[str, Any] = {"python": python_line(name, options.ball, steps)}
        if not contender.has_rate:
            rows[name] = Row(partial(run, None), {}, info)
            continue
        own = rates
        if contender.untouched is not None:
            same = [rate for rate in rates if isclose(rate, contender.untouched, rel_tol=1e-6)]
            info["untouched"] = same[0] if same else contender.untouched
            own = sorted({*rates, info["untouched"]})
        rows[name] = Row(run, own, info)
    return rows


def _run(
    train: Callable[..., Any],
    name: str,
    setting: Setting,
    learning_rate: Any,
    key: Any,
    steps: int | None = None,
) -> Any:
    """A cell: ``train`` with one of the optimizers; `halving` gives its own ``steps``."""
    setting = setting._replace(steps=steps or setting.steps)
    takes_steps = setting.steps is not None and "steps" in inspect.signature(train).parameters
    given = {"steps": setting.steps} if takes_steps else {}
    return train(make_optimizer(name, learning_rate, setting), key, **given)


def choose(
    kind: str, names: str, known: Iterable[str], groups: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """The names in a comma-separated list, each of them known, or those of a group.

    A dash may stand for an underscore where the name with the dash is not known. For an unknown
    name, the error lists the known ones, and says which may have been meant.
    """
    available, several = list(known), groups or {}
    written = [name.strip() for name in names.split(",") if name.strip()]
    named = [name if name in available else name.replace("-", "_") for name in written]
    chosen = [name for entry in named for name in several.get(entry, (entry,))]
    for name in chosen:
        if name not in available:
            close = difflib.get_close_matches(name, [*available, *several], n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            listed = ", ".join([*available, *several])
            raise UsageError(f"no {kind} {name!r}.{meant} There are: {listed}.")
    if not chosen:
        raise UsageError(f"no {kind} given. There are: {', '.join(available)}.")
    return list(dict.fromkeys(chosen))


def import_train(spec: str) -> tuple[Callable[..., Any], list[str]]:
    """Imports ``module:function``, also from the current folder; with its arguments' names."""
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UsageError(f"a task of your own must look like my_module:train_fn, got {spec!r}.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise UsageError(
            f"no module {module_name!r} in {os.getcwd()} or among the installed ones; name it "
            "without .py, with dots for folders."
        ) from None
    train = getattr(module, name, None)
    if not callable(train):
        functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise UsageError(
            f"no function {name!r} in {module_name}. There are: {', '.join(functions) or 'none'}."
        )
    names = list(inspect.signature(train).parameters)
    if len(names) < 2 or names[0] not in ("optimizer", "tx", "learning_rate", "lr"):
        raise UsageError(
            f"{spec} must take (optimizer, key) or (learning_rate, key), with these names; it "
            f"takes ({', '.join(names)})."
        )
    return train, names


def parse_rates(text: str) -> list[float]:
    """Learning rates from ``low:high:logN``, ``low:high:linN`` or a comma-separated list.

    Examples:
      >>> parse_rates("1e-2:1e2:log5")
      [0.01, 0.1, 1.0, 10.0, 100.0]
      >>> parse_rates("0.1, 3")
      [0.1, 3.0]
    """
    try:
        if ":" in text:
            low, high, spacing = text.split(":")
            space = {"log": np.geomspace, "lin": np.linspace}[spacing[:3]]
            text = ",".join(
                f"{rate:.12g}" for rate in space(float(low), float(high), int(spacing[3:]))
            )
        rates = [float(part) for part in text.split(",")]
    except (KeyError, ValueError):
        rates = []
    if not rates or not all(0 < np.float32(rate) < inf for rate in rates):
        raise UsageError(
            "--lrs must be positive and finite, and look like 1e-4:1e4:log9, 0.1:1:lin10 or "
            f"0.01,0.1,1; got {text!r}."
        )
    return rates


def parse_seeds(text: str) -> int | list[int]:
    """A number of seeds (``3``), or the seeds themselves (``0,1,7``; ``7,`` for one)."""
    try:
        seeds = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        seeds = []
    if not seeds or max(seeds) >= 2**32:
        raise UsageError(
            f"--seeds must be a number such as 3, or a list such as 0,1,7 below 2**32, got {text!r}."
        )
    return seeds if "," in text else seeds[0]


def _choose_folder(options: argparse.Namespace, name: str) -> Path:
    """The run folder: given, or the next free name; only --resume reuses an old one."""
    if options.out:
        folder = Path(options.out)
        if (folder / "cells").exists() and not options.resume:
            raise UsageError(
                f"{folder} holds a run already; continue it with --resume, or choose another --out."
            )
        if any(place.exists() and not place.is_dir() for place in (folder, *folder.parents)):
            raise UsageError(f"--out must name a folder, got {options.out}, which is in a file.")
        return folder
    names = [Path(f"mu2-sweep-{name}" + (f"-{i}" if i > 1 else "")) for i in range(1, 1000)]
    free = next(i for i, folder in enumerate(names) if not folder.exists())
    if options.resume and free == 0:
        raise UsageError(f"there is no {names[0]} to resume; name the run folder with --out.")
    return names[free - 1 if options.resume else free]
