"""What the measures share: values per rate and seed, and intervals over seeds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._mode import Mode, metric_mode
from mu2_optax.sweep._result import SweepResult

Array = npt.NDArray[np.float64]


def final_losses(result: SweepResult, metric: str, mode: Mode | None) -> tuple[Array, Array, float]:
    """The rates in order, the final values (rates, seeds) with low better, and the sign."""
    rates = result.learning_rates
    if len(result.axes) > 1:
        raise ValueError(
            f"the measures need a sweep over `learning_rate` alone, got the axes "
            f"{list(result.axes)}; fix the others with `result.select(...)`."
        )
    if not result.finished.all():
        raise ValueError(
            f"{(~result.finished).sum()} cells of the sweep have not been run; resume it first, or "
            "measure `result.complete_seeds()`."
        )
    if (rates <= 0).any():
        raise ValueError(f"the measures need positive learning rates, got {rates.min():g}.")
    sign = 1.0 if metric_mode(metric, mode) == "min" else -1.0
    order = np.argsort(rates)
    losses = sign * result.final(metric)[order]
    return rates[order], np.where(np.isfinite(losses), losses, np.inf), sign


def initial_loss(result: SweepResult, metric: str, initial: float | str | None) -> float:
    """The metric before training: given, held by another metric, or the start of its curve."""
    if isinstance(initial, str):
        values: Any = result.final(initial)
    elif initial is not None:
        values = initial
    elif result.metric(metric).ndim > len(result.shape):
        values = result.metric(metric).reshape(*result.shape, -1)[..., 0]
    else:
        raise ValueError(
            f"`initial` must be given, because {metric!r} is no curve: pass the loss before "
            "training, or the name of the metric that holds it."
        )
    values = np.asarray(values, np.float64)
    known = values[np.isfinite(values)]  # a cell that failed has none
    start = float(known.mean()) if known.size else np.nan
    if not np.isfinite(start):
        raise ValueError(f"`initial` must be finite, got {start}.")
    return start


def bootstrap(
    losses: Array, measure: Callable[[Array], Array], confidence: float
) -> tuple[float, tuple[float, float]]:
    """A measure of the means over seeds, and its percentile interval over drawn seeds."""
    if not 0 < confidence < 1:
        raise ValueError(f"`confidence` must lie between 0 and 1, got {confidence}.")
    seeds = losses.shape[1]
    drawn = np.random.default_rng(0).integers(0, seeds, (2000, seeds))
    samples = measure(losses[:, drawn].mean(axis=-1).T)
    tail = (1 - confidence) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    return float(measure(losses.mean(axis=1))), (float(low), float(high))
