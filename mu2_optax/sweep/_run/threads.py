"""Running calls in this process: one after another, or on a few threads."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any

from mu2_optax.sweep._environment import current_settings, under_settings
from mu2_optax.sweep._run.layout import Block
from mu2_optax.sweep._run.programs import Program

Finished = tuple[Block, Any, BaseException | None]
# Runs blocks and yields each as it finishes. It gets an iterator over the blocks to start, which
# ends when no more should start, and a function that says whether that time has come.
Runner = Callable[[Iterator[Block], Callable[[], bool]], Iterator[Finished]]


def run_blocks(
    runner: Runner,
    todo: Iterable[Block],
    may_fail: int,
    deadline: float = inf,
    describe: Callable[[Block], str] = str,
    agree: Callable[[int], int] = int,
) -> Iterator[tuple[Block, Any, Exception | None]]:
    """Runs the blocks; yields each as it finishes, what it returned, and the error if it failed.

    On Ctrl-C the blocks that are running finish and are yielded, and then it raises; a second
    Ctrl-C raises at once.

    Args:
      runner: How they run: one after another, on threads, or on an executor.
      todo: The blocks, each taken when it starts.
      may_fail: How many may fail without taking the others with them.
      deadline: When to start no further block, by ``time.monotonic``.
      describe: A block in words, for a note on the error that it raises.
      agree: Returns the largest of the numbers that the processes sharing these blocks pass; the
        number itself if there is one process.
    """
    with _noting_the_first_interrupt() as interrupted:

        def stopping() -> bool:
            return interrupted.is_set() or time.monotonic() >= deadline

        def starting() -> Iterator[Block]:
            for block in todo:
                reason = agree(2 if interrupted.is_set() else int(stopping()))
                if reason == 2:  # perhaps in another process
                    interrupted.set()
                if reason:
                    return
                yield block

        for block, values, failure in runner(starting(), stopping):
            if failure is not None:
                if not isinstance(failure, Exception) or may_fail <= 0:
                    failure.add_note(f"while running {describe(block)}")
                    raise failure
                may_fail -= 1
            yield block, values, failure
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def in_this_process(program: Program, info: dict[str, Any]) -> Iterator[Runner]:
    """Compiles a program, notes in ``info`` how long that took, and runs its blocks here."""
    start = time.perf_counter()
    program.compile()
    info["compile_seconds"] = round(time.perf_counter() - start, 4)
    workers = program.layout.workers
    yield partial(on_threads, program.run, workers) if workers else partial(in_turn, program.run)


def in_turn(
    run: Callable[[Block], Any], blocks: Iterator[Block], stopping: Callable[[], bool]
) -> Iterator[Finished]:
    """Runs the blocks one after another in this thread."""
    for block in blocks:
        try:
            values = run(block)
        except Exception as failure:
            yield block, None, failure
        else:
            yield block, values, None


def on_threads(
    run: Callable[[Block], Any],
    workers: int,
    blocks: Iterator[Block],
    stopping: Callable[[], bool],
) -> Iterator[Finished]:
    """Runs the blocks on a few threads, under this thread's settings of JAX."""
    settings = current_settings()

    def in_a_thread(block: Block) -> Any:
        with under_settings(settings):
            return run(block)

    pending: dict[Future[Any], Block] = {}
    pool = ThreadPoolExecutor(workers, thread_name_prefix="sweep")
    try:
        while True:
            while len(pending) < workers and (block := next(blocks, None)) is not None:
                pending[pool.submit(in_a_thread, block)] = block
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                block, failure = pending.pop(future), future.exception()
                yield block, None if failure else future.result(), failure
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _noting_the_first_interrupt() -> Iterator[threading.Event]:
    """Makes the first Ctrl-C only set an event; the next one does what it usually does."""
    noted = threading.Event()
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield noted  # Ctrl-C does not come here, or is ignored, or ends the process
        return

    def note(number: int, frame: Any) -> None:
        noted.set()
        signal.signal(signal.SIGINT, usual)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, usual)
