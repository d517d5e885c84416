"""The sweep: one trace, one compile, every cell."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep.grid import Grid, make_grid
from mu2_optax.sweep.journal import Journal, Outcome
from mu2_optax.sweep.memory import explain_out_of_memory, is_out_of_memory
from mu2_optax.sweep.merge import blank
from mu2_optax.sweep.progress import Progress
from mu2_optax.sweep.result import SweepResult
from mu2_optax.sweep.runner import Block, cells_of, cover, run_blocks
from mu2_optax.sweep.strategies import (
    STRATEGIES,
    Layout,
    block_function,
    choose_layout,
    has_convolution,
)
from mu2_optax.sweep.tracing import arguments, trace


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; ``result`` holds the cells that had finished."""

    def __init__(self, result: SweepResult):
        super().__init__(f"interrupted with {result.finished.sum()} cells finished")
        self.result = result


def sweep(
    train: Callable[..., Mapping[str, Any]],
    learning_rates: Any,
    seeds: int | Sequence[int],
    *,
    strategy: str = "auto",
    chunk_size: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
    label: str = "",
    context: Mapping[str, Any] | None = None,
) -> SweepResult:
    """Runs ``train`` for every learning rate and seed, with one trace and one compile.

    ``train(learning_rate, key)`` is JAX code from start to end: it gets a traced scalar and
    ``jax.random.key(seed)``, and returns a dict of metrics, scalars or curves. Divergence is a
    result: NaN and Inf are kept.

    The strategies give the same numbers, to rounding:

    * ``"vmap"``: the whole grid side by side in one call. The seeds are mapped outside and the
      rates inside, so what depends on the key alone (which batches to gather) is computed once per
      seed. With ``chunk_size``, several calls of at most that many cells.
    * ``"map"``: the whole grid in one call of ``lax.map``, ``chunk_size`` cells (1 if None) at a
      time.
    * ``"loop"``: one call per cell. A cell that raises is NaN in the result, with a warning, and
      does not take the others with it.
    * ``"auto"``: ``"loop"`` on a CPU if ``train`` contains a convolution, which XLA's CPU compiler
      vectorises badly, and ``"vmap"`` everywhere else; on a CPU the rates are shared out between
      the cores, a call each. Measured by ``benchmarks/sweep_throughput.py``.

    On a CPU, as many calls run at once as there are cores, at most 4.

    Args:
      train: A function of (learning_rate, key), or, if ``learning_rates`` is a dict, of its names
        and ``key``, called by keyword.
      learning_rates: The rates; or a dict of names to values, whose product is the grid. They are
        passed as floats of JAX's default precision.
      seeds: The number of seeds (then 0, 1, ...), or the seeds themselves.
      strategy: ``"auto"``, ``"vmap"``, ``"map"`` or ``"loop"``.
      chunk_size: How many cells run side by side (on each device), to bound memory.
      devices: Devices of one kind to split the grid over, such as ``jax.devices()``; each call then
        runs on all of them. The default device if None.
      progress: Whether to show a progress bar on stderr.
      resume: A file that records each finished call's cells; if it exists, the cells in it are not
        run again.
      label: The result's label, such as the optimizer's name.
      context: Values to keep in ``result.info`` which, with the grid, must be the same on resume.

    Returns:
      The result; ``result.metrics["loss"]`` has the shape (rates, seeds, ...).

    Raises:
      SweepInterrupted: On Ctrl-C, with what has finished.
      MemoryError: If a call does not fit into memory, with a ``chunk_size`` to try.

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
    devices = _check_options(strategy, chunk_size, devices)
    bar = Progress(int(np.prod(grid.shape)), label, progress)
    bar.note("tracing")
    traced = trace(train, grid)
    layout = choose_layout(
        strategy,
        chunk_size,
        devices,
        len(grid.seeds),
        len(grid.points),
        has_convolution(traced.closed),
    )
    journal = Journal(resume, grid, traced.outputs, label, context) if resume is not None else None
    outcomes: dict[tuple[int, int], Outcome] = dict(journal.cells) if journal else {}
    bar.skip(len(outcomes))
    todo = [block for block in cover(grid, layout) if set(cells_of(block)) - set(outcomes)]
    start = compiled = time.perf_counter()

    def result() -> SweepResult:
        info = {
            "strategy": layout.strategy,
            "block": [layout.seeds, layout.points],
            "compile_seconds": round(compiled - start, 4),
            "run_seconds": round(time.perf_counter() - compiled, 4),
            "jax": jax.__version__,
            "context": dict(context or {}),
        }
        return _collect(grid, traced.outputs, outcomes, label, info)

    try:
        if todo:
            bar.note("compiling")
            run = _compile(traced, grid, layout)
            compiled = time.perf_counter()
            alone = layout.strategy == "loop" and layout.devices is None
            may_fail = int(np.prod(grid.shape)) - 1 if alone else 0  # if all fail, that is an error
            for block, values, error in run_blocks(run, todo, layout.workers, may_fail):
                fresh = [cell for cell in cells_of(block) if cell not in outcomes]
                for cell, outcome in _unpack(grid, block, values, error):
                    if cell in fresh:
                        outcomes[cell] = outcome
                        if journal:
                            journal.record(*cell, outcome)
                bar.advance(len(fresh))
    except KeyboardInterrupt:
        raise SweepInterrupted(result()) from None
    except Exception as error:
        if is_out_of_memory(error):
            raise MemoryError(explain_out_of_memory(error, layout, grid.shape)) from error
        raise
    finally:
        bar.close()
    return result()


def _compile(traced: Any, grid: Grid, layout: Layout) -> Callable[[Block], Any]:
    """Compiles the block function ahead of time, and binds the grid's values to it."""
    abstract = arguments(grid, (layout.seeds,), (layout.points,))
    function = jax.jit(block_function(traced.cell, layout))
    constants = traced.closed.consts
    compiled = function.lower(constants, *abstract).compile()
    if layout.devices is not None:
        replicated = compiled.input_shardings[0][0]
        constants = jax.device_put(constants, replicated)
    seeds = grid.seeds.astype(abstract[0].dtype)
    points = grid.points.astype(abstract[1].dtype)

    def run(block: Block) -> Any:
        return jax.device_get(compiled(constants, seeds[block[0]], points[block[1]]))

    return run


