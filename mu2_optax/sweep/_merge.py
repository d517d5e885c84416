"""Joining results of the same function over different rates and seeds."""

from collections.abc import Sequence

import jax
import numpy as np

from mu2_optax.sweep._cells import Block, Cells
from mu2_optax.sweep._grid import Grid
from mu2_optax.sweep._result import SweepResult


def merge(first: SweepResult, *others: SweepResult) -> SweepResult:
    """Joins sweeps of the same function into one result, over the union of their grids.

    The results may differ in their values along any axis and in their seeds, and may be unfinished.
    Cells that none of them has run stay unfinished in the union; one that failed in one result and
    finished in another has finished.

    Args:
      first: A result, whose label and ``info`` the joined one has.
      *others: Results with the same label, axes and metrics, or of which no cell has finished.

    Returns:
      The joined result, its axes and seeds sorted.

    Raises:
      ValueError: If they do not belong together, or if a cell has two outcomes.

    Examples:
      >>> from mu2_optax.sweep import sweep
      >>> train = lambda learning_rate, key: {"loss": 2 * learning_rate}
      >>> low = sweep(train, [1.0, 2.0], seeds=1, progress=False)
      >>> high = sweep(train, [4.0], seeds=1, progress=False)
      >>> merge(low, high).metrics["loss"].tolist()
      [[2.0], [4.0], [8.0]]
    """
    results = (first, *others)
    kinds = {
        "label": [r.label for r in results],
        "axes": [list(r.axes) for r in results],
        "metrics": [sorted(r.metrics) for r in results if r.metrics],  # if known yet
    }
    for what, found in kinds.items():
        if any(kind != found[0] for kind in found):
            raise ValueError(
                f"results to merge must have the same {what}, got {found}; keep those of different "
                "optimizers in a dict by label."
            )
    axes = {name: np.unique(np.concatenate([r.axes[name] for r in results])) for name in first.axes}
    return join(results, Grid(axes, np.unique(np.concatenate([r.seeds for r in results]))))


def join(results: Sequence[SweepResult], grid: Grid) -> SweepResult:
    """Results as parts of a larger grid, whose other cells have not been run."""
    known = [result.metrics for result in results if result.metrics]
    outputs = {
        name: jax.ShapeDtypeStruct(
            array.shape[len(grid.shape) :], np.result_type(*(metrics[name] for metrics in known))
        )
        for name, array in (known[0] if known else {}).items()
    }
    cells = Cells(grid, outputs)
    for result in results:
        part = Grid(result.axes, result.seeds)
        points, seeds = grid.places(part.points, part.seeds)
        flat = (len(points), len(seeds))
        own = len(grid.shape)
        metrics = {n: a.reshape(*flat, *a.shape[own:]) for n, a in result.metrics.items()}
        errors = result.error_array().reshape(flat)
        for i, j in np.argwhere(result.finished.reshape(flat)):
            block = Block(points[i : i + 1], seeds[j : j + 1])
            if errors[i, j] is not None:
                cells.fail(block, errors[i, j])
            else:
                cells.add(block, {n: a[i : i + 1, j : j + 1] for n, a in metrics.items()})
    return cells.result(results[0].label, dict(results[0].info))
