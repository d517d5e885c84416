"""Reading the command line's values, with errors that list what exists."""

import argparse
import difflib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np


class UsageError(Exception):
    """A value on the command line that cannot be used; the text says which, why and what to do."""


def parse_rates(text: str) -> list[float]:
    """Learning rates from ``low:high:logN``, ``low:high:linN`` or a comma-separated list.

    Args:
      text: The value of ``--lrs``.

    Returns:
      The rates.

    Examples:
      >>> parse_rates("1e-2:1e2:log5")
      [0.01, 0.1, 1.0, 10.0, 100.0]
      >>> parse_rates("0.1, 3")
      [0.1, 3.0]
    """
    try:
        if ":" not in text:
            rates = [float(part) for part in text.split(",")]
        else:
            low, high, spacing = text.split(":")
            count = int(spacing[3:])
            if spacing[:3] not in ("log", "lin") or count < 2:
                raise ValueError
            space = np.geomspace if spacing.startswith("log") else np.linspace
            rates = [float(f"{rate:.12g}") for rate in space(float(low), float(high), count)]
    except ValueError:
        raise argparse.ArgumentTypeError(
            "rates must look like 1e-4:1e4:log9, 0.1:1:lin10 or 0.01,0.1,1, and go from low to "
            f"high in at least 2, got {text!r}"
        ) from None
    if not all(0 < rate < np.inf for rate in rates):
        raise argparse.ArgumentTypeError(f"rates must be positive and finite, got {text!r}")
    return rates


def parse_seeds(text: str) -> int | list[int]:
    """A number of seeds (``3``), or the seeds themselves (``0,1,7``; ``7,`` for one).

    Examples:
      >>> parse_seeds("3"), parse_seeds("0,7")
      (3, [0, 7])
    """
    try:
        if "," not in text:
            return int(text)
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"seeds must be a number such as 3, or a list such as 0,1,7, got {text!r}"
        ) from None


def parse_count(text: str) -> int:
    """A positive whole number.

    Examples:
      >>> parse_count("8")
      8
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def parse_tolerance(text: str) -> float:
    """A number that is finite and not negative.

    Examples:
      >>> parse_tolerance("0.05")
      0.05
    """
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = -1.0
    if not 0 <= tolerance < np.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return tolerance


def with_signs(arguments: Sequence[str]) -> list[str]:
    """The arguments, with values such as ``-1,1`` bound to the options before them.

    Otherwise ``argparse`` would take such a value for an option.

    Examples:
      >>> with_signs(["--lrs", "-1,1", "--quiet"])
      ['--lrs=-1,1', '--quiet']
    """
    bound: list[str] = []
    for argument in arguments:
        if bound and re.fullmatch(r"--[a-z-]+", bound[-1]) and re.match(r"-[\d.]", argument):
            bound[-1] += f"={argument}"
        else:
            bound.append(argument)
    return bound


def choose(
    kind: str,
    names: str | None,
    known: Iterable[str],
    groups: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """The names in a comma-separated list, each of them known, or the name of a group; all if None.

    A dash may stand for an underscore where the name with the dash is not known.

    Raises:
      UsageError: With the known names, and the one that may have been meant.
    """
    available = list(known)
    if names is None:
        return available
    several = groups or {}
    written = [name.strip() for name in names.split(",") if name.strip()]
    named = [name if name in available else name.replace("-", "_") for name in written]
    chosen = [name for entry in named for name in several.get(entry, (entry,))]
    available += several
    for name in chosen:
        if name not in available:
            close = difflib.get_close_matches(name, available, n=1)
            meant = f" Did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"no {kind} {name!r}.{meant} There are: {', '.join(available)}.")
    if not chosen:
        raise UsageError(f"no {kind} given. There are: {', '.join(available)}.")
    return list(dict.fromkeys(chosen))


def import_train(spec: str) -> tuple[Callable[..., Any], bool, bool]:
    """Imports ``module:function``, also from the current folder.

    Args:
      spec: Such as ``my_module:train_fn``.

    Returns:
      The function, whether its first argument is an optimizer (not a learning rate), and whether
      it takes ``steps``.

    Raises:
      UsageError: If it cannot be imported, or takes something else.
    """
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
    first = names[0] if names else ""
    if len(names) < 2 or first not in ("optimizer", "tx", "learning_rate", "lr"):
        raise UsageError(
            f"{spec} must take (optimizer, key) or (learning_rate, key), with these names; it "
            f"takes ({', '.join(names)})."
        )
    return train, first in ("optimizer", "tx"), "steps" in names
