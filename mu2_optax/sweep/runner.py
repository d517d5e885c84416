"""Covering the grid with calls, and running them on a few threads."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep.grid import Grid
from mu2_optax.sweep.strategies import Layout

Block = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # indices of seeds, of points


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


def run_blocks(
    run: Callable[[Block], Any], todo: Sequence[Block], workers: int, may_fail: int
) -> Iterator[tuple[Block, Any, Exception | None]]:
    """Runs the blocks on a few threads; yields each as it finishes.

    On Ctrl-C the blocks that are running finish and are yielded, and then it raises; a second
    Ctrl-C raises at once.

    Args:
      run: Runs one block.
      todo: The blocks.
      workers: How many run at once.
      may_fail: How many may fail without taking the others with them.

    Yields:
      The block, what ``run`` returned, and the error if it failed.
    """
    pending: dict[Future[Any], Block] = {}
    waiting = iter(todo)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="sweep")
    try:
        with _first_interrupt_noted() as interrupted:
            while True:
                while not interrupted.is_set() and len(pending) < workers:
                    if (block := next(waiting, None)) is None:
                        break
                    pending[pool.submit(run, block)] = block
                if not pending:
                    break
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    block, failure = pending.pop(future), future.exception()
                    if failure is None:
                        yield block, future.result(), None
                    elif isinstance(failure, Exception) and may_fail > 0:
                        may_fail -= 1
                        yield block, None, failure
                    else:
                        raise failure
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    if interrupted.is_set():
        raise KeyboardInterrupt


@contextmanager
def _first_interrupt_noted() -> Iterator[threading.Event]:
    """Within it, the first Ctrl-C only sets the event, wherever it arrives; the next is as ever."""
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
