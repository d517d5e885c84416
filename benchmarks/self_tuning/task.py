"""What a task is: data, and pure functions of params and data."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.files import RESULTS
from benchmarks.records import Records
from benchmarks.training import Functions, cross_entropy, shuffled

DEVELOPMENT, CONFIRMATION, LATER = SIDES = ("development", "confirmation", "later")
VALIDATION, TEST = "validation", "test"
FOLDER = RESULTS / "self_tuning"


class Cell(NamedTuple):
    """Which run it is."""

    peer: str
    rate: float
    seed: int


def records(folder: Path, name: str) -> Records:
    """The runs of a task, in a folder."""
    return Records(folder / f"{name}.json", Cell, name)


class Task(NamedTuple):
    """What is learnt, and how it is judged.

    Attributes:
      kind: What sort of problem it is.
      side: ``DEVELOPMENT``; ``CONFIRMATION`` for a task that no constant of the first four rules
        was chosen on, or ``LATER`` for one that was written after the third.
      metric: "accuracy", "loss", "error" or "return".
      steps: How many, a multiple of 20.
      load: From the folder of the data to a tree of arrays.
      make: From these arrays, which may be tracers, to the functions.
      variant_of: The task of which it is another batch size or horizon.
      mean_of_run: Whether the mean over the points along the run is judged, not the last one.
    """

    kind: str
    side: str
    metric: str
    steps: int
    load: Callable[[str | None], Any]
    make: Callable[[Any], Functions]
    variant_of: str | None = None
    mean_of_run: bool = False

    @property
    def higher_is_better(self) -> bool:
        """Whether the metric is an accuracy or a return."""
        return self.metric in ("accuracy", "return")


def split(arrays: tuple[np.ndarray, ...], validation: int, test: int) -> dict[str, Any]:
    """Cuts the last rows off for validation and test; the rows are in a random order already."""
    count = len(arrays[0]) - validation - test
    return {
        "train": tuple(a[:count] for a in arrays),
        VALIDATION: tuple(a[count : count + validation] for a in arrays),
        TEST: tuple(a[count + validation :] for a in arrays),
    }


def on_rows(data: Any, init: Callable[[Any], Any], loss: Any, batch: int) -> Functions:
    """Batches of the rows to train with, in a new order in each epoch; judged by the loss."""
    train = data["train"]
    return Functions(
        init=init,
        draw=lambda key, steps: shuffled(key, len(train[0]), batch, steps),
        batch=lambda rows: tuple(a[rows] for a in train),
        loss=loss,
        measure=lambda params, rows, part: loss(params, data[part]),
    )


def classifier(data: Any, init: Callable[[Any], Any], logits_of: Any, batch: int) -> Functions:
    """Tells the second of each row, a class, from the first by ``logits_of``: of (params, x)."""

    def measure(params: Any, rows: Any, part: str) -> Any:
        del rows
        x, labels = data[part]
        return (logits_of(params, x).argmax(-1) == labels).mean()

    loss = lambda params, some: cross_entropy(logits_of(params, some[0]), some[1])
    return on_rows(data, init, loss, batch)._replace(measure=measure)


def with_seeds(draw: Callable[[Any, int], Any]) -> Callable[[Any, int], Any]:
    """Rows of (what ``draw`` gives, a key for the noise of that batch)."""

    def draw_with_seeds(key: Any, steps: int) -> Any:
        row_key, noise_key = jax.random.split(key)
        return draw(row_key, steps), jax.random.split(noise_key, steps)

    return draw_with_seeds


def layers(key: Any, sizes: tuple[int, ...], gain: float = 1.0) -> list[dict[str, Any]]:
    """Dense layers: normal weights of variance gain²/inputs, and biases of zero."""
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": gain * m**-0.5 * jax.random.normal(k, (m, n)), "b": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def apply_layers(params: Any, x: Any, activation: Callable[[Any], Any]) -> Any:
    """Dense layers with an activation between them."""
    for layer in params[:-1]:
        x = activation(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]
