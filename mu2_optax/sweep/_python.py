"""The strategy "python": an ordinary function, called for one cell after another."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._layout import Layout
from mu2_optax.sweep._threads import Block
from mu2_optax.sweep._train import call, check_signature, checked_metrics


class PythonProgram:
    """Calls ``train`` untraced, with concrete numbers.

    Args:
      train: The function of a cell.
      grid: The grid.

    Raises:
      TypeError: If ``train`` cannot take the grid's arguments.
    """

    layout = Layout("python", seeds=1, points=1, lanes=1, workers=0)
    outputs = None  # known when the first cell has finished

    def __init__(self, train: Callable[..., Any], grid: Grid):
        check_signature(train, grid)
        self._train, self._grid = train, grid

    def compile(self) -> None:
        """Nothing: what is compiled is the caller's business."""

    def fingerprint(self) -> None:
        """None: an ordinary function is not traced, so that nobody sees what it does."""

    def run(self, block: Block) -> Any:
        """Runs the one cell of a block; what comes back waits for it to be computed."""
        (seed,), (point,) = block
        key = jax.random.key(np.uint32(self._grid.seeds[seed]))
        return jax.device_get(call(self._train, self._grid, self._grid.points[point].tolist(), key))

    def unpack(self, block: Block, values: Any) -> Iterator[tuple[tuple[int, int], dict[str, Any]]]:
        """The metrics of each cell (point, seed) of a block."""
        (seed,), (point,) = block
        yield (int(point), int(seed)), checked_metrics(values, self._grid, np.asarray)
