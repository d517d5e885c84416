"""Reading a metric for measures, tables and pictures: which way is better, and means over seeds."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mu2_optax.sweep._grid import LEARNING_RATE
from mu2_optax.sweep._result import SweepResult

Mode = Literal["min", "max"]
Array = npt.NDArray[np.float64]

_PLAIN_NAMES: dict[str, Mode] = dict.fromkeys(("loss", "error", "error_rate", "perplexity"), "min")
_PLAIN_NAMES |= dict.fromkeys(("accuracy", "acc"), "max")
_PREFIX = re.compile(r"^(train|training|test|val|valid|validation|eval|dev|initial|final)_")


def metric_mode(metric: str, mode: Mode | None = None) -> Mode:
    """Whether a metric is better low or high: ``mode`` ("min" or "max"), or what its name says.

    A few plain names say so, such as ``loss``, perhaps with a prefix as in ``test_loss`` or
    ``val/acc``. Any other needs ``mode``, because words can mislead: ``neg_log_loss`` is better
    high.
    """
    if mode not in ("min", "max", None):
        raise ValueError(f"`mode` must be 'min', 'max' or None, got {mode!r}.")
    mode = mode or implied_mode(metric)
    if mode is None:
        raise ValueError(
            f"the name {metric!r} does not say whether low or high is better; say so with "
            '`mode="min"` or `mode="max"` (on the command line, --mode).'
        )
    return mode


def implied_mode(metric: str) -> Mode | None:
    """The mode that a plain name implies; None for any other name."""
    name = re.sub(r"[-/ ]", "_", metric.lower()).removesuffix("_curve")
    return _PLAIN_NAMES.get(_PREFIX.sub("", name))


def loss_sign(mode: Mode) -> float:
    """The factor that turns a metric's values into losses, which are better low."""
    return 1.0 if mode == "min" else -1.0


def spaced(metric: str) -> str:
    """A metric's name for text."""
    return metric.removesuffix("_curve").replace("_", " ")


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


class Band(NamedTuple):
    """The mean, the lowest and the highest seed at each learning rate or step."""

    mean: Array
    low: Array
    high: Array


def band_of_rates(result: SweepResult, metric: str) -> Band:
    """The final values at each learning rate; NaN where a seed diverged or none has finished."""
    check_rates_alone(result)
    values, finished = result.final(metric), result.finished
    band = Band(*np.full((3, len(values)), np.nan))
    for i in np.flatnonzero(finished.any(axis=1)):
        own = values[i, finished[i]]
        if np.isfinite(own).all():
            band.mean[i], band.low[i], band.high[i] = own.mean(), own.min(), own.max()
    return band


def check_rates_alone(result: SweepResult) -> None:
    """Requires a sweep with no other axis than ``learning_rate``."""
    if len(result.axes) > 1:
        raise ValueError(
            "measures, tables and charts need a sweep over `learning_rate` alone, got the axes "
            f"{list(result.axes)}; fix the others with `result.select(...)`."
        )


def all_rates(results: Mapping[str, SweepResult]) -> Array:
    """The learning rates of all results, in order and each of them once; 1 if there are none."""
    rates = [rate for result in results.values() for rate in result.axes.get(LEARNING_RATE, ())]
    return np.unique(np.asarray(rates or [1.0], np.float64))


def over_rates(results: Mapping[str, SweepResult]) -> dict[str, SweepResult]:
    """Repeats the results of optimizers without a learning rate at the rates of the others.

    They can then be drawn and listed beside the others; ``info["flat"]`` tells them apart.
    """
    rates = all_rates(results)
    repeated: Callable[[Any], Any] = lambda array: np.stack([array] * len(rates))
    return {
        label: result
        if result.axes
        else replace(
            result,
            metrics={name: repeated(array) for name, array in result.metrics.items()},
            axes={LEARNING_RATE: rates},
            finished=repeated(result.finished),
            errors={(i, *at): e for at, e in result.errors.items() for i in range(len(rates))},
            info=result.info | {"flat": True},
        )
        for label, result in results.items()
    }