def _unpack(
    grid: Grid, block: Block, values: Any, error: Exception | None
) -> Iterator[tuple[tuple[int, int], Outcome]]:
    """The outcome of each cell of a block."""
    for point, seed in cells_of(block):
        if error is not None:
            reason = str(error).strip().splitlines() or ["no message"]
            text = f"{type(error).__name__}: {reason[-1].strip()}"  # before it, XLA's traceback
            warnings.warn(f"the cell {grid.describe(point, seed)} failed: {text}", stacklevel=4)
            yield (point, seed), ({}, text)
            continue
        at = (int(np.argmax(block[0] == seed)), int(np.argmax(block[1] == point)))
        yield (point, seed), ({name: np.asarray(v[at]) for name, v in values.items()}, None)


def _collect(
    grid: Grid,
    outputs: Mapping[str, Any],
    outcomes: Mapping[tuple[int, int], Outcome],
    label: str,
    info: dict[str, Any],
) -> SweepResult:
    """Puts the outcomes into arrays of shape (axes..., seeds, ...)."""
    flat = (len(grid.points), len(grid.seeds))
    finished = np.zeros(flat, dtype=bool)
    complete = len(outcomes) == finished.size and all(e is None for _, e in outcomes.values())
    metrics = {name: blank(flat, out, complete) for name, out in outputs.items()}
    errors: dict[tuple[int, ...], str] = {}
    for (point, seed), (values, error) in outcomes.items():
        finished[point, seed] = True
        for name, value in values.items():
            metrics[name][point, seed] = value
        if error is not None:
            index = np.unravel_index(point, grid.shape[:-1])
            errors[(*(int(i) for i in index), seed)] = error
    return SweepResult(
        {name: array.reshape(*grid.shape, *array.shape[2:]) for name, array in metrics.items()},
        dict(grid.axes),
        grid.seeds,
        finished.reshape(grid.shape),
        errors,
        label,
        info,
    )


def _check_options(
    strategy: str, chunk_size: int | None, devices: Sequence[jax.Device] | None
) -> Sequence[jax.Device] | None:
    if strategy not in STRATEGIES:
        raise ValueError(f"`strategy` must be one of {STRATEGIES}, got {strategy!r}.")
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise ValueError(f"`chunk_size` must be a positive integer or None, got {chunk_size!r}.")
    if devices is None:
        return None
    listed = list(devices) if isinstance(devices, Sequence | np.ndarray) else [devices]
    if not listed or not all(isinstance(device, jax.Device) for device in listed):
        raise ValueError(f"`devices` must be devices such as jax.devices(), got {devices!r}.")
    if len({device.platform for device in listed}) > 1 or len(set(listed)) < len(listed):
        raise ValueError(f"`devices` must be distinct and of one kind, got {devices!r}.")
    return listed
