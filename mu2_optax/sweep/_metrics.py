"""Reading a metric for measures, tables and pictures: which way is better, means and bands."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import LEARNING_RATE
from mu2_optax.sweep._result import SweepResult

Mode = Literal["min", "max"]
Array = npt.NDArray[np.float64]

_PLAIN_NAMES: dict[str, Mode] = {
    "loss": "min",
    "error": "min",
    "error_rate": "min",
    "perplexity": "min",
    "accuracy": "max",
    "acc": "max",
}
_PREFIX = re.compile(r"^(train|training|test|val|valid|validation|eval|dev|initial|final)_")


def metric_mode(metric: str, mode: Mode | None = None) -> Mode:
    """Whether a metric is better low or high: ``mode`` ("min" or "max"), or what its name says.

    A few plain names say so: ``loss``, ``error``, ``error_rate`` and ``perplexity`` are better low,
    ``accuracy`` and ``acc`` high. They may have a prefix for a part of the data or a time, as in
    ``test_loss`` or ``val/acc``, and the suffix ``_curve``. Any other name needs ``mode``, because
    words can mislead: ``neg_log_loss`` is better high.

    Examples:
      >>> metric_mode("test_accuracy"), metric_mode("neg_log_loss", "max")
      ('max', 'max')
    """
    if mode not in ("min", "max", None):
        raise ValueError(f"`mode` must be 'min', 'max' or None, got {mode!r}.")
    mode = mode or implied_mode(metric)
    if mode is None:
        raise ValueError(
            f"the name {metric!r} does not say whether low or high is better; say so with "
            '`mode="min"` or `mode="max"` (on the command line, --better low or --better high).'
        )
    return mode


def implied_mode(metric: str) -> Mode | None:
    """The mode that a plain name implies, perhaps with ``_curve``; None for any other name."""
    name = re.sub(r"[-/ ]", "_", metric.lower()).removesuffix("_curve")
    return _PLAIN_NAMES.get(_PREFIX.sub("", name))


def loss_sign(mode: Mode) -> float:
    """The factor that turns a metric's values into losses, which are better low."""
    return 1.0 if mode == "min" else -1.0


def spaced(metric: str) -> str:
    """A metric's name with spaces, for text."""
    return metric.replace("_", " ")


def number_text(value: float) -> str:
    """A value in a table.

    Examples:
      >>> number_text(0.9417), number_text(2.5), number_text(0.00012), number_text(12345.0)
      ('.942', '2.500', '1.2e-4', '1.2e4')
    """
    if 0 < abs(value) < 5e-4 or abs(value) >= 1e4:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{value:.3f}" if abs(value) < 100 else f"{value:.0f}"
    return text.removeprefix("0") if 0 < value < 1 else text


def rate_text(rate: float) -> str:
    """A positive number, such as a learning rate, in few characters.

    Examples:
      >>> rate_text(0.01), rate_text(1e-4), rate_text(10_000.0), rate_text(3.16227766)
      ('0.01', '1e-4', '1e4', '3.16')
    """
    mantissa, exponent = f"{rate:e}".split("e")
    short = f"{float(mantissa):.3g}e{int(exponent)}"
    plain = f"{rate:.3g}"
    return short if "e" in plain or len(plain) > max(4, len(short)) else plain


def mean(values: Any, axis: int | None = None) -> Any:
    """The mean in float64, even where the sum would overflow."""
    scale = 2.0**-10  # a power of two, which changes no digit
    return np.mean(np.asarray(values, np.float64) * scale, axis=axis) / scale


class Band(NamedTuple):
    """The mean and the range of a metric at each learning rate or step.

    Attributes:
      mean: The mean over seeds.
      low: The lowest seed.
      high: The highest seed.
    """

    mean: Array
    low: Array
    high: Array


def check_rates_alone(result: SweepResult, who: str) -> None:
    """Requires a sweep with no other axis than ``learning_rate``; ``who`` begins the message."""
    if len(result.axes) > 1:
        raise ValueError(
            f"{who} over `learning_rate` alone, got the axes {list(result.axes)}; fix the others "
            "with `result.select(...)`."
        )


def all_rates(results: Iterable[SweepResult]) -> Array:
    """The learning rates of all results, in order and each of them once."""
    rates = [rate for result in results for rate in result.axes.get(LEARNING_RATE, ())]
    return np.unique(np.asarray(rates, np.float64))


