"""What the options of ``mu2-sweep`` ask for: which functions to sweep, over which rates."""

import argparse
import difflib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import inf, isclose
from typing import Any, NamedTuple

import numpy as np

from mu2_optax import fixed_momentum, linear_momentum, onto_l2_ball
from mu2_optax.sweep._command.optimizers import GROUPS, OPTIMIZERS, Setting, make_optimizer
from mu2_optax.sweep._command.tasks import METRICS, TASKS, curve_steps, make_train
from mu2_optax.sweep._grid import make_grid

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


class Plan(NamedTuple):
    """What to run: the task's name, a row for each label, and what all rows share."""

    name: str
    rows: dict[str, Row]
    seeds: int | list[int]
    steps: int | None


def make_plan(options: argparse.Namespace) -> Plan:
    """Reads the plan from the options, or raises `UsageError`."""
    if options.function and (options.task or options.data):
        raise UsageError("--task and --data are for built-in tasks; a function reads its own data.")
    if options.ball is not None and not 0 < options.ball < inf:
        raise UsageError(f"--ball must be positive and finite, got {options.ball:g}.")
    if options.chunk_size is not None and options.strategy != "vmap":
        raise UsageError(
            f"--chunk-size does not apply to --strategy {options.strategy}, which runs one cell "
            "after another; leave one of them out."
        )
    rates = parse_rates(options.lrs or (RATES if options.ball is None else BALL_RATES))
    seeds = parse_seeds(options.seeds)
    choose("optimizer", options.optimizers or "all", OPTIMIZERS, GROUPS)
    if options.function:
        name, steps = re.sub(r"[^\w.-]+", "-", options.function), options.steps
        train, takes = import_train(options.function)
    else:
        (name,) = choose("task", options.task or "digits", TASKS)
        choose("metric", options.metric or METRICS[0], METRICS)
        steps, takes = options.steps or TASKS[name].steps, ["optimizer", "key", "steps"]
    try:
        make_grid(rates, seeds)
        if not options.function:
            train = make_train(TASKS[name], TASKS[name].load(options.data))
    except (FileNotFoundError, ModuleNotFoundError, ValueError) as error:
        raise UsageError(str(error)) from error
    if options.halving and steps is None:
        raise UsageError("--halving needs the --steps of a whole run.")
    if steps is not None and "steps" not in takes:
        raise UsageError(f"--steps does not apply: {options.function} does not take `steps`.")
    if takes[0] in ("optimizer", "tx"):
        rows = _with_each_optimizer(options, train, steps, rates)
    elif options.optimizers or options.ball:
        raise UsageError("--optimizers and --ball need a function of (optimizer, key).")
    else:
        own = train if steps is None or options.halving else partial(train, steps=steps)
        rows = {options.function.partition(":")[2]: Row(own, rates, {})}
    for row in () if options.function else rows.values():
        row.info["curve_steps"] = curve_steps(steps)
    return Plan(name, rows, seeds, steps)


def _with_each_optimizer(
    options: argparse.Namespace, train: Callable[..., Any], steps: int | None, rates: list[float]
) -> dict[str, Row]:
    """A row for each optimizer, from a function of (optimizer, key), and ``steps`` if known."""
    setting, group = Setting(fixed_momentum(), None, steps), "default"
    if options.ball is not None:
        setting, group = Setting(linear_momentum(), onto_l2_ball(options.ball), steps), "paper"
    rows = {}
    for name in choose("optimizer", options.optimizers or group, OPTIMIZERS, GROUPS):
        contender = OPTIMIZERS[name]
        if contender.takes("steps") and steps is None:
            if options.optimizers:
                raise UsageError(f"{name} has a schedule, which needs the number of --steps.")
            print(f"mu2-sweep: leaving out {name}, whose schedule needs --steps", file=sys.stderr)
            continue
        if options.ball is not None and not (
            contender.is_projected or contender.takes("projection")
        ):
            raise UsageError(f"{name} cannot keep the params in a --ball; leave it out.")

        def run(learning_rate: Any, key: Any, steps: Any = steps, *, name: str = name) -> Any:
            tx = make_optimizer(name, learning_rate, setting._replace(steps=steps))
            return train(tx, key) if steps is None else train(tx, key, steps=steps)

        info: dict[str, Any] = {"python": OPTIMIZERS[name].line(options.ball, steps)}
        own, default = set(rates), contender.untouched
        if default is not None:
            near = (rate for rate in rates if isclose(rate, default, rel_tol=1e-6))
            info["untouched"] = next(near, default)
            own.add(info["untouched"])
        has_rate = contender.takes("learning_rate")
        rows[name] = Row(run, sorted(own), info) if has_rate else Row(partial(run, None), {}, info)
    return rows


