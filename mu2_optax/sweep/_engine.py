"""The public call, which takes every cell from the user's function to a result."""

import json
import os
import platform
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, TypeAlias, get_args

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._cells import Cells
from mu2_optax.sweep._grid import Block, Rates, make_grid
from mu2_optax.sweep._program import CompiledProgram, PythonProgram, Size, Train
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._resume import Folder, describe_versions

Strategy: TypeAlias = Literal["vmap", "loop", "python"]
"""How the cells run; see :func:`sweep`."""


class SweepInterrupted(KeyboardInterrupt):
    """Ctrl-C during a sweep; ``result`` holds the cells that had finished."""

    def __init__(self, result: SweepResult):
        super().__init__(f"interrupted with {result.finished.sum()} cells finished")
        self.result = result


def sweep(
    train: Train,
    learning_rates: Rates | Mapping[str, Rates],
    seeds: int | Sequence[int],
    *,
    strategy: Strategy = "vmap",
    chunk_size: int | None = None,
    progress: bool = True,
    resume: str | Path | None = None,
    label: str = "",
    context: Mapping[str, Any] | None = None,
) -> SweepResult:
    """Runs ``train`` for every learning rate and seed, with one trace and one compile.

    ``train(learning_rate, key)`` is JAX code from start to end: it gets a traced scalar and
    ``jax.random.key(seed)``, and returns a dict of metrics, scalars or curves. Divergence is a
    result: NaN and Inf are kept. These strategies give the same numbers, to rounding:

    * ``"vmap"``: the whole grid side by side in one call, or several calls of ``chunk_size`` cells.
      What depends on the key alone (which batches to gather) is computed once per seed.
    * ``"loop"``: one call per cell. A cell that raises is NaN in the result, with a warning, and
      does not take the others with it. Faster than ``"vmap"`` on a CPU where one cell keeps the
      cores busy, as convolutions and dense layers of 100 units do.
    * ``"python"``: as ``"loop"``, for an ordinary function, such as a data loader around a compiled
      step. It is called with Python floats and a concrete key: every rate of the first seed, then
      those of the next. What it compiles it should compile once, outside.

    Args:
      train: A function of (learning_rate, key), or, if ``learning_rates`` is a dict, of its names
        and ``key``, called by keyword.
      learning_rates: The rates; or a dict of names to values, whose product is the grid. They are
        passed as floats of JAX's default precision. With ``{}`` there is nothing to choose:
        ``train(key=key)`` runs once per seed.
      seeds: The number of seeds (then 0, 1, ...), or the seeds themselves.
      strategy: ``"vmap"``, ``"loop"`` or ``"python"``.
      chunk_size: How many cells run side by side, to bound memory.
      progress: Whether to show tqdm's progress bar.
      resume: A folder that keeps the cells of each finished call in a file. Cells that it has do
        not run again; the grid may have more rates and seeds than before. Refused if another sweep
        has written it, or this one before ``train``, a setting or the version of JAX changed.
        (What ``"python"`` calls cannot be compared: put a version into ``context``.)
      label: The result's label, such as the optimizer's name.
      context: Values to keep in ``result.info`` which must be the same on resume.

    Returns:
      The result; ``result.metrics["loss"]`` has the shape (rates, seeds, ...).

    Raises:
      SweepInterrupted: On Ctrl-C, with what has finished; the call that ran is lost.

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
    _check_options(strategy, chunk_size, label)
    context = json.loads(json.dumps(context or {}, allow_nan=False))  # as files return it
    if strategy == "python":
        program = PythonProgram(train, grid)
    else:
        program = CompiledProgram(train, grid, strategy == "vmap")
    info = {
        "strategy": strategy,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": describe_versions(),
        "machine": _describe_machine(),
        "context": context,
    }
    cells, folder = Cells(grid), None
    if resume is not None:
        names, text = list(program.names) or None, program.fingerprint()
        identity = {"label": label, "metrics": names, "program": text, "context": context}
        folder = Folder(resume, grid, identity)
        for block, metrics in folder.read():
            cells.add(block, metrics)
    calls = _calls(cells.done, program.call_size(chunk_size))
    start, interrupted, failure = time.perf_counter(), False, None
    try:
        with _progress_bar(cells.done, label, progress) as bar:
            for block, size in calls:
                try:
                    metrics = program.run(block, size)
                    cells.add(block, metrics)
                except Exception as error:
                    if "KeyboardInterrupt" in str(error):  # in a host callback
                        raise KeyboardInterrupt from error
                    error.add_note(f"while running {grid.describe(block)}")
                    if strategy == "vmap":
                        lanes = size[0] * size[1]
                        error.add_note(f"{lanes} cells ran side by side; `chunk_size` bounds them")
                        raise
                    failure, text = error, str(error).strip() or "no message"
                    reason = f"{type(error).__name__}: {text.splitlines()[-1].strip()}"
                    warnings.warn(f"{grid.describe(block)} failed: {reason}", stacklevel=2)
                    cells.errors[int(block.points[0]), int(block.seeds[0])] = reason
                else:
                    if folder:
                        folder.write(block, metrics)
                bar.update(block.points.size * block.seeds.size)
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - start - program.compile_seconds
    info |= {"compile_seconds": round(program.compile_seconds, 4), "run_seconds": round(seconds, 4)}
    result = cells.result(label, info)
    if interrupted:
        raise SweepInterrupted(result)
    if failure and not cells.done.any():  # of what every cell raises
        raise failure
    return result


def _describe_machine() -> dict[str, Any]:
    """What a reader of timings wants to know."""
    (device,) = jax.device_put(np.float32(0)).devices()  # the default one
    kind = {"device": device.device_kind, "cores": os.cpu_count()}
    return {"architecture": platform.machine(), **kind}


def _progress_bar(done: npt.NDArray[np.bool_], label: str, shown: bool) -> Any:
    """Tqdm's bar, which draws in a terminal, a notebook or a log, or what only counts."""
    if not shown:
        return nullcontext(SimpleNamespace(update=lambda cells: None))
    from tqdm.auto import tqdm

    return tqdm(initial=int(done.sum()), total=done.size, desc=label or "sweep", unit="cell")


