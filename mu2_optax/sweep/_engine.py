"""The sweep: every cell of the grid, one way through."""

import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep._compiled import CompiledProgram
from mu2_optax.sweep._grid import SEED, Grid
from mu2_optax.sweep._journal import Outputs
from mu2_optax.sweep._layout import STRATEGIES
from mu2_optax.sweep._machine import describe_machine, describe_versions
from mu2_optax.sweep._memory import explain_out_of_memory, is_out_of_memory
from mu2_optax.sweep._outcomes import Outcomes
from mu2_optax.sweep._progress import Progress
from mu2_optax.sweep._python import PythonProgram
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._threads import Block, cells_of, cover, run_blocks

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
      check: Called with the metrics' shapes and dtypes as soon as they are known, before anything
        is written; it may raise.

    Returns:
      The result.
    """
    devices = _check_options(strategy, chunk_size, devices, minutes)
    _check_context(context)
    deadline = inf if minutes is None else time.monotonic() + 60 * minutes
    with closing(Progress(int(np.prod(grid.shape)), label, progress)) as bar:
        bar.note("tracing")
        program: Program = (
            PythonProgram(train, grid)
            if strategy == "python"
            else CompiledProgram(train, grid, strategy, chunk_size, devices)
        )
        layout = program.layout
        outcomes = Outcomes(
            grid, program.outputs, check, resume, label, context, program.fingerprint
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
        try:
            _run_cells(program, grid, outcomes, deadline, bar, info)
        except KeyboardInterrupt:
            raise SweepInterrupted(outcomes.result(info)) from None
        except Exception as error:
            if is_out_of_memory(error):
                raise MemoryError(explain_out_of_memory(error, layout, grid.shape)) from error
            raise
    return outcomes.result(info)


def _run_cells(
    program: Program,
    grid: Grid,
    outcomes: Outcomes,
    deadline: float,
    bar: Progress,
    info: dict[str, Any],
) -> None:
    """Runs what has no outcome yet, and notes the seconds that it took."""
    layout = program.layout
    bar.skip(len(outcomes.cells))
    todo = [block for block in cover(grid, layout) if set(cells_of(block)) - set(outcomes.cells)]
    if not todo:
        return
    bar.note("compiling")
    start = time.perf_counter()
    program.compile()
    compiled = time.perf_counter()
    info["compile_seconds"] = round(compiled - start, 4)
    alone = layout.strategy in ("loop", "python") and layout.devices is None
    may_fail = int(np.prod(grid.shape)) - 1 if alone else 0  # if all fail, that is an error
    started = _noting(todo, grid, bar)
    try:
        for block, values, error in run_blocks(
            program.run, started, layout.workers, may_fail, deadline
        ):
            before = len(outcomes.cells)
            if error is not None:  # of a block that is a single cell
                (cell,) = cells_of(block)
                reason = _in_a_line(error)
                bar.clear()
                warnings.warn(f"the cell {grid.describe(*cell)} failed: {reason}", stacklevel=4)
                outcomes.add(cell, {}, reason)
            else:
                for cell, metrics in program.unpack(block, values):
                    if cell not in outcomes.cells:
                        outcomes.add(cell, metrics)
            bar.advance(len(outcomes.cells) - before, _cells_in_words(grid, block))
    finally:
        info["run_seconds"] = round(time.perf_counter() - compiled, 4)


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


def _check_context(context: Mapping[str, Any] | None) -> None:
    """Requires what a file can hold, before anything is run and not when it is saved."""
    try:
        json.dumps(dict(context or {}), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"`context` must hold strings, finite numbers, lists and dicts of them, got "
            f"{context!r} ({error}); use `.item()` of a NumPy or JAX scalar."
        ) from error


def _check_options(
    strategy: str,
    chunk_size: int | None,
    devices: Sequence[jax.Device] | None,
    minutes: float | None,
) -> Sequence[jax.Device] | None:
    if strategy not in STRATEGIES:
        raise ValueError(f"`strategy` must be one of {STRATEGIES}, got {strategy!r}.")
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"`chunk_size` must be a positive integer or None, got {chunk_size!r}.")
    if minutes is not None and not minutes > 0:
        raise ValueError(f"`minutes` must be positive or None, got {minutes!r}.")
    if strategy == "python" and (chunk_size is not None or devices is not None):
        raise ValueError(
            "`chunk_size` and `devices` do not apply to strategy 'python', which runs one cell "
            f"after another; got {chunk_size!r} and {devices!r}, leave them out."
        )
    if devices is None:
        return None
    listed = list(devices) if isinstance(devices, Sequence | np.ndarray) else [devices]
    if not listed or not all(isinstance(device, jax.Device) for device in listed):
        raise ValueError(f"`devices` must be devices such as jax.devices(), got {devices!r}.")
    if len({device.platform for device in listed}) > 1 or len(set(listed)) < len(listed):
        raise ValueError(f"`devices` must be distinct and of one kind, got {devices!r}.")
    return listed
