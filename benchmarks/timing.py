"""Times that can be compared on a busy machine: all ways take turns, round after round."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Spread(NamedTuple):
    """A median, and the quartiles around it."""

    median: float
    low: float
    high: float


def in_turn(ways: Mapping[Any, Callable[[], float]], rounds: int) -> dict[Any, np.ndarray]:
    """What each way measures (seconds) in each round; a first round to warm up does not count."""
    for way in ways.values():
        way()
    found = [{name: way() for name, way in ways.items()} for _ in range(rounds)]
    return {name: np.array([of_round[name] for of_round in found]) for name in ways}


def spread(values: np.ndarray) -> Spread:
    """The median and the quartiles; of ratios, those of the same round are to be divided first."""
    return Spread(*(float(q) for q in np.percentile(values, (50, 25, 75))))
