"""The strategies that trace ``train`` once and compile it once."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mu2_optax.sweep._cache import compiled_once
from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._layout import Layout, block_function
from mu2_optax.sweep._machine import default_device
from mu2_optax.sweep._program import fingerprint, has_callback
from mu2_optax.sweep._threads import Block, cells_of
from mu2_optax.sweep._together import is_shared
from mu2_optax.sweep._tracing import Traced, arguments


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
        seeds, points = arguments(self._grid, (layout.seeds,), (layout.points,))
        block = block_function(self._traced.cell, layout)
        function = jax.jit(block, out_shardings=self._everywhere())
        lowered = function.lower(constants, seeds, points)
        if has_callback(self._traced.closed):  # the text of the program does not tell which
            self._compiled = lowered.compile()
        else:
            where = layout.devices or default_device()
            self._compiled = compiled_once(lowered, where, tuple(self.outputs))
        if layout.devices is not None:
            constants = jax.device_put(constants, self._compiled.input_shardings[0][0])
        self._constants = constants
        self._seeds = self._grid.seeds.astype(seeds.dtype)
        self._points = self._grid.points.astype(points.dtype)

    def _everywhere(self) -> NamedSharding | None:
        """Every process gets all results, if several share the call."""
        devices = self.layout.devices
        if devices is None or not is_shared(devices):
            return None
        return NamedSharding(Mesh(np.asarray(devices), ("cells",)), PartitionSpec())

    def fingerprint(self) -> str:
        """What the program and its arrays are, to be compared with those of another process."""
        return fingerprint(self._traced.closed)

    def run(self, block: Block) -> Any:
        """Runs one block; the results have the leading axes (seeds, points)."""
        seeds, points = self._seeds[block[0]], self._points[block[1]]
        try:
            return jax.device_get(self._compiled(self._constants, seeds, points))
        except Exception as error:
            if not type(error).__name__.endswith("FloatingPointError"):  # JAX's own is not public
                raise
            raise FloatingPointError(
                f"a cell is not finite, and jax_debug_nans or jax_debug_infs is on ({error}); turn "
                "it off to have divergence as a result."
            ) from error

    def unpack(self, block: Block, values: Any) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
        """The metrics of each cell (point, seed) of a block."""
        for point, seed in cells_of(block):
            at = (int(np.argmax(block[0] == seed)), int(np.argmax(block[1] == point)))
            yield (point, seed), {name: value[at] for name, value in values.items()}
