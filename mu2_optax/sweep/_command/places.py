"""Where a run computes and where it writes: processes or a cluster, and the run folder."""

import argparse
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path

from mu2_optax.sweep._command.parsing import UsageError


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
