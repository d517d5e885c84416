"""Getting a task to the workers of an executor, once each."""

import hashlib
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mu2_optax.sweep._dask import client_of, on_cluster
from mu2_optax.sweep._worker import Task

_SMALL = 2**16  # bytes that may go with each call


def pack(task: Task) -> bytes:
    """Pickles a task, by cloudpickle if it is installed: closures and lambdas, too.

    Raises:
      TypeError: If ``train`` cannot be pickled.
    """
    try:
        from cloudpickle import dumps
    except ImportError:
        dumps, remedy = pickle.dumps, "install cloudpickle (the extra `cluster` has it), or "
    else:
        remedy = ""
    try:
        return dumps(task)
    except Exception as error:
        raise TypeError(
            "`train` must be picklable to run on an `executor`, got "
            f"{task.train!r} ({type(error).__name__}: {error}); {remedy}make it a function of a "
            "module that opens files, locks and the like when it is called."
        ) from error


@contextmanager
def shipped(executor: Any, packed: bytes) -> Iterator[tuple[str, Any]]:
    """Puts a packed task where the workers find it.

    What is small goes with each call. What is not, a cluster of Dask holds; for the workers of any
    other executor it is a file in the folder for temporary files. Each worker reads it once.

    Args:
      executor: The executor.
      packed: What `pack` gave.

    Yields:
      The task's name, and what to pass as the ``content`` of `run_block`.
    """
    digest = hashlib.blake2b(packed, digest_size=16).hexdigest()
    if len(packed) <= _SMALL:
        yield digest, packed
    elif (client := client_of(executor)) is not None:
        with on_cluster(client, packed) as content:
            yield digest, content
    else:
        with tempfile.TemporaryDirectory(prefix="mu2-sweep-") as folder:
            file = Path(folder, f"{digest}.pickle")
            file.write_bytes(packed)
            yield digest, file


def check_executor(executor: Any) -> None:
    """Requires what calls can be given to.

    Raises:
      TypeError: If it is no executor.
    """
    if callable(getattr(executor, "get_executor", None)):
        raise TypeError(f"`executor` must be an executor, got {executor!r}; pass .get_executor().")
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            "`executor` must have `submit`, as those of concurrent.futures have, got "
            f"{executor!r}; pass a ProcessPoolExecutor, or `Client.get_executor()` of Dask."
        )
