"""What runs on an executor's worker: one call of a program that the worker makes once."""

import os
import pickle
import platform
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from multiprocessing import parent_process
from typing import Any, Protocol

from mu2_optax.sweep._environment import Settings, describe_machine, under_settings
from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._remote.dask import in_the_main_thread_of_a_worker
from mu2_optax.sweep._run.layout import Block, Layout
from mu2_optax.sweep._run.programs import Program, make_program

_LIMIT = 4  # programs, with their data, that a worker keeps
_PROGRAMS: dict[str, "Made"] = {}
_MAKING = threading.Lock()


class Readable(Protocol):
    """Something that holds bytes, such as a ``pathlib.Path``."""

    def read_bytes(self) -> bytes:
        """The bytes that it holds."""
        ...


@dataclass(frozen=True)
class Task:
    """What a worker needs to know of a sweep to run any of its blocks.

    Attributes:
      train: The function of a cell.
      grid: The grid.
      layout: What one call does.
      settings: The client's settings of JAX.
      fingerprint: The fingerprint of the client's program, or None if it has none.
    """

    train: Callable[..., Any]
    grid: Grid
    layout: Layout
    settings: Settings
    fingerprint: str | None


@dataclass(frozen=True)
class Made:
    """A program that is ready to run, the settings it runs under, and the machine it is on."""

    program: Program
    settings: Settings
    machine: dict[str, Any]


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


def run_block(digest: str, content: bytes | Readable, block: Block) -> bytes:
    """Runs one block of a sweep, and returns the pickled `Reply`.

    An error comes back as a value. So when the executor raises something, the executor itself has
    failed. ``content`` is the packed task, or where to read it, and ``digest`` its name: each
    worker reads it once.
    """
    _ignore_interrupts()
    worker = f"{platform.node()}-{os.getpid()}-{threading.get_ident()}"
    start = time.perf_counter()
    try:
        made, fresh = _made(digest, content)
    except Exception as error:
        return pickle.dumps(Reply(worker, error=_portable(error, worker), fatal=True))
    seconds = time.perf_counter() - start if fresh else 0.0
    reply = Reply(worker, made.machine, seconds)
    try:
        with under_settings(made.settings):
            reply = replace(reply, values=made.program.run(block))
    except Exception as error:
        reply = replace(reply, error=_portable(error, worker))
    try:
        return pickle.dumps(reply)
    except Exception as error:  # `train` returned something that cannot be pickled
        return pickle.dumps(replace(reply, values=None, error=_portable(error, worker), fatal=True))


def _made(digest: str, content: bytes | Readable) -> tuple[Made, bool]:
    """The program of a task, and whether this call has made it."""
    with _MAKING:
        found = _PROGRAMS.pop(digest, None)
        made = _PROGRAMS[digest] = found or _make(content)  # now the most recently used
        while len(_PROGRAMS) > _LIMIT:
            _PROGRAMS.pop(next(iter(_PROGRAMS)))
    return made, found is None


def _make(content: bytes | Readable) -> Made:
    """Loads, traces and compiles a task; refuses a program that differs from the client's."""
    task: Task = pickle.loads(content if isinstance(content, bytes) else _read(content))
    with under_settings(task.settings):
        program = make_program(task.train, task.grid, task.layout.strategy, lambda _: task.layout)
        if program.fingerprint() != task.fingerprint:
            raise RuntimeError(
                "`train` must be the same program on client and worker, but the worker has another "
                "version of it, of its data or of JAX; install the same on both, and let both read "
                "the same files."
            )
        program.compile()
        return Made(program, task.settings, describe_machine(None))


def _read(content: Readable) -> bytes:
    """Reads a packed task; refuses a file that only the client sees."""
    try:
        return content.read_bytes()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"workers must see the client's file with `train` and its data, got {content}; set "
            "TMPDIR to a folder that all machines share, or let `train` load its data."
        ) from None


def _portable(error: Exception, worker: str) -> Exception:
    """An error that can be pickled, with a note on where it was raised."""
    trace_back = "".join(traceback.format_exception(error)).rstrip()
    try:
        copy = pickle.loads(pickle.dumps(error))
    except Exception:
        copy = None
    if type(copy) is not type(error):
        copy = RuntimeError(f"{type(error).__name__}: {error}")
    copy.__notes__ = [f"raised in the worker {worker}:\n{trace_back}"]
    return copy


@cache
def _ignore_interrupts() -> None:
    """Leaves Ctrl-C to the client: a terminal sends it to the client's child processes too."""
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    if parent_process() is None:
        return
    if threading.current_thread() is threading.main_thread():
        ignore()
    else:
        in_the_main_thread_of_a_worker(ignore)
