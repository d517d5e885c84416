"""Running blocks on an executor: a pool of processes, or a cluster."""

import hashlib
import pickle
import queue
import tempfile
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from mu2_optax.sweep._environment import current_settings
from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._remote.worker import OnCluster, Reply, Task, run_block
from mu2_optax.sweep._results.result import SweepResult
from mu2_optax.sweep._run.layout import Block, describe_block
from mu2_optax.sweep._run.programs import Program
from mu2_optax.sweep._run.threads import Finished, Runner

_SMALL_TASK = 2**16  # bytes that may go with each call
_POLL_SECONDS = 0.2  # seconds after which to look at Ctrl-C, the clock and the executor again


class ExecutorError(RuntimeError):
    """The executor lost calls and did not run them again; ``result`` has what had finished."""

    result: SweepResult | None = None


def calls_in_flight(workers: int) -> int:
    """How many calls to submit at once, so that no worker has to wait for the next one.

    Most executors do not say how many workers they have. So the number is large from the start, and
    grows with the number of workers that have replied.
    """
    return max(1024, 4 * workers)


@contextmanager
def on_executor(
    executor: Any, train: Callable[..., Any], grid: Grid, program: Program, info: dict[str, Any]
) -> Iterator[Runner]:
    """Runs a program's blocks on an executor, whose workers make the same of ``train``.

    ``info`` gets ``workers``, and the ``compile_seconds`` of the slowest one. Yields the runner.
    """
    task = Task(train, grid, program.layout, current_settings(), program.fingerprint())
    machines: dict[str, dict[str, Any]] = {}  # of each worker that has replied
    try:
        yield partial(_run_calls, executor, task, grid, machines, info)
    finally:
        kinds = {tuple(machine.items()): machine for machine in machines.values()}
        info["workers"] = {"count": len(machines), "machines": list(kinds.values())}


def _run_calls(
    executor: Any,
    task: Task,
    grid: Grid,
    machines: dict[str, dict[str, Any]],
    info: dict[str, Any],
    blocks: Iterator[Block],
    stopping: Callable[[], bool],
) -> Iterator[Finished]:
    """Runs the blocks as calls of an executor.

    It submits `calls_in_flight` calls and then one for each reply. When no further block is to
    start, it cancels the calls that have not begun, except the oldest ones, one for each worker.
    The executor decides where its calls run, and whether those of a worker that is lost run again;
    if not, this raises `ExecutorError`.
    """
    pending: dict[Future[bytes], Block] = {}  # the oldest first
    done: queue.SimpleQueue[Future[bytes]] = queue.SimpleQueue()
    dropped = False
    client = _dask_client(executor)
    with _as_executor_error():
        _check_connected(client)
        known = sum(client.nthreads().values()) if client is not None else 0
    options = {} if client is None else {"pure": False}  # or Dask would run equal calls only once
    with _shipped(client, _pack(task)) as (digest, content):
        submit = partial(executor.submit, run_block, digest, content, **options)
        try:
            while True:
                most = calls_in_flight(max(known, len(machines)))
                while len(pending) < most and (block := next(blocks, None)) is not None:
                    with _as_executor_error(partial(describe_block, grid, block)):
                        future = submit(block)
                    pending[future] = block
                    future.add_done_callback(done.put)
                if not pending:
                    return
                if stopping() and not dropped:
                    dropped = True
                    for future in [*pending][max(1, len(machines)) :]:
                        future.cancel()
                try:
                    future = done.get(timeout=_POLL_SECONDS)
                except queue.Empty:
                    with _as_executor_error():
                        _check_connected(client)
                    continue
                block = pending.pop(future)
                if dropped and (future.cancelled() or future.exception() is not None):
                    continue
                with _as_executor_error(partial(describe_block, grid, block)):
                    reply: Reply = pickle.loads(future.result())
                if reply.error is not None and reply.fatal:
                    raise reply.error
                machines[reply.worker] = reply.machine
                seconds = round(reply.compile_seconds, 4)
                info["compile_seconds"] = max(info["compile_seconds"], seconds)
                yield block, reply.values, reply.error
        finally:
            for future in pending:
                future.cancel()


def _dask_client(executor: Any) -> Any:
    """The client of Dask's ``Client.get_executor()``; None for any other executor."""
    of_dask = type(executor).__module__.partition(".")[0] == "distributed"
    return getattr(executor, "_client", None) if of_dask else None


def _check_connected(client: Any) -> None:
    """Requires a client of Dask to be connected; otherwise some of its calls would never end."""
    if client is not None and client.status != "running":
        raise ConnectionError(f"the connection to Dask's scheduler is {client.status}")


def _pack(task: Task) -> bytes:
    """Pickles a task; if cloudpickle is installed, closures and lambdas too."""
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
def _shipped(client: Any, packed: bytes) -> Iterator[tuple[str, Any]]:
    """Puts a packed task where each worker reads it once.

    A small task goes with each call. A large one is held by the cluster if there is a ``client`` of
    Dask; the workers of any other executor find it in a temporary file. Yields the task's name, and
    what to pass as the ``content`` of `run_block`.
    """
    digest = hashlib.blake2b(packed, digest_size=16).hexdigest()
    if len(packed) <= _SMALL_TASK:
        yield digest, packed
    elif client is not None:
        with _on_cluster(client, packed) as content:
            yield digest, content
    else:
        with tempfile.TemporaryDirectory(prefix="mu2-sweep-") as folder:
            file = Path(folder, f"{digest}.pickle")
            file.write_bytes(packed)
            yield digest, file


@contextmanager
def _on_cluster(client: Any, content: bytes) -> Iterator[OnCluster]:
    """Holds the content on the cluster, as the result of a call that Dask repeats if it is lost."""
    import dask
    from distributed import Variable

    name = f"mu2-sweep-{uuid.uuid4().hex}"
    enough = 2 * len(content)  # bytes: it is meant to be large, and goes through the scheduler once
    with dask.config.set({"distributed.admin.large-graph-warning-threshold": enough}):
        future = client.submit(bytes, content, key=name)
    variable = Variable(name, client=client)
    variable.set(future)
    try:
        yield OnCluster(name)
    finally:
        with suppress(Exception):  # a scheduler that is lost has forgotten it
            variable.delete()


@contextmanager
def _as_executor_error(what: Callable[[], str] = lambda: "its scheduler") -> Iterator[None]:
    """Turns whatever an executor raises into an `ExecutorError`."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ExecutorError(
            f"the executor lost {what()} ({reason}); restart it and make the same call "
            "again: with `resume`, what has finished is not run a second time."
        ) from error
