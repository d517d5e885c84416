"""The public call, which takes every cell from the user's function to a result."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep._environment import (
    describe_machine,
    describe_versions,
    is_shared,
    largest,
    one_journal,
)
from mu2_optax.sweep._grid import Grid, Rates, make_grid
from mu2_optax.sweep._remote.executor import on_executor
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._results.cells import Outcomes, check_context, in_a_line
from mu2_optax.sweep._results.journal import Journal
from mu2_optax.sweep._run.layout import (
    Block,
    Strategy,
    block_ranges,
    cells_of,
    check_options,
    choose_layout,
    cover,
    describe_block,
    explained_if_out_of_memory,
)
from mu2_optax.sweep._run.programs import Program, make_program
from mu2_optax.sweep._run.progress import Progress
from mu2_optax.sweep._run.threads import Runner, in_this_process, run_blocks


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; ``result`` holds the cells that had finished."""

    def __init__(self, result: SweepResult):
        super().__init__(f"interrupted with {result.finished.sum()} cells finished")
        self.result = result


def sweep(
    train: Callable[..., Mapping[str, Any]],
    learning_rates: Rates | Mapping[str, Rates],
    seeds: int | Sequence[int],
    *,
    strategy: Strategy = "auto",
    chunk_size: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
    label: str = "",
    context: Mapping[str, Any] | None = None,
    minutes: float | None = None,
    executor: Executor | None = None,
    check: Callable[[Mapping[str, jax.ShapeDtypeStruct]], None] | None = None,
) -> SweepResult:
    """Runs ``train`` for every learning rate and seed, with one trace and one compile.

    ``train(learning_rate, key)`` is JAX code from start to end: it gets a traced scalar and
    ``jax.random.key(seed)``, and returns a dict of metrics, scalars or curves. Divergence is a
    result: NaN and Inf are kept.

    These strategies give the same numbers, to rounding:

    * ``"vmap"``: the whole grid side by side in one call. The seeds are mapped outside and the
      rates inside, so what depends on the key alone (which batches to gather) is computed once per
      seed. With ``chunk_size``, several calls of at most that many cells.
    * ``"map"``: the whole grid in one call of ``lax.map``, ``chunk_size`` cells (1 if None) at a
      time.
    * ``"loop"``: one call per cell. A cell that raises is NaN in the result, with a warning, and
      does not take the others with it.
    * ``"auto"``: ``"loop"`` on a CPU if ``train`` contains a convolution, or in a loop a product of
      matrices that keeps a core busy by itself (no side below 16, at least 4 million
      multiplications: a dense layer of 100 units), and ``"vmap"`` otherwise; on a CPU the cores
      share the rates, one call each. Measured by ``benchmarks/sweep_throughput.py``.

    On a CPU, as many calls run at once as there are cores, at most 4.

    One strategy is for what is not JAX code from start to end, such as a data loader around a
    compiled step:

    * ``"python"``: ``train`` is an ordinary function, called once per cell with Python floats and a
      concrete key, one cell after another: every rate of the first seed, then those of the next.
      What it compiles it should compile once, outside, with the learning rate as an argument. The
      first cell that finishes decides the metrics' shapes; a cell that raises is as in ``"loop"``.

    Args:
      train: A function of (learning_rate, key), or, if ``learning_rates`` is a dict, of its names
        and ``key``, called by keyword.
      learning_rates: The rates; or a dict of names to values, whose product is the grid. They are
        passed as floats of JAX's default precision. With ``{}`` there is nothing to choose:
        ``train(key=key)`` runs once per seed, and is a flat line beside others in pictures.
      seeds: The number of seeds (then 0, 1, ...), or the seeds themselves.
      strategy: ``"auto"``, ``"vmap"``, ``"map"``, ``"loop"`` or ``"python"``.
      chunk_size: How many cells run side by side (on each device), to bound memory.
      devices: Devices of one kind to split the grid over, such as ``jax.devices()``; each call then
        runs on all of them. The default device if None. Under ``jax.distributed`` these are the
        devices of all processes; each makes the same call of ``sweep``, and gets the whole result.
      progress: Whether to show progress on stderr: on a terminal one line with the rates and seeds
        that are running and the time left, elsewhere a line every ten seconds.
      resume: A file that records each finished call's cells; if it exists, the cells in it are not
        run again, except those that failed. The grid may have more values and seeds than when the
        file was begun: then only the new cells run. The file of another sweep is refused, and so is
        one from before ``train`` was edited (which ``"python"`` cannot notice: put a version into
        ``context``) or from before a setting of JAX changed that the numbers depend on.
      label: The result's label, such as the optimizer's name.
      context: Values to keep in ``result.info`` which must be the same on resume.
      minutes: A time limit: no call starts after it. Cells that have not been run are then not
        ``finished`` in the result; with ``resume``, the same call continues later.
      executor: What runs the calls instead of this process: a ``ProcessPoolExecutor``,
        ``Client.get_executor()`` of Dask, or another executor like those of
        ``concurrent.futures``. ``train`` is pickled, sent to each worker once, and compiled there;
        the calls are the same as without it, and give the same bits on the same kind of machine.
        Several workers need several calls: set ``chunk_size``, or the strategy ``"loop"``. With
        the strategy ``"python"`` several cells run at once.
      check: Called with the shape and dtype of each metric as soon as they are known, before
        anything is written; what it raises ends the sweep.

    Returns:
      The result; ``result.metrics["loss"]`` has the shape (rates, seeds, ...).

    Raises:
      SweepInterrupted: On Ctrl-C, with what has finished.
      ExecutorError: If the executor breaks or cannot be reached, with what has finished.
      MemoryError: If a call does not fit into memory, with a ``chunk_size`` to try.
      Exception: Whatever else ends the sweep while its cells run. The ``result`` of each of these
        errors holds what has finished.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> def train(learning_rate, key):
      ...     x = jax.random.normal(key)
      ...     for _ in range(3):
      ...         x = x - learning_rate * x  # gradient descent on x²/2
      ...     return {"loss": x**2 / 2}
      >>> result = sweep(train, [0.1, 1.0, 3.0], seeds=2, progress=False)
      >>> result.metrics["loss"].shape
      (3, 2)
      >>> bool((result.metrics["loss"][1] == 0).all())
      True
    """
    grid = make_grid(learning_rates, seeds)
    devices = check_options(strategy, chunk_size, devices, minutes, executor)
    check_context(context)
    deadline = inf if minutes is None else time.monotonic() + 60 * minutes
    shared = is_shared(devices)
    shown = progress and not (shared and jax.process_index())
    with (
        closing(Progress(int(np.prod(grid.shape)), label, shown)) as bar,
        one_journal(resume) if shared else nullcontext(resume) as path,
    ):
        bar.note("tracing")
        layout = partial(choose_layout, strategy, chunk_size, devices, grid)
        program = make_program(train, grid, strategy, layout)
        journal = None
        if path is not None:
            journal = Journal(path, grid, program.outputs, label, context, program.fingerprint())
        outcomes = Outcomes(grid, program.outputs, check, journal, label)
        info = {
            "strategy": program.layout.strategy,
            "block": [program.layout.points, program.layout.seeds],
            "compile_seconds": 0.0,
            "run_seconds": 0.0,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": describe_versions(),
            "machine": describe_machine(devices),
            "context": dict(context or {}),
        }
        if executor is None:
            place = in_this_process(program, info)
        else:
            place = on_executor(executor, train, grid, program, info)
        try:
            _run_cells(program, place, grid, outcomes, deadline, bar, info)
        except KeyboardInterrupt:
            raise SweepInterrupted(outcomes.result(info)) from None
        except Exception as error:
            raised = explained_if_out_of_memory(error, program.layout, grid)
            vars(raised)["result"] = outcomes.result(info)
            if raised is error:
                raise
            raise raised from error
    return outcomes.result(info)


