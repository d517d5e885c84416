"""What is known of Dask's executor beyond what every executor does."""

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
    """How many calls a cluster of Dask runs at once, as it is now; 0 for any other executor."""
    client = client_of(executor)
    return 0 if client is None else sum(client.nthreads().values())


def call_options(executor: Any) -> dict[str, Any]:
    """What to add to a call of ``submit``: Dask would take two with equal arguments for one."""
    return {} if client_of(executor) is None else {"pure": False}


def check_scheduler(executor: Any) -> None:
    """Requires a client of Dask to have its scheduler; without, some of its calls never end.

    Raises:
      ConnectionError: If it has lost it.
    """
    client = client_of(executor)
    if client is not None and client.status != "running":
        raise ConnectionError(f"the connection to Dask's scheduler is {client.status}")


@dataclass(frozen=True)
class OnCluster:
    """Bytes on a cluster of Dask; a worker reads them as it would a file.

    They are no argument of Dask's, or it would run calls where the bytes are, and not where there
    is time.

    Attributes:
      name: That of the ``distributed.Variable`` that refers to them.
    """

    name: str

    def read_bytes(self) -> bytes:
        """The bytes, from whichever worker has them.

        Raises:
          TimeoutError: If none of them has had time to make them again after a loss.
        """
        from distributed import Variable, get_client

        variable = Variable(self.name, client=get_client())
        return variable.get(timeout=_PATIENCE).result(timeout=_PATIENCE)


@contextmanager
def on_cluster(client: Any, content: bytes) -> Iterator[OnCluster]:
    """Within it, the cluster holds the content: as the result of a call, made again when lost.

    Args:
      client: The client.
      content: What to send.

    Yields:
      What to pass to the workers.
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
    """Has a worker of Dask call a function in its process's main thread; nothing elsewhere."""
    if "distributed" not in sys.modules:
        return
    from distributed import get_worker

    with suppress(ValueError):  # this thread is not one of a worker
        get_worker().loop.add_callback(function)


def _itself(content: bytes) -> bytes:
    return content
