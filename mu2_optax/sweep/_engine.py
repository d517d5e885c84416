"""The public call, which takes every cell from the user's function to a result."""

import json
import time
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._cells import Block, Cells
from mu2_optax.sweep._environment import describe_machine, describe_versions
from mu2_optax.sweep._grid import Grid, Rates, make_grid
from mu2_optax.sweep._program import CompiledProgram, PythonProgram, Size, Train
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._resume import Folder
from mu2_optax.sweep._terminal import noting_the_first_interrupt, progress_bar

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
    devices: Sequence[jax.Device] | None = None,
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
      chunk_size: How many cells run side by side (on each device), to bound memory.
      devices: Devices of this process and of one kind to split each vmapped call over, such as
        ``jax.local_devices()``; the default device if None.
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
      SweepInterrupted: On Ctrl-C, when the running call has finished; a second Ctrl-C does not
        wait for it.

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
    context = json.loads(json.dumps(context or {}, allow_nan=False))  # as files return it
    size, parts = _size_of_calls(grid, strategy, chunk_size, len(devices or [None]))
    program: CompiledProgram | PythonProgram
    if strategy == "python":
        program = PythonProgram(train, grid)
    else:
        program = CompiledProgram(train, grid, strategy == "vmap", devices, parts[1] > 1)
    info = {
        "strategy": strategy,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": describe_versions(),
        "machine": describe_machine(devices),
        "context": context,
    }
    cells, folder = Cells(grid, program.outputs), None
    if resume is not None:
        names, text = list(program.outputs) or None, program.fingerprint()
        identity = {"label": label, "metrics": names, "program": text, "context": context}
        folder = Folder(resume, grid, identity)
        for block, metrics in folder.read():
            cells.add(block, metrics)
    calls = _calls(cells.done, size, parts)
    start, interrupted, failure = time.perf_counter(), False, None
    try:
        with (
            noting_the_first_interrupt() as noted,
            progress_bar(int(cells.done.sum()), cells.done.size, label, progress) as show,
        ):
            for block, own_size in calls:
                if noted.is_set():
                    raise KeyboardInterrupt
                try:
                    metrics = program.run(block, own_size)
                    cells.add(block, metrics)
                except Exception as error:
                    error.add_note(f"while running {cells.describe(block)}")
                    if strategy == "vmap":
                        lanes = own_size[0] * own_size[1]
                        error.add_note(f"{lanes} cells ran side by side; `chunk_size` bounds them")
                        raise
                    failure, reason = error, in_a_line(error)
                    warnings.warn(f"{cells.describe(block)} failed: {reason}", stacklevel=2)
                    cells.fail(block, reason)
                else:
                    if folder:
                        folder.write(block, metrics)
                show(block.points.size * block.seeds.size)
            if noted.is_set():
                raise KeyboardInterrupt
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


def in_a_line(error: Exception) -> str:
    """The error's type and the last line of its text; XLA's own traceback is before that."""
    lines = str(error).strip().splitlines() or ["no message"]
    return f"{type(error).__name__}: {lines[-1].strip()}"


def _size_of_calls(
    grid: Grid, strategy: str, chunk_size: int | None, devices: int
) -> tuple[Size, Size]:
    """How many points and seeds a call takes, and how many parts of each the devices share."""
    points, seeds = len(grid.points), len(grid.seeds)
    if strategy != "vmap":
        return (1, 1), (1, 1)
    # Split what leaves the fullest device with the fewest cells.
    split_points = ceil(points / devices) * seeds <= points * ceil(seeds / devices)
    parts = (devices, 1) if split_points else (1, devices)
    own_points, own_seeds = ceil(points / parts[0]), ceil(seeds / parts[1])
    if chunk_size is not None and chunk_size < own_points:  # a part of one seed, in equal calls
        own_points, own_seeds = ceil(own_points / ceil(own_points / chunk_size)), 1
    elif chunk_size is not None:  # whole seeds
        own_seeds = ceil(own_seeds / ceil(own_seeds / (chunk_size // own_points)))
    return (own_points * parts[0], own_seeds * parts[1]), parts


def _calls(done: npt.NDArray[np.bool_], size: Size, parts: Size) -> list[tuple[Block, Size]]:
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
                lengths = [-(-i.size // n) * n for i, n in zip((points, seeds), parts, strict=True)]
                own = size if missing.all() else (lengths[0], lengths[1])
                if lacking.any():
                    calls.append((Block(points, seeds), own))
    return calls


def _check_options(
    strategy: str, chunk_size: int | None, devices: Sequence[jax.Device] | None
) -> list[jax.Device] | None:
    """Requires options that exist and go together; returns the devices as a list."""
    if strategy not in get_args(Strategy):
        raise ValueError(f"`strategy` must be one of {get_args(Strategy)}, got {strategy!r}.")
    if chunk_size is not None and (chunk_size < 1 or chunk_size != int(chunk_size)):
        raise ValueError(f"`chunk_size` must be an integer of at least 1, got {chunk_size!r}.")
    if strategy != "vmap" and (chunk_size is not None or devices is not None):
        raise ValueError(
            f"`chunk_size` and `devices` do not apply to strategy {strategy!r}, which runs one "
            "cell after another; leave them out."
        )
    if devices is None:
        return None
    listed = list(devices) if isinstance(devices, Sequence | np.ndarray) else [devices]
    kinds = {device.platform for device in listed if isinstance(device, jax.Device)}
    known = set(jax.local_devices(backend=kinds.pop())) if len(kinds) == 1 else set()
    if not listed or not set(listed) <= known or len(set(listed)) < len(listed):
        raise ValueError(
            "`devices` must be distinct devices of one kind and of this process, such as "
            f"jax.local_devices(), got {devices!r}."
        )
    return listed
