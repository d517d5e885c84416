"""The sweep: every cell of the grid, one way through."""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep._compiled import CompiledProgram
from mu2_optax.sweep._executor import ExecutorError, Workers, on_executor
from mu2_optax.sweep._grid import SEED, Grid
from mu2_optax.sweep._journal import Outputs
from mu2_optax.sweep._layout import choose_layout
from mu2_optax.sweep._machine import describe_machine, describe_versions
from mu2_optax.sweep._memory import explain_out_of_memory, is_out_of_memory
from mu2_optax.sweep._options import check_context, check_options
from mu2_optax.sweep._outcomes import Outcomes
from mu2_optax.sweep._program import keeps_a_core_busy
from mu2_optax.sweep._progress import Progress
from mu2_optax.sweep._python import PythonProgram
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._settings import current_settings
from mu2_optax.sweep._threads import (
    Block,
    Runner,
    cells_of,
    cover,
    describe_block,
    in_turn,
    on_threads,
    run_blocks,
)
from mu2_optax.sweep._together import is_shared, largest, one_journal
from mu2_optax.sweep._tracing import trace
from mu2_optax.sweep._worker import Task

Program = CompiledProgram | PythonProgram


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; ``result`` holds the cells that had finished."""

    def __init__(self, result: SweepResult):
        super().__init__(f"interrupted with {result.finished.sum()} cells finished")
        self.result = result


def run_grid(
    train: Callable[..., Mapping[str, Any]],
    grid: Grid,
    *,
    strategy: str = "auto",
    chunk_size: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
    label: str = "",
    context: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    executor: Any = None,
    check: Callable[[Outputs], None] | None = None,
) -> SweepResult:
    """Runs ``train`` on a grid; `sweep` documents the arguments that it shares with this.

    Args:
      train: The function of a cell.
      grid: The grid.
      strategy: How the cells run.
      chunk_size: Cells side by side.
      devices: The devices that share a call.
      progress: Whether to show progress.
      resume: The journal's file.
      label: The result's label.
      context: What must be the same on resume.
      minutes: The budget of time.
      executor: What runs the calls.
      check: Called with the metrics' shapes and dtypes as soon as they are known, before anything
        is written; it may raise.

    Returns:
      The result.
    """
    devices = check_options(strategy, chunk_size, devices, minutes, executor)
    check_context(context)
    deadline = inf if minutes is None else time.monotonic() + 60 * minutes
    shared = is_shared(devices)
    progress = progress and not (shared and jax.process_index())
    with (
        closing(Progress(int(np.prod(grid.shape)), label, progress)) as bar,
        one_journal(resume) if shared else nullcontext(resume) as journal,
    ):
        bar.note("tracing")
        program = _make_program(train, grid, strategy, chunk_size, devices)
        layout = program.layout
        outcomes = Outcomes(
            grid, program.outputs, check, journal, label, context, program.fingerprint
        )
        info = {
            "strategy": layout.strategy,
            "block": [layout.seeds, layout.points],
            "compile_seconds": 0.0,
            "run_seconds": 0.0,
            "versions": describe_versions(),
            "machine": describe_machine(devices),
            "context": dict(context or {}),
        }
        place = (
            _here(program, info)
            if executor is None
            else _there(executor, train, grid, program, info)
        )
        try:
            _run_cells(program, place, grid, outcomes, deadline, bar, info)
        except KeyboardInterrupt:
            raise SweepInterrupted(outcomes.result(info)) from None
        except ExecutorError as lost:
            lost.result = outcomes.result(info)
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise MemoryError(explain_out_of_memory(error, layout, grid.shape)) from error
            raise
    return outcomes.result(info)


def _make_program(
    train: Callable[..., Mapping[str, Any]],
    grid: Grid,
    strategy: str,
    chunk_size: int | None,
    devices: Sequence[jax.Device] | None,
) -> Program:
    """What computes a cell; traced, and not yet compiled."""
    if strategy == "python":
        return PythonProgram(train, grid)
    traced = trace(train, grid)
    shape, busy = (len(grid.seeds), len(grid.points)), keeps_a_core_busy(traced.closed)
    layout = choose_layout(strategy, chunk_size, devices, *shape, busy)
    return CompiledProgram(traced, grid, layout)


@contextmanager
def _here(program: Program, info: dict[str, Any]) -> Iterator[Runner]:
    """Runs blocks in this process."""
    start = time.perf_counter()
    program.compile()
    info["compile_seconds"] = round(time.perf_counter() - start, 4)
    workers = program.layout.workers
    yield on_threads(program.run, workers) if workers else in_turn(program.run)


@contextmanager
def _there(
    executor: Any, train: Callable[..., Any], grid: Grid, program: Program, info: dict[str, Any]
) -> Iterator[Runner]:
    """Runs blocks on an executor, whose workers compile for themselves."""
    task = Task(train, grid, program.layout, current_settings(), program.fingerprint())
    workers = Workers()
    try:
        yield on_executor(executor, task, partial(describe_block, grid), workers)
    finally:
        info["compile_seconds"] = round(workers.compile_seconds, 4)
        info["workers"] = workers.describe()


def _run_cells(
    program: Program,
    place: AbstractContextManager[Runner],
    grid: Grid,
    outcomes: Outcomes,
    deadline: float,
    bar: Progress,
    info: dict[str, Any],
) -> None:
    """Runs what has no outcome yet, and notes the seconds that it took."""
    layout = program.layout
    bar.skip(len(outcomes.cells))
    todo = [
        block
        for block in cover(grid, layout)
        if any(cell not in outcomes.cells for cell in cells_of(block))
    ]
    if not todo:
        return
    bar.note("compiling")
    alone = layout.strategy in ("loop", "python") and layout.devices is None
    may_fail = int(np.prod(grid.shape)) - 1 if alone else 0  # if all fail, that is an error
    started = _noting(todo, grid, bar)
    with place as runner:
        start = time.perf_counter()
        try:
            agree = largest if is_shared(layout.devices) else int
            for block, values, error in run_blocks(
                runner, started, may_fail, deadline, partial(describe_block, grid), agree
            ):
                before = len(outcomes.cells)
                if error is not None:  # of a block that is a single cell
                    (cell,) = cells_of(block)
                    reason = _in_a_line(error)
                    bar.clear()
                    warnings.warn(f"the cell {grid.describe(*cell)} failed: {reason}", stacklevel=4)
                    outcomes.add({cell: ({}, reason)})
                else:
                    cells = program.unpack(block, values)
                    outcomes.add({c: (m, None) for c, m in cells if c not in outcomes.cells})
                bar.advance(len(outcomes.cells) - before, _cells_in_words(grid, block))
        finally:
            info["run_seconds"] = round(time.perf_counter() - start, 4)


def _noting(todo: Iterable[Block], grid: Grid, bar: Progress) -> Iterator[Block]:
    """The blocks, each noted as it is started."""
    for block in todo:
        bar.start(_cells_in_words(grid, block))
        yield block


def _cells_in_words(grid: Grid, block: Block) -> str:
    """The cells of a block: ``learning rate 0.1 to 10, seed 0``."""
    seeds, points = block
    columns = [*grid.points[points].T, grid.seeds[seeds]]
    ranges = [(values.min(), values.max()) for values in columns]
    return ", ".join(
        f"{name.replace('_', ' ')} {low:g}" + (f" to {high:g}" if high > low else "")
        for name, (low, high) in zip([*grid.axes, SEED], ranges, strict=True)
    )


def _in_a_line(error: Exception) -> str:
    """An error's type and the last line of its text; XLA's own traceback comes before it."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[-1].strip()}"
