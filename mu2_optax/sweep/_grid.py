"""The grid of a sweep: its named axes, its seeds, and the arguments of each cell.

A *cell* is a point (a combination of the axes' values) and a seed, always in this order.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

LEARNING_RATE = "learning_rate"
SEED = "seed"
RESERVED = ("key", SEED, "optimizer", "error")

Rates: TypeAlias = Sequence[float | np.number[Any]] | npt.NDArray[Any] | jax.Array
"""A list or an array of numbers."""


class Block(NamedTuple):
    """A few points times a few seeds, by their indices in a grid."""

    points: npt.NDArray[np.int64]
    seeds: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Grid:
    """The product of the axes' values, each run with every seed.

    Attributes:
      axes: The values of each axis by name, in order, as float64.
      seeds: The seeds; a cell's key is ``jax.random.key(seed)``.
      by_name: Whether ``train`` takes its values by keyword (the axes were a dict).
    """

    axes: dict[str, npt.NDArray[np.float64]]
    seeds: npt.NDArray[np.int64]
    by_name: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes, then the number of seeds."""
        return (*(len(values) for values in self.axes.values()), len(self.seeds))

    @cached_property
    def points(self) -> npt.NDArray[np.float64]:
        """Every combination of the axes' values, one per row; without axes an empty one."""
        return np.asarray(list(itertools.product(*self.axes.values())), dtype=np.float64)

    def places(self, points: npt.NDArray[Any], seeds: npt.NDArray[Any]) -> Block:
        """Where points and seeds are in this grid, -1 where they are not."""
        own_points = {tuple(point): i for i, point in enumerate(self.points.tolist())}
        own_seeds = {seed: i for i, seed in enumerate(self.seeds.tolist())}
        return Block(
            np.asarray([own_points.get(tuple(point), -1) for point in points.tolist()], np.int64),
            np.asarray([own_seeds.get(seed, -1) for seed in seeds.tolist()], np.int64),
        )

    def describe(self, block: Block) -> str:
        """The first cell of a block in words: ``learning_rate=0.1, seed=0``."""
        point, seed = self.points[block.points[0]], self.seeds[block.seeds[0]]
        names = [f"{name}={value:g}" for name, value in zip(self.axes, point, strict=True)]
        return ", ".join([*names, f"seed={seed}"])


def make_grid(learning_rates: Any, seeds: int | Sequence[int]) -> Grid:
    """Reads the grid from the arguments of `sweep`, and refuses what cannot be one."""
    by_name = isinstance(learning_rates, Mapping)
    named = dict(learning_rates) if by_name else {LEARNING_RATE: learning_rates}
    for name in named:
        if not isinstance(name, str) or not name.isidentifier() or name in RESERVED:
            raise ValueError(
                f"an axis of `learning_rates` must be an argument's name and none of {RESERVED}, "
                f"got {name!r}; `train` gets each axis by keyword, and `key`."
            )
    axes = {name: _read_axis(name, values) for name, values in named.items()}
    return Grid(axes, _read_seeds(seeds), by_name)


def _read_axis(name: str, values: Any) -> npt.NDArray[np.float64]:
    """The values of one axis as float64; the float32 number 0.1 becomes that of a list."""
    array = np.asarray(values)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"`{name}` must be numbers such as [0.01, 0.1, 1.0], got {values!r}.")
    array = (array.astype(str) if array.dtype == np.float32 else array).astype(np.float64)
    array = np.atleast_1d(array)
    lowest = 0.0 if name == LEARNING_RATE else -np.inf
    distinct = array.ndim == 1 and 0 < array.size == len({*array.tolist()})
    if not distinct or not (np.isfinite(array) & (array >= lowest)).all():
        rule = "finite" if lowest else "finite and not negative"
        raise ValueError(f"`{name}` must be distinct numbers, each {rule}, got {values!r}.")
    return array


def _read_seeds(seeds: Any) -> npt.NDArray[np.int64]:
    counted = isinstance(seeds, int | np.integer) and not isinstance(seeds, bool)
    array = np.asarray(range(seeds) if counted and 0 < seeds < 2**32 else seeds)
    whole = array.ndim == 1 and array.dtype.kind in "iu" and array.size > 0
    if not whole or array.min() < 0 or array.max() >= 2**32 or len({*array.tolist()}) < array.size:
        raise ValueError(
            "`seeds` must be a number of seeds such as 3, or distinct integers in [0, 2**32) such "
            f"as [0, 1, 2], got {seeds!r}."
        )
    return array.astype(np.int64)
