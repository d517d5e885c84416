"""How the cells of a grid are laid out over calls, lanes and devices.

Every strategy is one function of a *block*: a few seeds times a few points, each cell of it run
once. The grid is covered by calls of it, all of one shape, so that it is compiled once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from mu2_optax.sweep._machine import cores, default_device

STRATEGIES = ("auto", "vmap", "map", "loop", "python")

# run(point, seed) -> metrics of a single cell
Cell = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class Layout:
    """What one call of the compiled function does.

    Attributes:
      strategy: ``"vmap"``, ``"map"``, ``"loop"`` or ``"python"``.
      seeds: Seeds per call.
      points: Points (combinations of the axes' values) per call.
      lanes: Cells that run side by side on one device.
      workers: Calls in flight at once, each in its thread; 0 for one after another in the
        caller's thread.
      devices: The devices that share a call, or None for the default device.
      sharded: The axis of the block that is split over the devices, 0 for seeds, 1 for points.
    """

    strategy: str
    seeds: int
    points: int
    lanes: int
    workers: int = 1
    devices: tuple[jax.Device, ...] | None = None
    sharded: int = 1


def choose_layout(
    strategy: str,
    chunk_size: int | None,
    devices: Sequence[jax.Device] | None,
    seeds: int,
    points: int,
    busy: bool,
) -> Layout:
    """Decides the block of one call; `sweep` documents the rule for ``"auto"``."""
    count = len(devices) if devices else 1
    platform = devices[0].platform if devices else default_device().platform
    shares = 1
    if strategy == "auto":
        strategy = "loop" if platform == "cpu" and busy else "vmap"
        if platform == "cpu" and devices is None and chunk_size is None:
            shares = _workers()  # a call per core: XLA runs small matrix products on one
    # Split the axis that leaves the fullest device with the fewest cells.
    sharded = 1 if seeds * ceil(points / count) <= ceil(seeds / count) * points else 0
    parts = (count, 1) if sharded == 0 else (1, count)
    own_seeds, own_points = ceil(seeds / parts[0]), ceil(points / parts[1] / shares)
    lanes = own_seeds * own_points
    if strategy == "loop":
        own_seeds = own_points = lanes = 1
    elif chunk_size is not None:
        lanes = min(chunk_size, lanes)
        if strategy == "vmap":
            own_seeds, own_points = _chunk(own_seeds, own_points, chunk_size)
            lanes = own_seeds * own_points
    elif strategy == "map":
        lanes = 1
    block = (own_seeds * parts[0], own_points * parts[1])
    calls = ceil(seeds / block[0]) * ceil(points / block[1])
    workers = min(calls, _workers()) if platform == "cpu" and count == 1 else 1
    return Layout(strategy, *block, lanes, workers, tuple(devices) if devices else None, sharded)


def block_function(cell: Callable[[Any, Any, Any], Any], layout: Layout) -> Callable[..., Any]:
    """The function of (constants, seeds, points) that runs one block.

    Args:
      cell: The function of (constants, seed, point) that runs one cell.
      layout: The block.

    Returns:
      A function whose results have the leading axes (seeds, points).
    """

    def block(constants: Any, seeds: Any, points: Any) -> Any:
        def run(seed: Any, point: Any) -> Any:
            return cell(constants, seed, point)

        if layout.strategy == "loop":
            return jax.tree.map(lambda leaf: leaf[None, None], run(seeds[0], points[0]))
        if layout.strategy == "map":
            return _mapped(run, seeds, points, layout.lanes)
        # The seed is outside and unmapped inside: what depends on the key alone, such as the
        # gathering of batches, happens once per seed and is shared by all points.
        return jax.vmap(lambda seed: jax.vmap(lambda point: run(seed, point))(points))(seeds)

    if layout.devices is None:
        return block
    mesh = Mesh(np.asarray(layout.devices), ("cells",))
    split, whole = PartitionSpec("cells"), PartitionSpec()
    specs = (whole, split, whole) if layout.sharded == 0 else (whole, whole, split)
    out = split if layout.sharded == 0 else PartitionSpec(None, "cells")
    if hasattr(jax, "shard_map"):
        return jax.shard_map(block, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    from jax.experimental.shard_map import shard_map  # before jax 0.6.1

    return shard_map(block, mesh=mesh, in_specs=specs, out_specs=out, check_rep=False)


def _mapped(run: Cell, seeds: Any, points: Any, lanes: int) -> Any:
    """Runs the block by ``lax.map``, ``lanes`` cells at a time."""
    if lanes < len(points):
        over_points = lambda seed: jax.lax.map(
            lambda point: run(seed, point), points, batch_size=lanes if lanes > 1 else None
        )
        return jax.lax.map(over_points, seeds)
    over_points = lambda seed: jax.vmap(lambda point: run(seed, point))(points)
    together = lanes // len(points)
    return jax.lax.map(over_points, seeds, batch_size=together if together > 1 else None)


def _chunk(seeds: int, points: int, size: int) -> tuple[int, int]:
    """A block of at most ``size`` cells: whole seeds if they fit, else a part of one seed."""
    if size >= points:
        calls = ceil(seeds / min(seeds, size // points))
        return ceil(seeds / calls), points
    return 1, ceil(points / ceil(points / size))


def _workers() -> int:
    """The cores this process may use, at most 4: beyond that a call's own threads fill them."""
    return min(4, cores())
