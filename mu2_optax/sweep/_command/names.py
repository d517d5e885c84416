"""What the options name: a function, tasks and optimizers, workers, and a folder to write to."""

import argparse
import difflib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class UsageError(Exception):
    """A value on the command line that cannot be used; the text says which, why and what to do."""


def choose(
    kind: str,
    names: str | None,
    known: Iterable[str],
    groups: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """The names in a comma-separated list, each of them known, or the name of a group; all if None.

    A dash may stand for an underscore where the name with the dash is not known. For an unknown
    name, the error lists the known ones, and says which may have been meant.
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

    Returns the function, whether its first argument is an optimizer (not a learning rate), and
    whether it takes ``steps``.
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


@contextmanager
def open_executor(options: argparse.Namespace) -> Iterator[Executor | None]:
    """Connects to ``--scheduler``, or starts ``--workers`` processes, and closes what it opened.

    The processes speak TLS with a key made for them alone, so that nobody else who can reach their
    ports can join. Yields None if neither option is given.
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


def choose_folder(options: argparse.Namespace, name: str) -> Path:
    """The run folder: given, or the next free name; only --resume reuses an old one."""
    if options.out:
        folder = Path(options.out)
        if (folder / "journal").exists() and not options.resume:
            raise UsageError(
                f"{folder} holds a run already; continue it with --resume, or choose another --out."
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
