"""What the options of ``mu2-sweep`` ask for: which functions to sweep, over which rates."""

import argparse
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple

import numpy as np

from mu2_optax.sweep._command.optimizers import GROUPS, OPTIMIZERS, make_optimizer, python_line
from mu2_optax.sweep._command.tasks import METRICS, TASKS, curve_steps, make_train
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._metrics import metric_mode

# The published defaults of the default optimizers are among the rates.
RATES, BALL_RATES = "1e-4,1e-3,2.5e-3,0.01,0.1,1,10,100", "1e-4:1e4:log9"


class UsageError(Exception):
    """A value on the command line that cannot be used; the text says which, why and what to do."""


class Row(NamedTuple):
    """What to run for one optimizer.

    ``train`` is a function of (learning_rate, key), or of ``key`` if there are no ``rates``; for
    `halving` also of ``steps``. ``info`` has what tables and pages want to know: ``untouched``, the
    rate that was published as the default, which is one of the rates; ``python``, the call that
    makes the optimizer, of ``learning_rate``; and ``curve_steps``, the steps of curves.
    """

    train: Callable[..., Any]
    rates: list[float] | dict[str, Any]
    info: dict[str, Any]


def make_plan(options: argparse.Namespace) -> tuple[str, dict[str, Row], Any, int | None]:
    """The task's name, a row for each label, the seeds and the steps; or a `UsageError`."""
    if options.ball is not None and not 0 < options.ball < inf:
        raise UsageError(f"--ball must be positive and finite, got {options.ball:g}.")
    rates = parse_rates(options.lrs or (RATES if options.ball is None else BALL_RATES))
    seeds, steps = parse_seeds(options.seeds), options.steps
    if steps is not None and steps < 1:
        raise UsageError(f"--steps must be at least 1, got {steps}.")
    try:
        make_grid(rates, seeds)
        if options.metric:
            metric_mode(options.metric, options.mode)
        if ":" in options.task:
            name = re.sub(r"[^\w.-]+", "-", options.task)
            train, takes = import_train(options.task)
        else:
            (name,) = choose("task", options.task, TASKS)
            choose("metric", options.metric or METRICS[0], METRICS)
            choose("optimizer", options.optimizers or "default", OPTIMIZERS, GROUPS)
            steps, takes = steps or TASKS[name].steps, ["optimizer", "key", "steps"]
            train = make_train(TASKS[name], TASKS[name].load(options.data))
    except (FileNotFoundError, ValueError) as error:
        raise UsageError(str(error)) from error
    if options.halving and steps is None:
        raise UsageError("--halving needs the --steps of a whole run.")
    if steps is not None and "steps" not in takes:
        raise UsageError(f"--steps does not apply: {options.task} does not take `steps`.")
    if takes[0] in ("optimizer", "tx"):
        rows = _with_each_optimizer(options, train, steps, rates)
    elif options.optimizers or options.ball:
        raise UsageError("--optimizers and --ball need a function of (optimizer, key).")
    else:
        own = train if steps is None or options.halving else partial(train, steps=steps)
        rows = {options.task.partition(":")[2]: Row(own, rates, {})}
    if name in TASKS:
        for row in rows.values():
            row.info["curve_steps"] = curve_steps(steps)
    return name, rows, seeds, steps


def _with_each_optimizer(
    options: argparse.Namespace, train: Callable[..., Any], steps: int | None, rates: list[float]
) -> dict[str, Row]:
    """A row for each optimizer, from a function of (optimizer, key), and ``steps`` if known."""
    radius, rows = options.ball, {}
    group = "default" if radius is None else "paper"
    for name in choose("optimizer", options.optimizers or group, OPTIMIZERS, GROUPS):
        contender = OPTIMIZERS[name]
        if "{steps}" in contender.python and steps is None:
            if options.optimizers:
                raise UsageError(f"{name} has a schedule, which needs the number of --steps.")
            print(f"mu2-sweep: leaving out {name}, whose schedule needs --steps", file=sys.stderr)
            continue
        if radius and name in ("mu2_auto_spectral", "schedule_free_adamw"):  # which average
            raise UsageError(f"{name} cannot keep the params in a --ball; leave it out.")

        def run(learning_rate: Any, key: Any, steps: Any = steps, *, name: str = name) -> Any:
            tx = make_optimizer(name, learning_rate, radius, steps)
            return train(tx, key) if steps is None else train(tx, key, steps=steps)

        info: dict[str, Any] = {"python": python_line(name, radius, steps)}
        own, default = set(rates), contender.untouched
        if default is not None:
            info["untouched"] = default
            own.add(default)
        has_rate = "learning_rate" in contender.python
        rows[name] = Row(run, sorted(own), info) if has_rate else Row(partial(run, None), {}, info)
    return rows


def choose(
    kind: str, names: str, known: Iterable[str], groups: Mapping[str, Sequence[str]] = {}
) -> list[str]:
    """The names in a comma-separated list, each of them known, or those of a group."""
    several = {name: (name,) for name in known} | dict(groups)
    chosen: list[str] = []
    for name in names.split(","):
        if name not in several:
            raise UsageError(f"no {kind} {name!r}. There are: {', '.join(several)}.")
        chosen += several[name]
    return list(dict.fromkeys(chosen))


def import_train(spec: str) -> tuple[Callable[..., Any], list[str]]:
    """Imports ``module:function``, also from the current folder; with its arguments' names."""
    module_name, _, name = spec.partition(":")
    sys.path[:0] = [os.getcwd()] if os.getcwd() not in sys.path else []
    try:
        train = getattr(importlib.import_module(module_name), name)
    except (ModuleNotFoundError, AttributeError) as error:
        raise UsageError(f"cannot import {spec}: {error}.") from error
    if not callable(train):
        raise UsageError(f"{spec} must be a function, got {train!r}.")
    takes = list(inspect.signature(train).parameters)
    if len(takes) < 2 or takes[0] not in ("optimizer", "tx", "learning_rate", "lr"):
        wanted = "(optimizer, key) or (learning_rate, key), with these names"
        raise UsageError(f"{spec} must take {wanted}; it takes ({', '.join(takes)}).")
    return train, takes


def parse_rates(text: str) -> list[float]:
    """Learning rates from ``low:high:logN``, or a comma-separated list.

    Examples:
      >>> parse_rates("1e-2:1e2:log5"), parse_rates("0.1, 3")
      ([0.01, 0.1, 1.0, 10.0, 100.0], [0.1, 3.0])
    """
    try:
        rates: Any = text.split(",")
        if ":" in text:
            low, high, count = text.split(":")
            rates = np.geomspace(float(low), float(high), int(count.removeprefix("log")))
        rates = [float(f"{float(rate):.12g}") for rate in rates]
    except ValueError:
        rates = []
    if not rates or not all(0 < np.float32(rate) < inf for rate in rates):
        forms = "1e-4:1e4:log9 or 0.01,0.1,1"
        raise UsageError(f"--lrs must be positive and finite, and look like {forms}, got {text!r}.")
    return rates


def parse_seeds(text: str) -> int | list[int]:
    """A number of seeds (``3``), or the seeds themselves (``0,1,7``; ``7,`` for one)."""
    try:
        seeds = [int(part) for part in text.split(",") if part]
    except ValueError:
        raise UsageError(f"--seeds must be like 3 or 0,1,7, got {text!r}.") from None
    return seeds if "," in text or not seeds else seeds[0]
