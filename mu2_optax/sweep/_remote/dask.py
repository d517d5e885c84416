"""What Dask's executor needs that others do not."""

import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

_PATIENCE = 300  # seconds


def client_of(executor: Any) -> Any:
    """The client of Dask's ``Client.get_executor()``; None for any other executor."""
    of_dask = type(executor).__module__.partition(".")[0] == "distributed"
    return getattr(executor, "_client", None) if of_dask else None


def count_workers(executor: Any) -> int:
    """How many calls a cluster of Dask runs at once at the moment; 0 for any other executor."""
    client = client_of(executor)
    return 0 if client is None else sum(client.nthreads().values())


def call_options(executor: Any) -> dict[str, Any]:
    """Extra arguments for ``submit``: Dask would run two calls with equal arguments only once."""
    return {} if client_of(executor) is None else {"pure": False}


def check_scheduler(executor: Any) -> None:
    """Requires a client of Dask to be connected; otherwise some of its calls would never end.

    Raises:
      ConnectionError: If it has lost its scheduler.
    """
    client = client_of(executor)
    if client is not None and client.status != "running":
        raise ConnectionError(f"the connection to Dask's scheduler is {client.status}")


@dataclass(frozen=True)
class OnCluster:
    """Bytes on a cluster of Dask, which a worker reads like a file.

    Calls get this name and not the bytes: if Dask knew that a call needs the bytes, it would run it
    on the worker that has them, and not on one that is idle.

    Attributes:
      name: The name of the ``distributed.Variable`` that refers to the bytes.
    """

    name: str

    def read_bytes(self) -> bytes:
        """Reads the bytes from whichever worker has them.

        Raises:
          TimeoutError: If they were lost and no worker has made them again in time.
        """
        from distributed import Variable, get_client

        variable = Variable(self.name, client=get_client())
        return variable.get(timeout=_PATIENCE).result(timeout=_PATIENCE)


@contextmanager
def on_cluster(client: Any, content: bytes) -> Iterator[OnCluster]:
    """Holds the content on the cluster, as the result of a call that Dask repeats if it is lost.

    Yields what to pass to the workers.
    """
    import dask
    from distributed import Variable

    name = f"mu2-sweep-{uuid.uuid4().hex}"
    enough = 2 * len(content)  # bytes: it is meant to be large, and goes through the scheduler once
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": enough}):
        future = client.submit(_itself, content, key=name)
    variable = Variable(name, client=client)
    variable.set(future)
    try:
        yield OnCluster(name)
    finally:
        with suppress(Exception):  # a scheduler that is lost has forgotten it
            variable.delete()


def in_the_main_thread_of_a_worker(function: Callable[[], object]) -> None:
    """Calls a function in the main thread of Dask's worker; does nothing in any other process."""
    if "distributed" not in sys.modules:
        return
    from distributed import get_worker

    with suppress(ValueError):  # this thread is not one of a worker
        get_worker().loop.add_callback(function)


def _itself(content: bytes) -> bytes:
    return content