def final_losses(result: SweepResult, metric: str, mode: Mode | None) -> tuple[Array, Array, float]:
    """A sweep's final values as losses: low is better, and what diverged is infinite.

    Returns the rates in order, the losses (rates, seeds), and the sign that turns them into values.
    """
    rates = result.learning_rates
    check_rates_alone(result, "the measures need a sweep")
    if not result.finished.all():
        raise ValueError(
            f"{(~result.finished).sum()} cells of the sweep have not been run; resume it first."
        )
    if (rates <= 0).any():
        raise ValueError(f"the measures need positive learning rates, got {rates.min():g}.")
    sign = loss_sign(metric_mode(metric, mode))
    order = np.argsort(rates)
    losses = sign * result.final(metric)[order]
    return rates[order], np.where(np.isfinite(losses), losses, np.inf), sign


def initial_loss(result: SweepResult, metric: str, initial: float | str | None) -> float:
    """The metric before training: given, held by another metric, or the start of its curve."""
    values: Any = initial
    if isinstance(initial, str):
        values = result.final(initial)
    elif initial is None and result.metric(metric).ndim > len(result.shape):
        values = result.metric(metric).reshape(*result.shape, -1)[..., 0]
    elif initial is None:
        raise ValueError(
            f"`initial` must be given, because {metric!r} is not a curve: pass the loss before "
            "training, or the name of the metric that holds it."
        )
    values = np.asarray(values, np.float64)
    known = values[np.isfinite(values)]  # a cell that failed has none
    if not known.size:
        raise ValueError(f"`initial` must be finite, got {initial}.")
    return float(np.median(known))


def band_of_rates(result: SweepResult, metric: str) -> tuple[Band, npt.NDArray[np.bool_]]:
    """The final values at each learning rate, over the seeds that have finished.

    Returns the band, NaN where a seed diverged or none has finished; and where a seed diverged.
    """
    values, finished = result.final(metric), result.finished
    diverged = np.asarray((finished & ~np.isfinite(values)).any(axis=1))
    band = Band(*np.full((3, len(values)), np.nan))
    for i in np.flatnonzero(finished.any(axis=1) & ~diverged):
        seeds = values[i, finished[i]]
        band.mean[i], band.low[i], band.high[i] = mean(seeds), seeds.min(), seeds.max()
    return band, diverged


def band_of_steps(result: SweepResult, metric: str) -> tuple[Band, bool]:
    """A metric that is a curve, at one learning rate, up to the step at which a seed diverges.

    Returns the band, one value per step; and whether it was cut off because a seed diverged.
    """
    curves = result.metric(metric)[result.finished].astype(np.float64)
    if curves.ndim != 2:
        raise ValueError(
            f"curves need a metric with one value per step, but {metric!r} has the axes "
            f"{result.dims(metric)}."
        )
    alive = np.asarray(np.isfinite(curves).all(axis=0))
    end = len(alive) if alive.all() else int(np.argmin(alive))
    curves = curves[:, :end]
    return Band(mean(curves, axis=0), curves.min(axis=0), curves.max(axis=0)), end < len(alive)


def over_rates(results: Mapping[str, SweepResult]) -> dict[str, SweepResult]:
    """Repeats the results of optimizers without a learning rate at the rates of the others.

    They can then be drawn and listed beside the others; `is_flat` tells them apart. If no result
    has rates, the rate is 1.
    """
    rates = all_rates(results.values())
    if not rates.size:
        rates = np.ones(1)
    return {name: r if r.axes else _repeated(r, rates) for name, r in results.items()}


def is_flat(result: SweepResult) -> bool:
    """Whether there was no learning rate to sweep over."""
    return not result.axes or bool(result.info.get("flat"))


def _repeated(result: SweepResult, rates: Array) -> SweepResult:
    return replace(
        result,
        metrics={name: np.stack([array] * len(rates)) for name, array in result.metrics.items()},
        axes={LEARNING_RATE: rates},
        finished=np.stack([result.finished] * len(rates)),
        errors={(i, *cell): e for cell, e in result.errors.items() for i in range(len(rates))},
        info=result.info | {"flat": True},
    )
