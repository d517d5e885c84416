"""The grid of a sweep: its named axes, its seeds, and the arguments of each cell.

A *cell* is a point (a combination of the axes' values) and a seed, always in this order.
"""

import itertools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

LEARNING_RATE = "learning_rate"
SEED = "seed"
RESERVED = ("key", SEED, "optimizer", "error")

Rates: TypeAlias = Sequence[float | np.number[Any]] | npt.NDArray[Any] | jax.Array
"""A list or an array of numbers."""

Indices: TypeAlias = npt.NDArray[np.int64]


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

    def places(self, points: npt.NDArray[Any], seeds: npt.NDArray[Any]) -> tuple[Indices, Indices]:
        """Where points and seeds are in this grid, -1 where they are not."""
        of_points = {tuple(point): i for i, point in enumerate(self.points.tolist())}
        of_seeds = {seed: i for i, seed in enumerate(self.seeds.tolist())}
        return (
            np.asarray([of_points.get(tuple(point), -1) for point in points.tolist()], np.int64),
            np.asarray([of_seeds.get(seed, -1) for seed in seeds.tolist()], np.int64),
        )

    def describe(self, point: int, seed: int) -> str:
        """The cell in words: ``learning_rate=0.1, seed=0``."""
        names = [f"{name}={v:g}" for name, v in zip(self.axes, self.points[point], strict=True)]
        return ", ".join([*names, f"seed={self.seeds[seed]}"])


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
    label = "`learning_rates`" if name == LEARNING_RATE else f"axis `{name}`"
    try:
        array = np.atleast_1d(np.asarray(values))
        if array.dtype.kind in "cbUS":
            raise TypeError("complex numbers, booleans or text")
        array = (array.astype(str) if array.dtype == np.float32 else array).astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(
            f"{label} must be numbers, got {values!r}; pass a list such as [0.01, 0.1, 1.0]."
        ) from None
    if array.ndim != 1 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{label} must be a list of finite numbers, got {values!r}.")
    if name == LEARNING_RATE and (array < 0).any():
        raise ValueError(f"{label} must not be negative, got {array.min():g}.")
    _check_distinct(label, array)
    return array


def _read_seeds(seeds: Any) -> npt.NDArray[np.int64]:
    remedy = "pass a number of seeds such as 3, or a list of seeds such as [0, 1, 2]"
    try:
        if np.asarray(seeds).dtype == bool:
            raise TypeError("operator.index would take them for 0 and 1")
        values = [operator.index(seed) for seed in np.atleast_1d(seeds)]
    except TypeError:
        raise TypeError(f"`seeds` must be integers, got {seeds!r}; {remedy}.") from None
    if np.ndim(seeds) == 0:
        values = list(range(values[0]))
    if not values or min(values) < 0 or max(values) >= 2**32:
        raise ValueError(f"`seeds` must be some numbers in [0, 2**32), got {seeds!r}; {remedy}.")
    array = np.asarray(values, dtype=np.int64)
    _check_distinct("`seeds`", array)
    return array


def _check_distinct(label: str, array: npt.NDArray[Any]) -> None:
    values, counts = np.unique(array, return_counts=True)
    if (counts > 1).any():
        raise ValueError(f"{label} must not repeat a value, got {values[counts > 1][0]:g} twice.")
