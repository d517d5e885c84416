"""What computes a block of cells: a compiled program, or the user's function called as it is."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mu2_optax.sweep._environment import default_device, is_shared
from mu2_optax.sweep._grid import Cell, Grid
from mu2_optax.sweep._run.layout import Block, Layout, cells_of
from mu2_optax.sweep._run.tracing import (
    Traced,
    arguments,
    call,
    check_signature,
    checked_metrics,
    fingerprint,
    has_callback,
    keeps_a_core_busy,
    trace,
)

_LIMIT = 16  # compiled functions that this process keeps
_COMPILED: dict[Hashable, Any] = {}


def make_program(
    train: Callable[..., Mapping[str, Any]],
    grid: Grid,
    strategy: str,
    layout: Callable[[bool], Layout],
) -> "Program":
    """Chooses what computes the cells, in this process or on a worker; nothing is compiled yet.

    ``layout`` is a function that is told whether a cell keeps a core busy, and returns the layout.
    """
    if strategy == "python":
        return PythonProgram(train, grid)
    traced = trace(train, grid)
    return CompiledProgram(traced, grid, layout(keeps_a_core_busy(traced.closed)))


class CompiledProgram:
    """A block of cells as one compiled function."""

    def __init__(self, traced: Traced, grid: Grid, layout: Layout):
        self._traced, self._grid, self.layout = traced, grid, layout
        self.outputs = traced.outputs

    def compile(self) -> None:
        """Compiles the function of a block ahead of time, if this process has not done so."""
        layout, constants = self.layout, self._traced.closed.consts
        points, seeds = arguments(self._grid, (layout.points,), (layout.seeds,))
        block = _block_function(self._traced.cell, layout)
        everywhere = None
        if layout.devices is not None and is_shared(layout.devices):
            everywhere = NamedSharding(_mesh(layout.devices), PartitionSpec())
        lowered = jax.jit(block, out_shardings=everywhere).lower(constants, points, seeds)
        if has_callback(self._traced.closed):  # whose function is not in the program's text
            self._compiled = lowered.compile()
        else:
            # The program itself, and what makes a difference but is not in its text: a function
            # that has changed, or that closes over other numbers, gives another program.
            text = hashlib.blake2b(lowered.as_text().encode()).digest()
            key = (text, layout.devices or default_device(), tuple(self.outputs))
            self._compiled = find_or_make(_COMPILED, key, lowered.compile, _LIMIT)
        if layout.devices is not None:
            constants = jax.device_put(constants, self._compiled.input_shardings[0][0])
        self._constants = constants
        self._points = self._grid.points.astype(points.dtype)
        self._seeds = self._grid.seeds.astype(seeds.dtype)

    def fingerprint(self) -> str:
        """A hash of the program and its arrays, to compare with that of another process."""
        return fingerprint(self._traced.closed)

    def run(self, block: Block) -> Any:
        """Runs one block; the results have the leading axes (points, seeds)."""
        points, seeds = self._points[block[0]], self._seeds[block[1]]
        try:
            return jax.device_get(self._compiled(self._constants, points, seeds))
        except Exception as error:
            if not type(error).__name__.endswith("FloatingPointError"):  # JAX's own is not public
                raise
            raise FloatingPointError(
                f"a cell is not finite, and jax_debug_nans or jax_debug_infs is on ({error}); turn "
                "it off to have divergence as a result."
            ) from error

    def unpack(self, block: Block, values: Any) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """The metrics of each cell of a block."""
        first_point, first_seed = block[0][0], block[1][0]
        for point, seed in cells_of(block):
            at = (point - first_point, seed - first_seed)
            yield (point, seed), {name: value[at] for name, value in values.items()}


class PythonProgram:
    """Calls ``train`` untraced, with concrete numbers, for one cell after another."""

    layout = Layout("python", points=1, seeds=1, lanes=1, workers=0)
    outputs = None  # known when the first cell has finished

    def __init__(self, train: Callable[..., Any], grid: Grid):
        check_signature(train, grid)
        self._train, self._grid = train, grid

    def compile(self) -> None:
        """Does nothing: ``train`` compiles what it wants to."""

    def fingerprint(self) -> None:
        """None: an ordinary function is not traced, so nobody can tell what it does."""

    def run(self, block: Block) -> Any:
        """Runs the one cell of a block, and waits until its metrics are computed."""
        (point,), (seed,) = block
        key = jax.random.key(np.uint32(self._grid.seeds[seed]))
        metrics = call(self._train, self._grid, self._grid.points[point].tolist(), key)
        if not isinstance(metrics, Mapping):
            return metrics
        return {name: jax.device_get(value) for name, value in metrics.items()}  # in their order

    def unpack(self, block: Block, values: Any) -> Iterator[tuple[Cell, dict[str, Any]]]:
        """The metrics of each cell of a block."""
        (cell,) = cells_of(block)
        yield cell, checked_metrics(values, self._grid, np.asarray)


Program: TypeAlias = CompiledProgram | PythonProgram


def find_or_make(cache: dict[Any, Any], key: Hashable, make: Callable[[], Any], limit: int) -> Any:
    """Finds a value among the ``limit`` that were used last, or makes it."""
    cache[key] = found = cache.pop(key, None) or make()  # now the most recently used
    while len(cache) > limit:
        cache.pop(next(iter(cache)), None)
    return found


def _mesh(devices: tuple[jax.Device, ...]) -> Mesh:
    return Mesh(np.asarray(devices), ("cells",))


def _block_function(cell: Callable[[Any, Any, Any], Any], layout: Layout) -> Callable[..., Any]:
    """The function of (constants, points, seeds) that runs one block.

    ``cell``, of (constants, point, seed), runs one cell. The results have the leading axes (points,
    seeds).
    """

    def block(constants: Any, points: Any, seeds: Any) -> Any:
        def run(point: Any, seed: Any) -> Any:
            return cell(constants, point, seed)

        if layout.strategy == "loop":
            return jax.tree.map(lambda leaf: leaf[None, None], run(points[0], seeds[0]))
        if layout.strategy == "map":
            return _run_by_map(run, points, seeds, layout.lanes)
        # The outer map is over seeds and the inner one over points: what depends on the key alone,
        # such as the gathering of batches, is computed once per seed and shared by all points.
        return jax.vmap(lambda seed: jax.vmap(lambda point: run(point, seed))(points), out_axes=1)(
            seeds
        )

    if layout.devices is None:
        return block
    mesh = _mesh(layout.devices)
    split, whole = PartitionSpec("cells"), PartitionSpec()
    specs = (whole, split, whole) if layout.sharded == 0 else (whole, whole, split)
    out = split if layout.sharded == 0 else PartitionSpec(None, "cells")
    if hasattr(jax, "shard_map"):
        return jax.shard_map(block, mesh=mesh, in_specs=specs, out_specs=out, check_vma=False)
    from jax.experimental.shard_map import shard_map  # before jax 0.6.1

    return shard_map(block, mesh=mesh, in_specs=specs, out_specs=out, check_rep=False)


def _run_by_map(run: Callable[[Any, Any], Any], points: Any, seeds: Any, lanes: int) -> Any:
    """Runs the block by ``lax.map``, ``lanes`` cells at a time."""
    if lanes < len(points):
        over_points = lambda seed: jax.lax.map(
            lambda point: run(point, seed), points, batch_size=lanes if lanes > 1 else None
        )
        by_seed = jax.lax.map(over_points, seeds)
    else:
        over_points = lambda seed: jax.vmap(lambda point: run(point, seed))(points)
        together = lanes // len(points)
        by_seed = jax.lax.map(over_points, seeds, batch_size=together if together > 1 else None)
    return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), by_seed)
