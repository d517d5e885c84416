"""Covering the grid with calls, and running them, on a few threads or in turn."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from math import ceil, inf
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._layout import Layout
from mu2_optax.sweep._settings import current_settings, under_settings

Block = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # indices of seeds, of points
Finished = tuple[Block, Any, BaseException | None]
# Runs blocks and yields each as it finishes. It is given the blocks that are to be started, which
# come to an end when no more should be, and a function that says whether that is so.
Runner = Callable[[Iterator[Block], Callable[[], bool]], Iterator[Finished]]


def cover(grid: Grid, layout: Layout) -> list[Block]:
    """Covers the grid with blocks of one shape; the last ones repeat cells to be full."""
    seeds, points = len(grid.seeds), len(grid.points)
    blocks = []
    for i in range(ceil(seeds / layout.seeds)):
        for j in range(ceil(points / layout.points)):
            rows = np.arange(i * layout.seeds, (i + 1) * layout.seeds).clip(max=seeds - 1)
            columns = np.arange(j * layout.points, (j + 1) * layout.points).clip(max=points - 1)
            blocks.append((rows, columns))
    return blocks


def cells_of(block: Block) -> list[tuple[int, int]]:
    """The cells (point, seed) of a block, each once."""
    return [(int(p), int(s)) for s in np.unique(block[0]) for p in np.unique(block[1])]


def describe_block(grid: Grid, block: Block) -> str:
    """A block in words: its cell, or the first and the last of several."""
    cells = cells_of(block)
    if len(cells) == 1:
        return f"the cell {grid.describe(*cells[0])}"
    first, last = grid.describe(*cells[0]), grid.describe(*cells[-1])
    return f"the {len(cells)} cells from {first} to {last}"


def run_blocks(
    runner: Runner,
    todo: Iterable[Block],
    may_fail: int,
    deadline: float = inf,
    describe: Callable[[Block], str] = str,
    agree: Callable[[int], int] = int,
) -> Iterator[tuple[Block, Any, Exception | None]]:
    """Runs the blocks; yields each as it finishes.

    On Ctrl-C the blocks that are running finish and are yielded, and then it raises; a second
    Ctrl-C raises at once.

    Args:
      runner: How they run: `in_turn`, `on_threads`, or on an executor.
      todo: The blocks, each taken when it is to be started.
      may_fail: How many may fail without taking the others with them.
      deadline: When to start no further block, by ``time.monotonic``.
      describe: A block in words, for a note on the error that it raises.
      agree: The largest of the numbers of all processes that run these blocks; their own if there
        is one process.

    Yields:
      The block, what it gave, and the error if it failed.
    """
    with _first_interrupt_noted() as interrupted:

        def stopping() -> bool:
            return interrupted.is_set() or time.monotonic() >= deadline

        def starting() -> Iterator[Block]:
            for block in todo:
                reason = agree(2 if interrupted.is_set() else 1 if stopping() else 0)
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


def in_turn(run: Callable[[Block], Any]) -> Runner:
    """Runs the blocks one after another in this thread."""

    def runner(blocks: Iterator[Block], stopping: Callable[[], bool]) -> Iterator[Finished]:
        for block in blocks:
            try:
                values = run(block)
            except Exception as failure:
                yield block, None, failure
            else:
                yield block, values, None

    return runner


def on_threads(run: Callable[[Block], Any], workers: int) -> Runner:
    """Runs the blocks on a few threads, under the settings of JAX that hold in this one."""
    settings = current_settings()

    def in_a_thread(block: Block) -> Any:
        with under_settings(settings):
            return run(block)

    def runner(blocks: Iterator[Block], stopping: Callable[[], bool]) -> Iterator[Finished]:
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

    return runner


@contextmanager
def _first_interrupt_noted() -> Iterator[threading.Event]:
    """Within it, the first Ctrl-C only sets the event; the next one does what it usually does."""
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
