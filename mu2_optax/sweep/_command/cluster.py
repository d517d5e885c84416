"""The cluster that the command line runs its calls on, if it is asked to."""

import argparse
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager

from mu2_optax.sweep._command.options import UsageError


@contextmanager
def open_executor(options: argparse.Namespace) -> Iterator[Executor | None]:
    """Connects to ``--scheduler``, or starts ``--workers`` processes, and closes what it opened.

    The processes speak TLS with a key that is made for them, so that nobody else who can reach
    their ports can join.

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
            "--scheduler and --workers need Dask: install the extra `cluster`, as in pip install "
            "'mu2-optax[cluster]'."
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
