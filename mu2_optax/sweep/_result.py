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
        """The lengths of the axes, then the number of seeds."""
        return self.finished.shape

    @property
    def learning_rates(self) -> npt.NDArray[np.float64]:
        """The values of the axis ``learning_rate``."""
        return self.axes[LEARNING_RATE]

    def dims(self, metric: str) -> tuple[str, ...]:
        """The names of a metric's axes: the grid's, ``seed``, then ``step`` (``step_1``, ...)."""
        own = self.metric(metric).ndim - len(self.shape)
        steps = ("step",) if own == 1 else tuple(f"step_{i}" for i in range(own))
        return (*self.axes, SEED, *steps)

    def metric(self, name: str) -> npt.NDArray[Any]:
        """A metric's array; NaN where no cell has shown yet which metrics there are."""
        if not self.metrics:
            return np.full(self.shape, np.nan)
        if name not in self.metrics:
            raise KeyError(f"no metric {name!r} in this sweep; it has {sorted(self.metrics)}.")
        return self.metrics[name]

    def final(self, name: str) -> npt.NDArray[np.float64]:
        """A metric's last value per cell: itself if scalar, the end of the curve otherwise."""
        return self.metric(name).astype(np.float64).reshape(*self.shape, -1)[..., -1]

    def diverged(self, metric: str | None = None) -> npt.NDArray[np.bool_]:
        """Which cells hold a NaN or an Inf in a metric, or in any (count them with ``.sum()``).

        A cell that failed counts as diverged; one that has not been run does not.
        """
        bad = self.failed()
        for name in list(self.metrics) if metric is None else [metric]:
            array = self.metric(name)
            bad |= ~np.isfinite(array).all(axis=tuple(range(len(self.shape), array.ndim)))
        return bad & self.finished

    def failed(self) -> npt.NDArray[np.bool_]:
        """Which cells failed with an error; they count as diverged, too."""
        errors = self.error_array()
        return np.asarray(errors != np.full_like(errors, None), bool)

    def select(self, **values: float) -> Self:
        """The part of the grid at given values of some axes, which are dropped."""
        where: list[Any] = [slice(None)] * len(self.shape)
        for name, value in values.items():
            axis = self.axes.get(name, np.zeros(0))
            at = np.flatnonzero(np.isclose(axis, value, rtol=1e-6, atol=0))
            if not at.size:
                known = {name: axis.tolist() for name, axis in self.axes.items()}
                raise ValueError(f"no {name}={value!r} in this sweep; it has {known}.")
            where[list(self.axes).index(name)] = at[0]
        part = tuple(where)
        errors = np.ndenumerate(self.error_array()[part])
        return replace(
            self,
            metrics={name: array[part] for name, array in self.metrics.items()},
            axes={name: axis for name, axis in self.axes.items() if name not in values},
            finished=self.finished[part],
            errors={cell: error for cell, error in errors if error is not None},
        )

    def error_array(self) -> npt.NDArray[Any]:
        """The error of each cell, None where there was none."""
        errors = np.full(self.shape, None, dtype=object)
        for cell, error in self.errors.items():
            errors[cell] = error
        return errors

    def columns(self) -> dict[str, Any]:
        """A table by column: label, axes, seed, metrics, perhaps error; a row per finished cell."""
        cells = np.nonzero(self.finished)
        columns: dict[str, Any] = {"optimizer": [self.label] * len(cells[0])}
        for (name, axis), at in zip(self.axes.items(), cells[:-1], strict=True):
            columns[name] = axis[at]
        columns[SEED] = self.seeds[cells[-1]]
        for name, array in self.metrics.items():
            columns[name] = array[cells] if array.ndim == len(cells) else list(array[cells])
        if self.errors:
            columns["error"] = self.error_array()[cells]
        return columns

    def to_pandas(self) -> Any:
        """A ``pandas.DataFrame`` with a row per finished cell, as in the file of `write_csv`.

        Several results are one table with ``pd.concat(r.to_pandas() for r in results.values())``. A
        metric that is a curve is an array in its cell; ``table.explode("curve")`` has a row per
        step.
        """
        import pandas as pd

        return pd.DataFrame(self.columns())

    def to_xarray(self) -> Any:
        """An ``xarray.Dataset``, for ``data["loss"].sel(learning_rate=0.1)``.

        It has a variable per metric and ``finished``, over the axes, ``seed`` and ``step``
        (``NAME_step`` where curves have different lengths); its attributes have the label.
        """
        import xarray as xr

        grid = (*self.axes, SEED)
        variables: dict[str, Any] = {"finished": (grid, self.finished)}
        alike = len({array.shape[len(grid) :] for array in self.metrics.values()} - {()}) < 2
        for name, array in self.metrics.items():
            steps = self.dims(name)[len(grid) :]
            variables[name] = ([*grid, *(s if alike else f"{name}_{s}" for s in steps)], array)
        return xr.Dataset(variables, {**self.axes, SEED: self.seeds}, {"label": self.label})


Results: TypeAlias = SweepResult | Iterable[SweepResult] | Mapping[str, SweepResult]
"""A result, several with distinct labels, or a dict of them by label."""


def check_results(results: Iterable[Any], remedy: str) -> None:
    """Requires each to be a result."""
    for kind in {type(r).__name__ for r in results if not isinstance(r, SweepResult)}:
        raise TypeError(f"`results` must be of sweeps, got a {kind}; {remedy}")


def by_label(results: Results) -> dict[str, SweepResult]:
    """Puts a result, a list of results or a dict of results into a dict by label."""
    if isinstance(results, Mapping):
        check_results(results.values(), "pass a dict of them by label.")
        return {name: replace(result, label=name) for name, result in results.items()}
    listed = list(results) if isinstance(results, Iterable) else [results]
    check_results(listed, "where a file is written, its path comes first.")
    labels = [result.label for result in listed]
    if len(set(labels)) < len(labels) or not labels:
        raise ValueError(
            f"results must have distinct labels, got {labels}; give each sweep its own `label`, or "
            "join those of one label with `merge`."
        )
    return dict(zip(labels, listed, strict=True))
