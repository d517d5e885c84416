"""Who is compared: the published default and the grid of rates of each."""

from collections.abc import Callable
from typing import Any, NamedTuple

from benchmarks.optimizers import OPTIMIZERS, Setting

AUTO, SPECTRAL = OURS = ("mu2_auto", "mu2_auto_spectral")  # with nothing to choose, so not tuned
REFERENCE = "adamw_cosine"  # whose calibrated run gives the targets
SMALL_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
LARGE_RATES = (3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Peer(NamedTuple):
    """An optimizer of the comparison.

    Attributes:
      title: Its name in words.
      make: From (rate, steps) to the transform.
      untouched: The rate that was published as its default, or is customary.
      rates: The grid that it is tuned over, which has the untouched one.
      evaluate: From (state, params) to the params to evaluate.
      gradients: Gradients in a step.
    """

    title: str
    make: Callable[[Any, int], Any]
    untouched: float
    rates: tuple[float, ...]
    evaluate: Callable[[Any, Any], Any]
    gradients: float


# The rate of each as it comes, and those that it is tuned over; of ours, the factors tried.
CHOICES: dict[str, tuple[float, tuple[float, ...]]] = {
    AUTO: (1.0, (0.01, 0.1, 1.0, 10.0, 100.0)),
    SPECTRAL: (1.0, (1.0,)),
    REFERENCE: (1e-3, SMALL_RATES),
    "schedule_free_adamw": (2.5e-3, (1e-3, 2.5e-3, 1e-2, 3e-2, 0.1, 0.3)),
    "nadamw_cosine": (1.75e-3, (5e-4, 1.75e-3, 5e-3, 1.75e-2, 5e-2, 0.15)),
    "muon_cosine": (1e-3, SMALL_RATES),
    "sgd_cosine": (0.1, LARGE_RATES),
    "prodigy_cosine": (1.0, FACTORS),
    "prodigy": (1.0, FACTORS),
    "adam": (1e-3, SMALL_RATES),
    "adamw_wsd": (1e-3, SMALL_RATES),
    "schedule_free_plus": (1.0, FACTORS),
    "momo_adam": (1e-2, SMALL_RATES),
    "mechanic": (1.0, FACTORS),
    "dog": (1.0, FACTORS),
    "dowg": (1.0, FACTORS),
    "dadapt_adamw": (1.0, FACTORS),
    "mu2_sgd": (0.1, LARGE_RATES),
}


def _peer(name: str) -> Peer:
    own = OPTIMIZERS[name]
    make = lambda rate, steps: own.make(rate, Setting(steps=steps))
    return Peer(own.title, make, *CHOICES[name], own.evaluate, own.gradients)


PEERS = {name: _peer(name) for name in CHOICES}
