"""How robust an optimizer is to its learning rate, from the rows of an experiment."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import records
from optimizers import GRADIENTS, TITLES
from records import Row

from mu2_optax.sweep import SweepResult, lr_sensitivity, plateau_width, stability_range
from mu2_optax.sweep.statistics import bootstrap, final_losses
from mu2_optax.sweep.storage import write_atomically

BUDGETS = ("steps", "evaluations")
TOLERANCE = 0.01  # how far from the best accuracy a plateau may be
UNIFORM_LOSS = math.log(10)  # the loss of a uniform guess among ten classes


class Measure(NamedTuple):
    """A value with its 95 % interval over seeds."""

    value: float
    low: float
    high: float


class Robustness(NamedTuple):
    """The measures of one optimizer.

    Attributes:
      best_accuracy: The best mean test accuracy over the rates.
      plateau_width: Decades of rates whose accuracy is within 0.01 of the best.
      stability_ratio: Largest over smallest rate whose test loss is within twice the best.
      sensitivity: Mean over the rates of the test loss above the best, losses clipped at ln 10.
    """

    best_accuracy: Measure
    plateau_width: Measure
    stability_ratio: Measure
    sensitivity: Measure


def with_budget(rows: Sequence[Row], budget: str) -> list[Row]:
    """The rows at equal steps, or at equal gradient evaluations.

    At equal steps every optimizer takes as many steps as SGD; at equal evaluations one that
    evaluates k gradients a step takes a k-th of them.
    """
    most = max(row["steps"] for row in rows)
    share = GRADIENTS if budget == "evaluations" else dict.fromkeys(GRADIENTS, 1)
    return [row for row in rows if row["steps"] == most // share[row["optimizer"]]]


def robustness(result: SweepResult) -> Robustness:
    """All measures of a sweep over the learning rate."""
    _, losses, sign = final_losses(result, "test_accuracy", None)
    value, interval = bootstrap(losses, lambda means: means.min(axis=-1), 0.95)
    best = Measure(*(sign * bound for bound in (value, *interval[::-1])))
    rest = (
        plateau_width(result, "test_accuracy", TOLERANCE),
        stability_range(result, "test_loss"),
        lr_sensitivity(result, "test_loss", initial=UNIFORM_LOSS),
    )
    return Robustness(best, *(Measure(measure.value, *measure.interval) for measure in rest))


def table(rows: Sequence[Row]) -> dict[tuple[str, str, str], Robustness]:
    """The measures by projection, budget and optimizer."""
    measured = {}
    for projection in dict.fromkeys(row["projection"] for row in rows):
        for budget in BUDGETS:
            own = with_budget(records.select(rows, projection=projection), budget)
            sweeps = records.as_sweeps(own, {name: name for name in TITLES})
            for name, result in sweeps.items():
                measured[projection, budget, name] = robustness(result)
    return measured


def write_table(rows: Sequence[Row], path: Path) -> None:
    """Writes ``measures.csv``: a row per projection, budget, optimizer and measure."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(("projection", "budget", "optimizer", "measure", "value", "low", "high"))
    for key, found in table(rows).items():
        for name, measure in found._asdict().items():
            writer.writerow((*key, name, *(f"{np.float64(bound):.6g}" for bound in measure)))
    write_atomically(path, buffer.getvalue())
