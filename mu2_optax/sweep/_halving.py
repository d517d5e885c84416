"""Successive halving: short runs of every learning rate, and longer ones of the best of them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mu2_optax.sweep._cells import join
from mu2_optax.sweep._engine import sweep
from mu2_optax.sweep._grid import LEARNING_RATE, Rates, make_grid
from mu2_optax.sweep._metrics import Mode, loss_sign, metric_mode
from mu2_optax.sweep._result import SweepResult

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
    more. A rate that was stopped might have been the best in the end.

    Args:
      train: A function of (learning_rate, key, steps), as for `sweep`; ``steps`` is a Python int
        and passed by name. Schedules should end with it.
      learning_rates: The rates.
      seeds: The number of seeds, or the seeds themselves.
      budgets: Steps of each rung, growing; or the steps of a whole run, for rungs of 1/16, 1/4 and
        all of them.
      metric: The metric to judge by; the first one if None.
      mode: Whether low (``"min"``) or high (``"max"``) is better; by the metric's name if None.
      resume: A folder for those of the rungs, such as ``steps-27``.
      context: As in `sweep`.
      **options: Everything else that `sweep` takes.

    Returns:
      The result over all rates at the last budget; those that were stopped are not ``finished``.
      ``info["halving"]`` has ``stopped`` (pairs of a rate and its steps) and ``share`` (the steps
      taken, of those of the whole grid). Ctrl-C gives what the running rung has finished.

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
    grid = make_grid(learning_rates, seeds)
    if list(grid.axes) != [LEARNING_RATE]:
        raise ValueError(
            f"`learning_rates` must be rates alone, got the axes {list(grid.axes)}; close over the "
            "other values in `train`."
        )
    if isinstance(budgets, int):
        budgets = [steps for steps in (budgets // 16, budgets // 4, budgets) if steps]
    planned = [int(steps) for steps in budgets]
    if not planned or planned[0] < 1 or (np.diff(planned) <= 0).any() or planned != list(budgets):
        raise ValueError(
            f"`budgets` must be growing numbers of steps, got {budgets!r}; pass the steps of a "
            "whole run, such as 440, or those of each rung, such as [27, 110, 440]."
        )
    left, stopped, taken = grid.axes[LEARNING_RATE], [], 0
    for steps in planned:
        result = sweep(
            partial(train, steps=steps),
            left,
            grid.seeds.tolist(),
            resume=None if resume is None else Path(resume) / f"steps-{steps}",
            context={**(context or {}), "steps": steps},
            **options,
        )
        name = next(iter(result.metrics)) if metric is None else metric
        means = result.final(name).mean(axis=1)
        taken += steps * len(left)
        if steps < planned[-1]:
            losses = loss_sign(metric_mode(name, mode)) * means
            losses[~np.isfinite(means)] = np.inf  # what diverged is the worst
            order = np.argsort(losses, kind="stable")
            kept = np.sort(order[: max(1, int(len(left) * KEPT))])
            stopped += [[rate, steps] for rate in np.delete(left, kept).tolist()]
            left = left[kept]
    share = taken / (planned[-1] * len(grid.axes[LEARNING_RATE]))
    whole = join([result], grid)
    whole.info["halving"] = {"stopped": stopped, "share": share}
    return whole
