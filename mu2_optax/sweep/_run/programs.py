"""What computes a block of cells: a compiled program, or the user's function called as it is."""

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeAlias

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mu2_optax.sweep._environment import default_device, is_shared
from mu2_optax.sweep._grid import Cell, Grid
from mu2_optax.sweep._run.layout import Block, Layout, block_function, cells_of
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
    """A block of cells as one compiled function.

    Args:
      traced: The function of a cell, traced.
      grid: The grid.
      layout: What one call of the compiled function does.
    """

    def __init__(self, traced: Traced, grid: Grid, layout: Layout):
        self._traced, self._grid, self.layout = traced, grid, layout
        self.outputs = traced.outputs

    def compile(self) -> None:
        """Compiles the function of a block ahead of time, if this process has not done so."""
        layout, constants = self.layout, self._traced.closed.consts
        points, seeds = arguments(self._grid, (layout.points,), (layout.seeds,))
        block = block_function(self._traced.cell, layout)
        function = jax.jit(block, out_shardings=self._everywhere())
        lowered = function.lower(constants, points, seeds)
        if has_callback(self._traced.closed):  # whose function is not in the program's text
            self._compiled = lowered.compile()
        else:
            where = layout.devices or default_device()
            self._compiled = _compiled_once(lowered, where, tuple(self.outputs))
        if layout.devices is not None:
            constants = jax.device_put(constants, self._compiled.input_shardings[0][0])
        self._constants = constants
        self._points = self._grid.points.astype(points.dtype)
        self._seeds = self._grid.seeds.astype(seeds.dtype)

    def _everywhere(self) -> NamedSharding | None:
        """Gives all results to every process, if several share the call."""
        devices = self.layout.devices
        if devices is None or not is_shared(devices):
            return None
        return NamedSharding(Mesh(np.asarray(devices), ("cells",)), PartitionSpec())

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
        first = (block[0][0], block[1][0])
        for point, seed in cells_of(block):
            at = (point - first[0], seed - first[1])
            yield (point, seed), {name: value[at] for name, value in values.items()}


class PythonProgram:
    """Calls ``train`` untraced, with concrete numbers, for one cell after another.

    Args:
      train: The function of a cell.
      grid: The grid.

    Raises:
      TypeError: If ``train`` cannot take the grid's arguments.
    """

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


def _compiled_once(lowered: Any, *distinct: Hashable) -> Any:
    """Compiles a lowered function, or finds it among the last ones that were compiled.

    The key is the program itself, not the function that it came from: a function that has changed,
    or that closes over other numbers, gives another program. What makes a difference but is not in
    the program's text is ``distinct``.
    """
    key = (hashlib.blake2b(lowered.as_text().encode()).digest(), *distinct)
    found = _COMPILED.pop(key, None) or lowered.compile()
    _COMPILED[key] = found  # now the most recently used
    while len(_COMPILED) > _LIMIT:
        _COMPILED.pop(next(iter(_COMPILED)), None)
    return found


def forget() -> None:
    """Drops the compiled functions that this process keeps."""
    _COMPILED.clear()
