"""Data to sweep on: scikit-learn's digits, and MNIST or its like from IDX files."""

import gzip
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

DATA_VARIABLE = "MU2_OPTAX_DATA"


class Data(NamedTuple):
    """Images for classification.

    Attributes:
      train_x: Training images (count, height, width), float32.
      train_y: Their labels, int32.
      test_x: Test images, scaled as the training images are.
      test_y: Their labels.
    """

    train_x: npt.NDArray[np.float32]
    train_y: npt.NDArray[np.int32]
    test_x: npt.NDArray[np.float32]
    test_y: npt.NDArray[np.int32]


def load_digits(*, standardize: bool = True) -> Data:
    """The 1,797 digits (8×8) that come with scikit-learn; every fifth one is held out.

    Args:
      standardize: Whether to subtract the mean of all training pixels and divide by their
        deviation (one number each, not one per pixel); if False, pixels lie in [0, 1].

    Returns:
      1,438 images to train on and 359 to test on, in an order that is always the same.

    Examples:
      >>> load_digits().train_x.shape
      (1438, 8, 8)
    """
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order].reshape(-1, 8, 8), labels[order]
    test = np.arange(len(images)) % 5 == 4
    return _scaled((images[~test], labels[~test], images[test], labels[test]), 16, standardize)


def load_mnist(folder: str | Path | None = None, *, standardize: bool = True) -> Data:
    """MNIST, or anything in its format, such as Fashion-MNIST, in the order of the files.

    Args:
      folder: Where the four IDX files are (or in its subfolder ``mnist``), with or without
        ``.gz``; the environment variable ``MU2_OPTAX_DATA`` if None.
      standardize: As for `load_digits`.

    Raises:
      FileNotFoundError: If there is no folder, or a file is missing.
      ValueError: If a file is not what it should be; the message names it.
    """
    folder = folder or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(
            "MNIST must be on disk: pass the folder of its four IDX files (on the command line, "
            f"--data), or set {DATA_VARIABLE}."
        )
    parts: list[Any] = []
    for part in ("train", "t10k"):
        x = _read_idx(Path(folder), f"{part}-images-idx3-ubyte")
        y = _read_idx(Path(folder), f"{part}-labels-idx1-ubyte")
        if x.ndim != 3 or y.shape != x.shape[:1] or not y.size or y.max() > 9:
            raise ValueError(
                f"{folder}: expected {part} images (count, height, width) with labels from 0 to 9, "
                f"got arrays of the shapes {x.shape} and {y.shape}."
            )
        parts += [x.astype(np.float32), y]
    return _scaled(parts, 255, standardize)


def _scaled(parts: Sequence[Any], white: int, standardize: bool) -> Data:
    """Images in [0, 1], or with the training pixels' mean 0 and deviation 1."""
    train_x, train_y, test_x, test_y = parts
    shift, scale = 0.0, float(white)
    if standardize:
        shift, scale = train_x.mean(dtype=np.float64), max(train_x.std(dtype=np.float64), 1e-6)
    scaled: Any = lambda x: ((x - x.dtype.type(shift)) / x.dtype.type(scale)).astype(np.float32)
    return Data(scaled(train_x), train_y.astype(np.int32), scaled(test_x), test_y.astype(np.int32))


def _read_idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    """Reads the array of a file of bytes in the format IDX, plain or gzipped."""
    files = [place / file for place in (folder, folder / "mnist") for file in (f"{name}.gz", name)]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        raise FileNotFoundError(f"no {name}.gz in {folder} or {folder / 'mnist'}.")
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        if content[:3] != b"\0\0\x08":  # the type of bytes; the number of axes and their lengths
            raise ValueError(f"it starts with {content[:3]!r}")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + shape.nbytes).reshape(shape)
    except (EOFError, IndexError, gzip.BadGzipFile, zlib.error, ValueError) as error:
        raise ValueError(f"{path}: expected a complete IDX file of bytes ({error}).") from error