def _run_cells(
    program: Program,
    place: AbstractContextManager[Runner],
    grid: Grid,
    outcomes: Outcomes,
    deadline: float,
    bar: Progress,
    info: dict[str, Any],
) -> None:
    """Runs the cells that have no outcome yet, and notes how long that took."""
    layout = program.layout
    bar.skip(len(outcomes.cells))
    todo = [block for block in cover(grid, layout) if set(cells_of(block)) - outcomes.cells.keys()]
    if not todo:
        return
    bar.note("compiling")
    alone = layout.strategy in ("loop", "python") and layout.devices is None
    may_fail = int(np.prod(grid.shape)) - 1 if alone else 0  # if all fail, that is an error

    def started() -> Iterator[Block]:
        for block in todo:
            bar.start(block_ranges(grid, block))
            yield block

    with place as runner:
        start = time.perf_counter()
        try:
            agree = largest if is_shared(layout.devices) else int
            for block, values, error in run_blocks(
                runner, started(), may_fail, deadline, partial(describe_block, grid), agree
            ):
                before = len(outcomes.cells)
                if error is not None:  # then the block is a single cell
                    (cell,) = cells_of(block)
                    reason = in_a_line(error)
                    bar.clear()
                    warnings.warn(f"the cell {grid.describe(*cell)} failed: {reason}", stacklevel=3)
                    outcomes.add({cell: ({}, reason)})
                else:
                    cells = program.unpack(block, values)
                    outcomes.add({c: (m, None) for c, m in cells if c not in outcomes.cells})
                bar.advance(len(outcomes.cells) - before, block_ranges(grid, block))
        finally:
            info["run_seconds"] = round(time.perf_counter() - start, 4)
