"""The package's digits as the small measurements take them, and shuffled batches of them."""

from collections.abc import Iterator

import numpy as np

from mu2_optax.sweep import load_digits

Batch = dict[str, np.ndarray]


def load() -> tuple[Batch, Batch]:
    """1,437 images for training and 360 for testing, of shape (8, 8, 1), with pixels in [0, 1].

    The package holds out every fifth image; the published numbers are those of the last fifth.
    """
    data = load_digits(standardize=False)
    held_out = np.arange(len(data.train_y) + len(data.test_y)) % 5 == 4
    image = np.empty((len(held_out), 8, 8, 1), np.float32)
    label = np.empty(len(held_out), np.int32)
    image[~held_out, ..., 0], image[held_out, ..., 0] = data.train_x, data.test_x
    label[~held_out], label[held_out] = data.train_y, data.test_y
    cut = len(label) * 4 // 5
    return {"image": image[:cut], "label": label[:cut]}, {
        "image": image[cut:],
        "label": label[cut:],
    }


def batches(data: Batch, epochs: int, seed: int, size: int = 64) -> Iterator[Batch]:
    """Shuffled batches of whole size."""
    rng = np.random.default_rng(seed)
    count = len(data["label"])
    for _ in range(epochs):
        order = rng.permutation(count)
        for start in range(0, count - size + 1, size):
            yield {name: array[order[start : start + size]] for name, array in data.items()}
