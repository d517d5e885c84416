"""Successive halving: short runs of every learning rate, and longer ones of the best of them."""

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._engine import sweep
from mu2_optax.sweep._grid import LEARNING_RATE, Grid, Rates, make_grid
from mu2_optax.sweep._metrics import Mode, band_of_rates, metric_mode
from mu2_optax.sweep._result import SweepResult
from mu2_optax.sweep._results.cells import in_grid

KEPT = 1 / 4  # the share of a rung's rates that goes on; budgets grow by the inverse


def halving(
    train: Callable[..., Mapping[str, Any]],
    learning_rates: Rates,
    seeds: int | Sequence[int],
    budgets: int | Sequence[int],
    *,
    metric: str | None = None,
    mode: Mode | None = None,
    resume: str | Path | None = None,
    context: Mapping[str, Any] | None = None,
    **options: Any,
) -> SweepResult:
    """Finds the best learning rate without running all of them to the end.

    Each rung is a `sweep` of its own, with all seeds: every rate for the first budget of steps,
    then the best quarter of them (by the mean over seeds; at least one) from the start for the
    next, and so on. With n rates and budgets of 1/16, 1/4 and all of the steps, that costs
    n/16 + ⌊n/4⌋/4 + ⌊n/16⌋ runs instead of n, each ⌊·⌋ at least 1: a quarter for 8 rates, less for
    more. Each rung is compiled by itself.

    A rate that was stopped might have been the best in the end. The result says which rates were
    stopped, when, and the means that decided it.

    Args:
      train: A function of (learning_rate, key, steps), as for `sweep`; ``steps`` is a Python int
        and passed by name. Schedules should end with it.
      learning_rates: The rates.
      seeds: The number of seeds, or the seeds themselves.
      budgets: Steps of each rung, growing; or the steps of a whole run, for rungs of 1/16, 1/4 and
        all of them.
      metric: The metric to judge by; the first one if None.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      resume: A file to record cells in, as in `sweep`: ``run.jsonl`` stands for one file for each
        rung, such as ``run-27.jsonl``.
      context: As in `sweep`.
      **options: Everything else that `sweep` takes, except ``minutes``.

    Returns:
      The result over all rates at the last budget; those that were stopped are not ``finished``.
      ``info["halving"]`` has the ``budgets``, ``stopped`` (pairs of a rate and its steps),
      ``share`` (the steps taken, of those of the whole grid) and ``rungs`` (steps, rates and means
      of each).

    Examples:
      >>> import jax
      >>> def train(learning_rate, key, steps):
      ...     x = jax.lax.fori_loop(0, steps, lambda i, x: x - learning_rate * x, 1.0)
      ...     return {"loss": x**2 / 2}
      >>> rates = [1e-4, 1e-3, 0.01, 0.1, 0.5, 1.0, 2.0, 3.0]
      >>> result = halving(train, rates, 1, budgets=64, progress=False)
      >>> result.learning_rates[result.finished[:, 0]].tolist(), result.info["halving"]["share"]
      ([1.0], 0.25)
    """
    if "minutes" in options:
        raise TypeError("`halving` takes no `minutes`: an unfinished rung cannot be judged.")
    grid = make_grid(learning_rates, seeds)
    if list(grid.axes) != [LEARNING_RATE]:
        raise ValueError(
            f"`learning_rates` must be rates alone, got the axes {list(grid.axes)}; close over the "
            "other values in `train`."
        )
    planned = _steps_of_rungs(budgets)
    left, stopped, rungs = grid.axes[LEARNING_RATE], [], []
    for steps in planned:
        last = steps == planned[-1]
        try:
            result = sweep(
                partial(train, steps=steps),
                left,
                grid.seeds.tolist(),
                resume=_journal_of_rung(resume, steps, left, grid),
                context={**(context or {}), "steps": steps},
                **options,
            )
        except BaseException as error:
            finished = getattr(error, "result", None)
            if isinstance(finished, SweepResult):  # make it span the whole grid, not only the rung
                vars(error)["result"] = _over_all_rates(finished, grid, last)
            raise
        name = next(iter(result.metrics)) if metric is None else metric
        means = band_of_rates(result, name)[0].mean
        for_json = [mean if np.isfinite(mean) else None for mean in means.tolist()]
        rungs.append({"steps": steps, "rates": left.tolist(), "means": for_json})
        if not last:
            kept = _best(means, metric_mode(name, mode))
            stopped += [[rate, steps] for i, rate in enumerate(left.tolist()) if i not in kept]
            left = left[kept]
    taken = sum(rung["steps"] * len(rung["rates"]) for rung in rungs)
    result = _over_all_rates(result, grid)
    result.info["halving"] = {
        "budgets": planned,
        "stopped": stopped,
        "share": taken / (planned[-1] * len(grid.axes[LEARNING_RATE])),
        "rungs": rungs,
    }
    return result


def _steps_of_rungs(budgets: int | Sequence[int]) -> list[int]:
    if isinstance(budgets, int):
        budgets = [steps for steps in (budgets // 16, budgets // 4, budgets) if steps]
    planned = [int(steps) for steps in budgets]
    if not planned or planned[0] < 1 or (np.diff(planned) <= 0).any() or planned != list(budgets):
        raise ValueError(
            f"`budgets` must be growing numbers of steps, got {budgets!r}; pass the steps of a "
            "whole run, such as 440, or those of each rung, such as [27, 110, 440]."
        )
    return planned


def _best(means: npt.NDArray[np.float64], mode: Mode) -> list[int]:
    """The places of the best quarter, in order; what diverged is the worst."""
    losses = np.where(np.isfinite(means), means if mode == "min" else -means, np.inf)
    best = np.argsort(losses, kind="stable")[: max(1, int(len(means) * KEPT))]
    return sorted(best.tolist())


def _journal_of_rung(
    resume: str | Path | None, steps: int, left: npt.NDArray[np.float64], grid: Grid
) -> Path | None:
    """The file of a rung; its name tells which rates survived, because a rerun may keep others."""
    if resume is None:
        return None
    path = Path(resume)
    survived = len(left) < len(grid.axes[LEARNING_RATE])
    which = f"-{zlib.crc32(left.tobytes()):08x}" if survived else ""
    return path.with_name(f"{path.stem}-{steps}{which}{path.suffix}")


def _over_all_rates(result: SweepResult, grid: Grid, last: bool = True) -> SweepResult:
    """The last rung's result over all rates; of an earlier rung, one in which nothing finished."""
    if last:
        return in_grid([result], grid.axes, grid.seeds)
    finished = np.zeros(grid.shape, bool)
    return replace(result, metrics={}, axes=dict(grid.axes), finished=finished, errors={})