def _calls(done: npt.NDArray[np.bool_], size: Size) -> list[tuple[Block, Size]]:
    """The calls for the cells that are not done, all points of the first seeds first.

    Calls of one size cover the grid, so that they are compiled once, and so that a resumed sweep
    makes the same calls. If a part of a call is done, because the grid has grown, the rest runs in
    smaller calls: the seeds that lack the same points together.
    """
    calls = []
    for seed in range(0, done.shape[1], size[1]):
        for point in range(0, done.shape[0], size[0]):
            missing = ~done[point : point + size[0], seed : seed + size[1]]
            for lacking in np.unique(missing, axis=1).T:
                points = point + np.flatnonzero(lacking)
                seeds = seed + np.flatnonzero((lacking == missing.T).all(axis=1))
                if lacking.any():
                    own = size if missing.all() else (len(points), len(seeds))
                    calls.append((Block(points, seeds), own))
    return calls


def _check_options(strategy: str, chunk_size: int | None, label: str) -> None:
    if not isinstance(label, str):
        raise TypeError(f"`label` must be text, got {label!r}; leave it out if there is none.")
    if strategy not in get_args(Strategy):
        raise ValueError(f"`strategy` must be one of {get_args(Strategy)}, got {strategy!r}.")
    if chunk_size is not None and (chunk_size < 1 or chunk_size != int(chunk_size)):
        raise ValueError(f"`chunk_size` must be an integer of at least 1, got {chunk_size!r}.")
    if strategy != "vmap" and chunk_size is not None:
        raise ValueError(f"`chunk_size` does not apply to strategy {strategy!r}; leave it out.")
