"""What is known of Dask's executor beyond what every executor does."""

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any


def client_of(executor: Any) -> Any:
    """The client of Dask's ``Client.get_executor()``; None for any other executor."""
    of_dask = type(executor).__module__.partition(".")[0] == "distributed"
    return getattr(executor, "_client", None) if of_dask else None


def is_closed(executor: Any) -> bool:
    """Whether it is a client of Dask that has given up; its calls would then never end."""
    return getattr(client_of(executor), "status", None) in ("closing", "closed")


def as_future(client: Any, name: str, content: bytes) -> Any:
    """The content as the result of a call, which Dask makes again where it is lost.

    Passed to other calls, it goes to each worker once.

    Args:
      client: The client.
      name: The same for the same content.
      content: What to send.

    Returns:
      Dask's future.
    """
    import dask

    enough = 2 * len(content)  # bytes: it is meant to be large, and goes through the scheduler once
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": enough}):
        return client.submit(_itself, content, key=f"mu2-sweep-{name}")


def in_the_main_thread_of_a_worker(function: Callable[[], object]) -> None:
    """Has a worker of Dask call a function in its process's main thread; nothing elsewhere."""
    if "distributed" not in sys.modules:
        return
    from distributed import get_worker

    with suppress(ValueError):  # this thread is not one of a worker
        get_worker().loop.add_callback(function)


def _itself(content: bytes) -> bytes:
    return content
