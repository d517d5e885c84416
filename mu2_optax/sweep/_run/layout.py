"""How the cells of a grid are laid out over calls, lanes and devices.

A *cell* is a point (a combination of the axes' values) and a seed, always in this order, as in the
arrays of a result. Every strategy is one function of a *block*: a few points times a few seeds,
each cell of it run once. Calls of that function, all of one shape so that it is compiled once,
cover the grid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal, TypeAlias, get_args

import jax
import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._environment import check_all_take_part, cores, default_device, is_shared
from mu2_optax.sweep._grid import SEED, Cell, Grid

Strategy: TypeAlias = Literal["auto", "vmap", "map", "loop", "python"]
"""How the cells run; see :func:`sweep`."""

STRATEGIES = get_args(Strategy)

Block = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # indices of points, of seeds


@dataclass(frozen=True)
class Layout:
    """What one call of the compiled function does.

    Attributes:
      strategy: ``"vmap"``, ``"map"``, ``"loop"`` or ``"python"``.
      points: Points per call.
      seeds: Seeds per call.
      lanes: Cells that run side by side on one device.
      workers: Calls in flight at once, each in its thread; 0 for one after another in the
        caller's thread.
      devices: The devices that share a call, or None for the default device.
      sharded: The axis of the block that is split over the devices, 0 for points, 1 for seeds.
    """

    strategy: str
    points: int
    seeds: int
    lanes: int
    workers: int = 1
    devices: tuple[jax.Device, ...] | None = None
    sharded: int = 0


def check_options(
    strategy: str,
    chunk_size: int | None,
    devices: Sequence[jax.Device] | None,
    minutes: float | None,
    executor: Any,
) -> Sequence[jax.Device] | None:
    """Requires options that exist and go together; returns the devices as a list."""
    if strategy not in STRATEGIES:
        raise ValueError(f"`strategy` must be one of {STRATEGIES}, got {strategy!r}.")
    counts = isinstance(chunk_size, int | np.integer) and not isinstance(chunk_size, bool)
    if chunk_size is not None and not (counts and chunk_size >= 1):
        raise ValueError(
            f"`chunk_size` must be an integer of at least 1, got {chunk_size!r}; leave it out to "
            "run all at once."
        )
    if minutes is not None and not minutes > 0:
        raise ValueError(f"`minutes` must be positive or None, got {minutes!r}.")
    if strategy == "python" and (chunk_size is not None or devices is not None):
        raise ValueError(
            "`chunk_size` and `devices` do not apply to strategy 'python', which runs one cell "
            f"after another; got {chunk_size!r} and {devices!r}, leave them out."
        )
    if executor is not None:
        if callable(getattr(executor, "get_executor", None)):
            raise TypeError(
                f"`executor` must be an executor, got {executor!r}; pass .get_executor()."
            )
        if not callable(getattr(executor, "submit", None)):
            raise TypeError(
                "`executor` must have `submit`, as those of concurrent.futures have, got "
                f"{executor!r}; pass a ProcessPoolExecutor, or `Client.get_executor()` of Dask."
            )
        if devices is not None:
            raise ValueError(
                "`devices` are those of this process, and an `executor` runs the calls elsewhere, "
                f"each on its worker's default device; got {devices!r}, leave it out."
            )
    if devices is None:
        return None
    listed = list(devices) if isinstance(devices, Sequence | np.ndarray) else [devices]
    if not listed or not all(isinstance(device, jax.Device) for device in listed):
        raise ValueError(f"`devices` must be devices such as jax.devices(), got {devices!r}.")
    if len({device.platform for device in listed}) > 1 or len(set(listed)) < len(listed):
        raise ValueError(f"`devices` must be distinct and of one kind, got {devices!r}.")
    if is_shared(listed):
        check_all_take_part(listed)
    return listed


def choose_layout(
    strategy: str,
    chunk_size: int | None,
    devices: Sequence[jax.Device] | None,
    grid: Grid,
    busy: bool,
) -> Layout:
    """Decides the block of one call; `sweep` documents the rule for ``"auto"``.

    ``busy`` says whether a cell keeps a core busy by itself.
    """
    points, seeds = len(grid.points), len(grid.seeds)
    count = len(devices) if devices else 1
    platform = devices[0].platform if devices else default_device().platform
    shares = 1
    if strategy == "auto":
        strategy = "loop" if platform == "cpu" and busy else "vmap"
        if platform == "cpu" and devices is None and chunk_size is None:
            shares = _calls_at_once()  # XLA runs a small matrix product on one core
    # Split the axis that leaves the fullest device with the fewest cells.
    sharded = 0 if ceil(points / count) * seeds <= points * ceil(seeds / count) else 1
    parts = (count, 1) if sharded == 0 else (1, count)
    own_points, own_seeds = ceil(points / parts[0] / shares), ceil(seeds / parts[1])
    lanes = own_points * own_seeds
    if strategy == "loop":
        own_points = own_seeds = lanes = 1
    elif strategy == "map":
        lanes = min(chunk_size or 1, lanes)
    elif chunk_size is not None:
        own_points, own_seeds = _split_into_chunks(own_points, own_seeds, chunk_size)
        lanes = own_points * own_seeds
    block = (own_points * parts[0], own_seeds * parts[1])
    calls = ceil(points / block[0]) * ceil(seeds / block[1])
    workers = min(calls, _calls_at_once()) if platform == "cpu" and count == 1 else 1
    return Layout(strategy, *block, lanes, workers, tuple(devices) if devices else None, sharded)


def cover(grid: Grid, layout: Layout) -> list[Block]:
    """Covers the grid with blocks of one shape; the last ones repeat cells to fill up.

    All points of the first seeds come first.
    """

    def parts(total: int, length: int) -> list[npt.NDArray[np.int64]]:
        starts = range(0, total, length)
        return [np.arange(start, start + length).clip(max=total - 1) for start in starts]

    points, seeds = parts(len(grid.points), layout.points), parts(len(grid.seeds), layout.seeds)
    return [(own_points, own_seeds) for own_seeds in seeds for own_points in points]


def cells_of(block: Block) -> list[Cell]:
    """The cells of a block, each once."""
    points, seeds = (np.unique(indices).tolist() for indices in block)
    return [(point, seed) for seed in seeds for point in points]


def describe_block(grid: Grid, block: Block) -> str:
    """A block in words: its cell, or the first and the last of several."""
    cells = [grid.describe(*cell) for cell in cells_of(block)]
    if len(cells) == 1:
        return f"the cell {cells[0]}"
    return f"the {len(cells)} cells from {cells[0]} to {cells[-1]}"


def block_ranges(grid: Grid, block: Block) -> str:
    """The values in a block, for the progress line: ``learning rate 0.1 to 10, seed 0``."""
    points, seeds = block
    columns = [*grid.points[points].T, grid.seeds[seeds]]
    ranges = [(values.min(), values.max()) for values in columns]
    return ", ".join(
        f"{name.replace('_', ' ')} {low:g}" + (f" to {high:g}" if high > low else "")
        for name, (low, high) in zip([*grid.axes, SEED], ranges, strict=True)
    )


def explained_if_out_of_memory(error: Exception, layout: Layout, grid: Grid) -> Exception:
    """The error itself; if memory ran out, one that says which ``chunk_size`` to try."""
    text = str(error)
    signs = ("RESOURCE_EXHAUSTED", "Out of memory")  # in an error of XLA
    if not isinstance(error, MemoryError) and not any(sign in text for sign in signs):
        return error
    shape = " x ".join(str(length) for length in grid.shape)
    what = f"out of memory with {layout.lanes} cells side by side, of a grid of {shape}"
    first = text.splitlines()[0] if text else type(error).__name__
    if layout.lanes == 1:
        return MemoryError(f"{what}: a single cell does not fit ({first}); make `train` smaller.")
    return MemoryError(
        f"{what} ({first}); try `chunk_size={layout.lanes // 2}`, and halve it again until it fits."
    )


def _split_into_chunks(points: int, seeds: int, size: int) -> tuple[int, int]:
    """A block of at most ``size`` cells: whole seeds if they fit, else a part of one seed."""
    if size >= points:
        calls = ceil(seeds / min(seeds, size // points))
        return points, ceil(seeds / calls)
    return ceil(points / ceil(points / size)), 1


def _calls_at_once() -> int:
    """How many calls run at once: one per core, at most 4; their own threads fill further cores."""
    return min(4, cores())
