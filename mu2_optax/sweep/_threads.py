"""Covering the grid with calls, and running them, on a few threads or in turn."""

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from math import ceil, inf
from typing import Any

import jax
import jax.experimental
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._layout import Layout

Block = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # indices of seeds, of points
Finished = tuple[Block, Any, BaseException | None]


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
    run: Callable[[Block], Any],
    todo: Iterable[Block],
    workers: int,
    may_fail: int,
    deadline: float = inf,
) -> Iterator[tuple[Block, Any, Exception | None]]:
    """Runs the blocks; yields each as it finishes.

    On Ctrl-C the blocks that are running finish and are yielded, and then it raises; a second
    Ctrl-C raises at once.

    Args:
      run: Runs one block.
      todo: The blocks, each taken when it is to be started.
      workers: How many threads run blocks at once; 0 to run them one after another in this thread.
      may_fail: How many may fail without taking the others with them.
      deadline: When to start no further block, by ``time.monotonic``.

    Yields:
      The block, what ``run`` returned, and the error if it failed.
    """
    with _first_interrupt_noted() as interrupted:

        def starting() -> Iterator[Block]:
            """The blocks that are still to be started."""
            for block in todo:
                if interrupted.is_set() or time.monotonic() >= deadline:
                    return
                yield block

        finished = _threaded(run, starting(), workers) if workers else _in_turn(run, starting())
        for block, values, failure in finished:
            if failure is not None:
                if not isinstance(failure, Exception) or may_fail <= 0:
                    raise failure
                may_fail -= 1
            yield block, values, failure
    if interrupted.is_set():
        raise KeyboardInterrupt


def _in_turn(run: Callable[[Block], Any], blocks: Iterator[Block]) -> Iterator[Finished]:
    """Runs the blocks one after another."""
    for block in blocks:
        try:
            values = run(block)
        except Exception as failure:
            yield block, None, failure
        else:
            yield block, values, None


def _threaded(
    run: Callable[[Block], Any], blocks: Iterator[Block], workers: int
) -> Iterator[Finished]:
    """Runs the blocks on a few threads, under the settings of JAX that hold in this one."""
    run = _under_the_same_settings(run)
    pending: dict[Future[Any], Block] = {}
    pool = ThreadPoolExecutor(workers, thread_name_prefix="sweep")
    try:
        while True:
            while len(pending) < workers and (block := next(blocks, None)) is not None:
                pending[pool.submit(run, block)] = block
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                block, failure = pending.pop(future), future.exception()
                yield block, None if failure else future.result(), failure
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _under_the_same_settings(run: Callable[[Block], Any]) -> Callable[[Block], Any]:
    """``run`` for another thread; what ``with jax.enable_x64(True)`` sets, a thread has by itself.

    Only settings that matter to a function that has been compiled are carried over.
    """
    config: Any = jax.config
    home: Any = jax if hasattr(jax, "enable_x64") else jax.experimental  # before jax 0.8
    settings = (
        (home.enable_x64, config.jax_enable_x64),
        (jax.debug_nans, config.jax_debug_nans),
        (jax.debug_infs, config.jax_debug_infs),
    )

    def under_them(block: Block) -> Any:
        with ExitStack() as stack:
            for setting, value in settings:
                stack.enter_context(setting(value))
            return run(block)

    return under_them


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