def choose(
    kind: str, names: str, known: Iterable[str], groups: Mapping[str, Sequence[str]] | None = None
) -> list[str]:
    """The names in a comma-separated list, each of them known, or those of a group.

    A dash may stand for an underscore where the name with the dash is not known.
    """
    available, several = list(known), groups or {}
    chosen: list[str] = []
    for name in filter(None, map(str.strip, names.split(","))):
        found = name if name in available else name.replace("-", "_")
        if found not in available and found not in several:
            listed = [*available, *several]
            close = difflib.get_close_matches(name, listed, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"no {kind} {name!r}.{meant} There are: {', '.join(listed)}.")
        chosen += several.get(found, (found,))
    if not chosen:
        raise UsageError(f"no {kind} given. There are: {', '.join(available)}.")
    return list(dict.fromkeys(chosen))


def import_train(spec: str) -> tuple[Callable[..., Any], list[str]]:
    """Imports ``module:function``, also from the current folder; with its arguments' names."""
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise UsageError(f"a task of your own must look like my_module:train_fn, got {spec!r}.")
    sys.path[:0] = [os.getcwd()] if os.getcwd() not in sys.path else []
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise
        raise UsageError(f"no module {module_name!r} in {os.getcwd()} or installed.") from None
    train = getattr(module, name, None)
    if not callable(train):
        raise UsageError(f"no function {name!r} in {module_name}.")
    takes = list(inspect.signature(train).parameters)
    if len(takes) < 2 or takes[0] not in ("optimizer", "tx", "learning_rate", "lr"):
        wanted = "(optimizer, key) or (learning_rate, key), with these names"
        raise UsageError(f"{spec} must take {wanted}; it takes ({', '.join(takes)}).")
    return train, takes


def parse_rates(text: str) -> list[float]:
    """Learning rates from ``low:high:logN``, ``low:high:linN`` or a comma-separated list.

    Examples:
      >>> parse_rates("1e-2:1e2:log5"), parse_rates("0.1, 3")
      ([0.01, 0.1, 1.0, 10.0, 100.0], [0.1, 3.0])
    """
    try:
        rates: Any = text.split(",")
        if ":" in text:
            low, high, spacing = text.split(":")
            space: Any = {"log": np.geomspace, "lin": np.linspace}[spacing[:3]]
            rates = space(float(low), float(high), int(spacing[3:]))
        rates = [float(f"{float(rate):.12g}") for rate in rates]
    except (KeyError, ValueError):
        rates = []
    if not rates or not all(0 < np.float32(rate) < inf for rate in rates):
        forms = "1e-4:1e4:log9, 0.1:1:lin10 or 0.01,0.1,1"
        raise UsageError(f"--lrs must be positive and finite, and look like {forms}, got {text!r}.")
    return rates


def parse_seeds(text: str) -> int | list[int]:
    """A number of seeds (``3``), or the seeds themselves (``0,1,7``; ``7,`` for one)."""
    seeds = [part.strip() for part in text.split(",") if part.strip()]
    if not seeds or not all(seed.isdecimal() and int(seed) < 2**32 for seed in seeds):
        raise UsageError(f"--seeds must be like 3 or 0,1,7, and below 2**32, got {text!r}.")
    return [int(seed) for seed in seeds] if "," in text else int(seeds[0])
