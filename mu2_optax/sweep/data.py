"""Data for the built-in tasks: scikit-learn's digits, and MNIST from its IDX files."""

import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

DATA_VARIABLE = "MU2_OPTAX_DATA"
_IDX_TYPES: dict[int, Any] = {8: np.uint8, 9: np.int8, 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


class Data(NamedTuple):
    """Images (count, height, width) in float32, standardised, and labels in int32."""

    train_x: npt.NDArray[np.float32]
    train_y: npt.NDArray[np.int32]
    test_x: npt.NDArray[np.float32]
    test_y: npt.NDArray[np.int32]


def load_digits() -> Data:
    """The 1,797 digits (8×8) that come with scikit-learn; every fifth one is held out.

    They are standardised, as MNIST is, by the mean and deviation of all training pixels.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise ModuleNotFoundError(
            "the digits tasks need scikit-learn; install it with: pip install 'mu2-optax[sweep]'"
        ) from error
    images, labels = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order].reshape(-1, 8, 8), labels[order]
    held_out = np.arange(len(images)) % 5 == 4
    images = (images - images[~held_out].mean()) / images[~held_out].std()
    return _data(images[~held_out], labels[~held_out], images[held_out], labels[held_out])


def load_mnist(folder: str | Path | None = None) -> Data:
    """MNIST, or anything in its format, standardised by the mean and deviation of all pixels.

    Args:
      folder: Where the four IDX files are (or in its subfolder ``mnist``), with or without
        ``.gz``; the environment variable ``MU2_OPTAX_DATA`` if None.

    Returns:
      The data.

    Raises:
      FileNotFoundError: If there is no folder, or a file is missing.
      ValueError: If a file is not in the IDX format.
    """
    place = folder or os.environ.get(DATA_VARIABLE)
    if not place:
        raise FileNotFoundError(
            f"MNIST must be on disk: pass its folder with --data, or set {DATA_VARIABLE}; it holds "
            "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz "
            "and t10k-labels-idx1-ubyte.gz."
        )
    parts = [
        read_idx(_find(Path(place), f"{part}-{kind}-ubyte"))
        for part in ("train", "t10k")
        for kind in ("images-idx3", "labels-idx1")
    ]
    mean, deviation = parts[0].mean(), parts[0].std()
    return _data((parts[0] - mean) / deviation, parts[1], (parts[2] - mean) / deviation, parts[3])


def read_idx(path: Path) -> npt.NDArray[Any]:
    """Reads an array from an IDX file, plain or gzipped."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        content = bytes(file.read())
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise ValueError(f"{path} is not an IDX file: it starts with {content[:4]!r}.")
    start = 4 + 4 * content[3]
    shape = np.frombuffer(content[4:start], ">u4").astype(int)
    array = np.frombuffer(content, _IDX_TYPES[content[2]], offset=start)
    if array.size != shape.prod():
        raise ValueError(f"{path} is cut off: {shape.prod()} values announced, {array.size} found.")
    return array.reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for place in (folder, folder / "mnist"):
        for suffix in (".gz", ""):
            if (place / f"{name}{suffix}").is_file():
                return place / f"{name}{suffix}"
    raise FileNotFoundError(
        f"no {name}.gz in {folder} or {folder / 'mnist'}; --data (or {DATA_VARIABLE}) must name "
        "the folder of MNIST's four IDX files."
    )


def _data(train_x: Any, train_y: Any, test_x: Any, test_y: Any) -> Data:
    return Data(
        np.asarray(train_x, np.float32),
        np.asarray(train_y, np.int32),
        np.asarray(test_x, np.float32),
        np.asarray(test_y, np.int32),
    )
