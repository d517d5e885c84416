"""How robust an optimizer is to its learning rate, at equal steps or at equal evaluations."""

import math
from typing import Any, NamedTuple

import numpy as np

from benchmarks.experiment import Results, select
from mu2_optax.sweep import SweepResult, lr_sensitivity, plateau_width, stability_range

BUDGETS = {"steps": "equal steps", "evaluations": "equal gradient evaluations"}
TOLERANCE = 0.01  # how far from the best accuracy a plateau may be
UNIFORM_LOSS = math.log(10)  # the loss of a uniform guess among ten classes


class Measure(NamedTuple):
    """A value with its 95 % interval over seeds."""

    value: float
    low: float
    high: float


class Robustness(NamedTuple):
    """The best mean test accuracy over the rates, and how much the rate matters.

    The plateau is the decades of rates whose accuracy is within 0.01 of the best; the ratio that of
    the largest to the smallest rate whose test loss is within twice the best; the sensitivity the
    mean over the rates of the test loss above the best, losses clipped at ln 10.
    """

    best_accuracy: Measure
    plateau_width: Measure
    stability_ratio: Measure
    sensitivity: Measure


def with_budget(results: Results, budget: str, **values: Any) -> Results:
    """Results by title at equal steps, or at equal gradient evaluations, one of ``BUDGETS``.

    At equal steps every optimizer takes as many steps as SGD; at equal evaluations one that
    evaluates k gradients a step takes a k-th of them. The values select cases, as in `select`.
    """
    most = max(result.info["context"]["steps"] for result in results.values())

    def allowed(context: dict[str, Any]) -> int:
        return most // (context["gradients_per_step"] if budget == "evaluations" else 1)

    chosen = {
        label: result
        for label, result in results.items()
        if result.info["context"]["steps"] == allowed(result.info["context"])
    }
    return select(chosen, **values)


def robustness(result: SweepResult) -> Robustness:
    """All measures of a sweep over the learning rate."""
    rest = (
        plateau_width(result, "test_accuracy", TOLERANCE),
        stability_range(result, "test_loss"),
        lr_sensitivity(result, "test_loss", initial=UNIFORM_LOSS),
    )
    rest = (Measure(measure.value, *measure.interval) for measure in rest)
    return Robustness(best_accuracy(result.final("test_accuracy")), *rest)


def best_accuracy(values: np.ndarray) -> Measure:
    """The best mean over seeds of accuracies (rates, seeds), with a bootstrap over the seeds."""
    values = np.where(np.isfinite(values), values, -np.inf)
    seeds = values.shape[1]
    drawn = np.random.default_rng(0).integers(0, seeds, (2000, seeds))
    best = values[:, drawn].mean(axis=-1).max(axis=0)
    low, high = np.quantile(best, (0.025, 0.975))
    return Measure(float(values.mean(axis=1).max()), float(low), float(high))
