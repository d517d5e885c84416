"""Running blocks on an executor: a pool of processes, or a cluster."""

import pickle
import queue
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

from mu2_optax.sweep._dask import is_closed
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._shipping import pack, shipped
from mu2_optax.sweep._threads import Block, Finished, Runner
from mu2_optax.sweep._worker import Reply, Task, run_block

_IN_FLIGHT = 256  # calls, before it is known how many workers there are
_PER_WORKER = 4  # calls in flight for each worker that has been seen
_GLANCE = 0.2  # seconds after which to look at Ctrl-C, the clock and the executor again


class ExecutorError(RuntimeError):
    """The executor lost calls and did not run them again; ``result`` has what had finished."""

    result: SweepResult | None = None


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
        pending: dict[Future[bytes], Block] = {}
        done: queue.SimpleQueue[Future[bytes]] = queue.SimpleQueue()
        sweep = uuid.uuid4().hex
        dropping = False
        with shipped(executor, pack(task)) as (digest, content):
            try:
                while True:
                    window = max(_IN_FLIGHT, _PER_WORKER * len(workers.machines))
                    while len(pending) < window and (block := next(blocks, None)) is not None:
                        try:
                            future = executor.submit(run_block, sweep, digest, content, block)
                        except Exception as error:
                            raise _lost(describe(block), error) from error
                        pending[future] = block
                        future.add_done_callback(done.put)
                    if stopping() and not dropping:
                        dropping = True
                        for future in [*pending][max(1, len(workers.machines)) :]:
                            future.cancel()
                    if not pending:
                        return
                    try:
                        future = done.get(timeout=_GLANCE)
                    except queue.Empty:
                        if is_closed(executor):
                            block, closed = next(iter(pending.values())), CancelledError("closed")
                            raise _lost(describe(block), closed) from closed
                        continue
                    block = pending.pop(future)
                    failure = (
                        CancelledError("dropped") if future.cancelled() else future.exception()
                    )
                    if failure is not None:
                        if stopping():
                            continue
                        raise _lost(describe(block), failure) from failure
                    reply: Reply = pickle.loads(future.result())
                    if reply.error is not None and reply.fatal:
                        raise reply.error
                    workers.heard(reply)
                    yield block, reply.values, reply.error
            finally:
                for future in pending:
                    future.cancel()

    return runner


def _lost(what: str, error: BaseException) -> ExecutorError:
    reason = f"{type(error).__name__}: {error}".removesuffix(": ")
    return ExecutorError(
        f"the executor lost {what} ({reason}); start it anew and make the same call again: with "
        "`resume`, what has finished is not run a second time."
    )
