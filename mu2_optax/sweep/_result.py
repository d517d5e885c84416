"""What a sweep returns: arrays with named axes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import LEARNING_RATE, SEED


@dataclass(frozen=True, eq=False)
class SweepResult:
    """The metrics of every cell of a grid.

    Attributes:
      metrics: For each metric an array of shape (axes..., seeds, ...): the grid first, then the
        metric's own shape, such as steps. NaN and Inf are kept; a cell that failed or has not been
        run is NaN (then integers are float64).
      axes: The values of each axis by name, in the order of the arrays.
      seeds: The seeds.
      finished: Which cells were run, of shape (axes..., seeds).
      errors: The error of each cell that failed, by its index in ``finished``.
      label: What was swept, such as the optimizer's name; a line in a plot, a column in a table.
      info: How it was run: strategy, seconds, date, versions, machine, the caller's ``context``.
    """

    metrics: dict[str, npt.NDArray[Any]]
    axes: dict[str, npt.NDArray[np.float64]]
    seeds: npt.NDArray[np.int64]
    finished: npt.NDArray[np.bool_]
    errors: dict[tuple[int, ...], str] = field(default_factory=dict)
    label: str = ""
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the grid: the lengths of the axes, then the number of seeds."""
        return self.finished.shape

    @property
    def learning_rates(self) -> npt.NDArray[np.float64]:
        """The values of the axis ``learning_rate``."""
        if LEARNING_RATE not in self.axes:
            raise ValueError(
                f"the result has no axis `{LEARNING_RATE}`, only {list(self.axes)}; name one of "
                f"the swept values `{LEARNING_RATE}`."
            )
        return self.axes[LEARNING_RATE]

    def dims(self, metric: str) -> tuple[str, ...]:
        """The names of a metric's axes: the grid's, ``seed``, then ``step`` (``step_1``, ...)."""
        own = self.metric(metric).ndim - len(self.shape)
        steps = ("step",) if own == 1 else tuple(f"step_{i}" for i in range(own))
        return (*self.axes, SEED, *steps)

    def metric(self, name: str) -> npt.NDArray[Any]:
        """A metric's array; an unknown name lists the known ones.

        Where no cell has shown yet which metrics there are, because none has finished or all have
        failed, every metric is NaN.
        """
        if not self.metrics:
            return np.full(self.shape, np.nan)
        if name not in self.metrics:
            raise KeyError(f"no metric {name!r} in this sweep; it has {sorted(self.metrics)}.")
        return self.metrics[name]

    def final(self, name: str) -> npt.NDArray[np.float64]:
        """A metric's last value per cell: itself if scalar, the end of the curve otherwise."""
        return self.metric(name).astype(np.float64).reshape(*self.shape, -1)[..., -1]

    def diverged(self, metric: str | None = None) -> npt.NDArray[np.bool_]:
        """Which of the finished cells hold a NaN or an Inf (count them with ``.sum()``).

        A cell that failed counts as diverged; one that has not been run does not.

        Args:
          metric: The metric to look at; any of them if None.

        Returns:
          A boolean array of the grid's shape.
        """
        bad = self.failed()
        for name in list(self.metrics) if metric is None else [metric]:
            array = self.metric(name)
            bad |= ~np.isfinite(array).all(axis=tuple(range(len(self.shape), array.ndim)))
        return bad & self.finished

    def failed(self) -> npt.NDArray[np.bool_]:
        """Which cells failed with an error; they count as diverged, too."""
        failed = np.zeros(self.shape, dtype=bool)
        for cell in self.errors:
            failed[cell] = True
        return failed

    def select(self, **values: float) -> Self:
        """The part of the grid at given values; those axes are dropped.

        Args:
          **values: For each axis to drop, the value to keep.

        Returns:
          A result with fewer axes.

        Examples:
          >>> from mu2_optax.sweep import sweep
          >>> train = lambda learning_rate, beta, key: {"loss": learning_rate * beta}
          >>> grid = {"learning_rate": [1.0, 2.0], "beta": [0.5, 3.0]}
          >>> result = sweep(train, grid, seeds=1, progress=False)
          >>> result.select(beta=3.0).metrics["loss"].tolist()
          [[3.0], [6.0]]
        """
        where: list[Any] = [slice(None)] * len(self.shape)
        for name, value in values.items():
            if name not in self.axes:
                raise ValueError(f"no axis `{name}` in this sweep; it has {list(self.axes)}.")
            axis = self.axes[name]
            nearest = int(np.argmin(np.abs(axis - value)))
            if not np.isclose(axis[nearest], value, rtol=1e-6, atol=0):
                raise ValueError(
                    f"`{name}` has no value {value!r} in this sweep; it has {axis.tolist()}."
                )
            where[list(self.axes).index(name)] = nearest
        at = tuple(where)
        errors = np.full(self.shape, None, dtype=object)
        for cell, error in self.errors.items():
            errors[cell] = error
        return replace(
            self,
            metrics={name: array[at] for name, array in self.metrics.items()},
            axes={name: axis for name, axis in self.axes.items() if name not in values},
            finished=self.finished[at],
            errors={cell: error for cell, error in np.ndenumerate(errors[at]) if error is not None},
        )

    def columns(self) -> dict[str, Any]:
        """A table as lists by column: ``optimizer`` (the label), the axes, ``seed``, the metrics.

        It has a row per finished cell, and the column ``error`` if one of them failed.
        """
        cells = np.nonzero(self.finished)
        columns: dict[str, Any] = {"optimizer": [self.label] * len(cells[0])}
        for (name, axis), at in zip(self.axes.items(), cells[:-1], strict=True):
            columns[name] = axis[at]
        columns[SEED] = self.seeds[cells[-1]]
        for name, array in self.metrics.items():
            columns[name] = array[cells] if array.ndim == len(cells) else list(array[cells])
        if self.errors:
            columns["error"] = [self.errors.get(cell) for cell in zip(*cells, strict=True)]
        return columns

    def to_pandas(self) -> Any:
        """A tidy table: a row per finished cell, as in the file of `write_csv`.

        Several results are one table with ``pd.concat(r.to_pandas() for r in results.values())``. A
        metric that is a curve is an array in its cell; ``table.explode("curve")`` has a row per
        step.

        Returns:
          A ``pandas.DataFrame``.

        Raises:
          ModuleNotFoundError: If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ModuleNotFoundError("to_pandas needs pandas: `pip install pandas`") from error
        return pd.DataFrame(self.columns())

    def to_xarray(self) -> Any:
        """The metrics as labelled arrays, such as ``data["loss"].sel(learning_rate=0.1)``.

        Returns:
          An ``xarray.Dataset``: a variable per metric and ``finished``, over the axes, ``seed`` and
          ``step`` (``NAME_step`` where curves have different lengths). Its attributes have the
          label.

        Raises:
          ModuleNotFoundError: If xarray is not installed.
        """
        try:
            import xarray as xr
        except ImportError as error:
            raise ModuleNotFoundError("to_xarray needs xarray: `pip install xarray`") from error
        grid = (*self.axes, SEED)
        variables: dict[str, Any] = {"finished": (grid, self.finished)}
        alike = len({array.shape[len(grid) :] for array in self.metrics.values()} - {()}) < 2
        for name, array in self.metrics.items():
            steps = self.dims(name)[len(grid) :]
            variables[name] = ([*grid, *(s if alike else f"{name}_{s}" for s in steps)], array)
        return xr.Dataset(variables, {**self.axes, SEED: self.seeds}, {"label": self.label})


Results: TypeAlias = SweepResult | Iterable[SweepResult] | Mapping[str, SweepResult]
"""A result, several with distinct labels, or a dict of them by label."""


def by_label(results: Results) -> dict[str, SweepResult]:
    """Puts a result, a list of results or a dict of results into a dict by label."""
    if isinstance(results, SweepResult):
        return {results.label: results}
    if isinstance(results, Mapping):
        return {name: replace(result, label=name) for name, result in results.items()}
    labelled: dict[str, SweepResult] = {}
    for result in results:
        if result.label in labelled:
            raise ValueError(
                f"two results have the label {result.label!r}; give each sweep its own `label`, "
                "or join them with `merge`."
            )
        labelled[result.label] = result
    return labelled
