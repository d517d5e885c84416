"""Scikit-learn's handwritten digits (1797 images of 8×8), for benchmarks without a download."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits


def load() -> tuple[dict[str, Any], dict[str, Any]]:
    """The training and the test set: four fifths and one fifth of the images, in [0, 1]."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    image = (digits.images[order, :, :, None] / 16).astype(np.float32)
    label = digits.target[order].astype(np.int32)
    cut = len(label) * 4 // 5
    return {"image": image[:cut], "label": label[:cut]}, {
        "image": image[cut:],
        "label": label[cut:],
    }


def batches(data: dict[str, Any], epochs: int, seed: int, size: int = 64) -> Iterator[Any]:
    """Shuffled batches of whole size."""
    rng = np.random.default_rng(seed)
    count = len(data["label"])
    for _ in range(epochs):
        order = rng.permutation(count)
        for start in range(0, count - size + 1, size):
            yield {name: array[order[start : start + size]] for name, array in data.items()}
