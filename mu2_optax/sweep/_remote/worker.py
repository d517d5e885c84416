"""What runs on an executor's worker: one call of a program that the worker makes once."""

import os
import pickle
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from mu2_optax.sweep._environment import Settings, describe_machine, under_settings
from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._run.layout import Block, Layout
from mu2_optax.sweep._run.programs import Program, find_or_make, make_program

_LIMIT = 4  # programs, with their data, that a worker keeps
_PROGRAMS: dict[str, tuple[Program, Settings]] = {}  # and the settings that they run under
_MAKING = threading.Lock()
_TIMEOUT = 300  # seconds


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
        """Reads the bytes from whichever worker has them, or waits until one has them again."""
        from distributed import Variable, get_client

        variable = Variable(self.name, client=get_client())
        return variable.get(timeout=_TIMEOUT).result(timeout=_TIMEOUT)


@dataclass(frozen=True)
class Task:
    """What a worker needs to know of a sweep to run any of its blocks.

    Settings and fingerprint are those of the client; an ordinary function has no fingerprint.
    """

    train: Callable[..., Any]
    grid: Grid
    layout: Layout
    settings: Settings
    fingerprint: str | None


@dataclass(frozen=True)
class Reply:
    """What comes back from a worker.

    Attributes:
      worker: The worker's machine, process and thread.
      machine: The kind of that machine.
      compile_seconds: How long this call took to make the program, 0 if it was there already.
      values: What the program returned for the block.
      error: Why it returned nothing.
      fatal: Whether something other than the cell failed, such as an import on the worker.
    """

    worker: str
    machine: dict[str, Any] = field(default_factory=dict)
    compile_seconds: float = 0.0
    values: Any = None
    error: Exception | None = None
    fatal: bool = False


def run_block(digest: str, content: bytes | Path | OnCluster, block: Block) -> bytes:
    """Runs one block of a sweep, and returns the pickled `Reply`.

    An error comes back as a value. So when the executor raises something, the executor itself has
    failed. ``content`` is the packed task, or where to read it, and ``digest`` its name: each
    worker reads it once.
    """
    _ignore_interrupts()
    worker = f"{platform.node()}-{os.getpid()}-{threading.get_ident()}"
    start = time.perf_counter()
    try:
        with _MAKING:
            fresh = digest not in _PROGRAMS
            program, settings = find_or_make(_PROGRAMS, digest, partial(_make, content), _LIMIT)
    except Exception as error:
        return pickle.dumps(Reply(worker, error=_picklable(error, worker), fatal=True))
    seconds = time.perf_counter() - start if fresh else 0.0
    reply = partial(Reply, worker, describe_machine(None), seconds)
    try:
        with under_settings(settings):
            values = program.run(block)
    except Exception as error:
        return pickle.dumps(reply(error=_picklable(error, worker)))
    try:
        return pickle.dumps(reply(values=values))
    except Exception as error:  # `train` returned something that cannot be pickled
        return pickle.dumps(reply(error=_picklable(error, worker), fatal=True))


def _make(content: bytes | Path | OnCluster) -> tuple[Program, Settings]:
    """Loads, traces and compiles a task; refuses a program that differs from the client's."""
    if not isinstance(content, bytes):
        try:
            content = content.read_bytes()
        except FileNotFoundError as error:
            raise FileNotFoundError(
                "workers must see the client's file with `train` and its data, got "
                f"{error.filename}; set TMPDIR to a folder that all machines share, or let `train` "
                "load its data."
            ) from None
    task: Task = pickle.loads(content)
    with under_settings(task.settings):
        program = make_program(task.train, task.grid, task.layout.strategy, lambda _: task.layout)
        if program.fingerprint() != task.fingerprint:
            raise RuntimeError(
                "`train` must be the same program on client and worker, but the worker has another "
                "version of it, of its data or of JAX; install the same on both, and let both read "
                "the same files."
            )
        program.compile()
    return program, task.settings


def _picklable(error: Exception, worker: str) -> Exception:
    """An error that can be pickled, with a note on where it was raised."""
    formatted = "".join(traceback.format_exception(error)).rstrip()
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    if type(copy) is not type(error):
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.__notes__ = [f"raised in the worker {worker}:\n{formatted}"]
    return copy


@cache
def _ignore_interrupts() -> None:
    """Leaves Ctrl-C to the client: a terminal sends it to the client's child processes too."""
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    if parent_process() is None:
        return
    if threading.current_thread() is threading.main_thread():
        ignore()
    elif "distributed" in sys.modules:
        from distributed import get_worker

        with suppress(ValueError):  # this thread is not one of Dask's worker
            get_worker().loop.add_callback(ignore)  # runs in the worker's main thread
