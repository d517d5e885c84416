"""Running blocks on an executor: a pool of processes, or a cluster."""

import pickle
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any

from mu2_optax.sweep._dask import call_options, check_scheduler, count_workers
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._shipping import pack, shipped
from mu2_optax.sweep._threads import Block, Finished, Runner
from mu2_optax.sweep._worker import Reply, Task, run_block

_GLANCE = 0.2  # seconds after which to look at Ctrl-C, the clock and the executor again


class ExecutorError(RuntimeError):
    """The executor lost calls and did not run them again; ``result`` has what had finished."""

    result: SweepResult | None = None


def calls_in_flight(workers: int) -> int:
    """How many calls may be in flight, so that none of the known workers waits for the next one.

    Most executors do not say how many workers they have: so there are many at first, and then some
    for each worker that has replied.
    """
    return max(1024, 4 * workers)


class Workers:
    """The workers that have replied.

    Attributes:
      machines: What kind of machine each is on.
      compile_seconds: The longest that one of them has taken to make the program.
    """

    def __init__(self) -> None:
        self.machines: dict[str, dict[str, Any]] = {}
        self.compile_seconds = 0.0

    def heard(self, reply: Reply) -> None:
        """Notes who has replied."""
        self.machines[reply.worker] = reply.machine
        self.compile_seconds = max(self.compile_seconds, reply.compile_seconds)

    def describe(self) -> dict[str, Any]:
        """How many there are, and the kinds of their machines, as JSON values."""
        kinds: list[dict[str, Any]] = []
        for machine in self.machines.values():
            if machine not in kinds:
                kinds.append(machine)
        return {"count": len(self.machines), "machines": kinds}


def on_executor(
    executor: Any, task: Task, describe: Callable[[Block], str], workers: Workers
) -> Runner:
    """Runs the blocks as calls of an executor.

    So many calls are in flight that no worker waits for the next one, and not many more. When no
    further block is to start, those that have not begun are dropped: all that the executor lets
    go of but the oldest ones, as many as there are workers.

    Args:
      executor: The executor. Where its calls run, and what becomes of those of a worker that is
        lost, is its own business.
      task: What the workers need to know.
      describe: A block in words.
      workers: Where those that reply are noted.

    Returns:
      The runner. It raises `ExecutorError` if the executor has lost a call or cannot be reached.
    """

    def runner(blocks: Iterator[Block], stopping: Callable[[], bool]) -> Iterator[Finished]:
        pending: dict[Future[bytes], Block] = {}  # the oldest first
        done: queue.SimpleQueue[Future[bytes]] = queue.SimpleQueue()
        dropped = False
        with _or_lost():
            check_scheduler(executor)
            known = count_workers(executor)
        with shipped(executor, pack(task)) as (digest, content):
            submit = partial(executor.submit, run_block, digest, content, **call_options(executor))
            try:
                while True:
                    most = calls_in_flight(max(known, len(workers.machines)))
                    while len(pending) < most and (block := next(blocks, None)) is not None:
                        with _or_lost(partial(describe, block)):
                            future = submit(block)
                        pending[future] = block
                        future.add_done_callback(done.put)
                    if not pending:
                        return
                    if stopping() and not dropped:
                        dropped = True
                        for future in [*pending][max(1, len(workers.machines)) :]:
                            future.cancel()
                    try:
                        future = done.get(timeout=_GLANCE)
                    except queue.Empty:
                        with _or_lost():
                            check_scheduler(executor)
                        continue
                    block = pending.pop(future)
                    if dropped and (future.cancelled() or future.exception() is not None):
                        continue
                    with _or_lost(partial(describe, block)):
                        reply: Reply = pickle.loads(future.result())
                    if reply.error is not None and reply.fatal:
                        raise reply.error
                    workers.heard(reply)
                    yield block, reply.values, reply.error
            finally:
                for future in pending:
                    future.cancel()

    return runner


@contextmanager
def _or_lost(what: Callable[[], str] = lambda: "its scheduler") -> Iterator[None]:
    """Whatever an executor raises means that it has lost a call."""
    try:
        yield
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".removesuffix(": ")
        raise ExecutorError(
            f"the executor lost {what()} ({reason}); start it anew and make the same call "
            "again: with `resume`, what has finished is not run a second time."
        ) from error
