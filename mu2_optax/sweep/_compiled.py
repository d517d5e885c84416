"""The strategies that trace ``train`` once and compile it once."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep._cache import compiled_once
from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._layout import block_function, choose_layout
from mu2_optax.sweep._machine import default_device
from mu2_optax.sweep._program import fingerprint, has_callback, keeps_a_core_busy
from mu2_optax.sweep._threads import Block, cells_of
from mu2_optax.sweep._tracing import arguments, trace


class CompiledProgram:
    """A block of cells as one compiled function.

    Args:
      train: The function of a cell.
      grid: The grid.
      strategy: ``"auto"``, ``"vmap"``, ``"map"`` or ``"loop"``.
      chunk_size: Cells side by side, or None.
      devices: The devices that share a call, or None.

    Raises:
      TypeError: If ``train`` cannot take the grid's arguments, or returns anything else than a dict
        of numeric arrays.
    """

    def __init__(
        self,
        train: Callable[..., Any],
        grid: Grid,
        strategy: str,
        chunk_size: int | None,
        devices: Sequence[jax.Device] | None,
    ):
        self._grid = grid
        self._traced = trace(train, grid)
        self.outputs = self._traced.outputs
        self.layout = choose_layout(
            strategy,
            chunk_size,
            devices,
            len(grid.seeds),
            len(grid.points),
            keeps_a_core_busy(self._traced.closed),
        )

    def compile(self) -> None:
        """Compiles the function of a block ahead of time, if this process has not done so."""
        layout, constants = self.layout, self._traced.closed.consts
        seeds, points = arguments(self._grid, (layout.seeds,), (layout.points,))
        function = jax.jit(block_function(self._traced.cell, layout))
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
