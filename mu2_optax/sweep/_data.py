"""Data to sweep on: scikit-learn's digits, and MNIST or its like from IDX files."""

import gzip
import os
import zlib
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
    try:
        from sklearn.datasets import load_digits as load
    except ImportError as error:
        raise ModuleNotFoundError(
            "`load_digits` needs scikit-learn: `pip install scikit-learn`"
        ) from error
    images, labels = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order].reshape(-1, 8, 8), labels[order].astype(np.int32)
    held_out = np.arange(len(images)) % 5 == 4
    if standardize:
        images = (images - images[~held_out].mean()) / images[~held_out].std()
    else:
        images = images / 16
    images = images.astype(np.float32)
    return Data(images[~held_out], labels[~held_out], images[held_out], labels[held_out])


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
            f"MNIST must be on disk: pass the folder of its four IDX files, such as "
            f"train-images-idx3-ubyte.gz (on the command line, --data), or set {DATA_VARIABLE}."
        )
    parts = []
    for part in ("train", "t10k"):
        images, x = _read_idx(Path(folder), f"{part}-images-idx3-ubyte")
        labels, y = _read_idx(Path(folder), f"{part}-labels-idx1-ubyte")
        if x.ndim != 3 or not x.size:
            raise ValueError(f"{images}: expected (count, height, width), got {list(x.shape)}.")
        if y.shape != (len(x),) or y.max() > 9:
            found = f"{list(y.shape)} up to {y.max()}"
            raise ValueError(f"{labels}: expected {len(x)} labels from 0 to 9, got {found}.")
        parts += [x, y.astype(np.int32)]
    train_x, train_y, test_x, test_y = parts
    shift, scale = 0.0, 255.0
    if standardize:
        shift, scale = train_x.mean(dtype=np.float64), max(train_x.std(dtype=np.float64), 1e-6)
    train_x, test_x = (
        (x.astype(np.float32) - np.float32(shift)) / np.float32(scale) for x in (train_x, test_x)
    )
    return Data(train_x, train_y, test_x, test_y)


def _read_idx(folder: Path, name: str) -> tuple[Path, npt.NDArray[Any]]:
    """Finds a file of bytes in the format IDX, plain or gzipped, and reads its array."""
    files = [place / file for place in (folder, folder / "mnist") for file in (f"{name}.gz", name)]
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        raise FileNotFoundError(
            f"no {name}.gz in {folder} or {folder / 'mnist'}; the folder that was passed (on the "
            f"command line, --data; else {DATA_VARIABLE}) must hold the four IDX files."
        )
    try:
        content = path.read_bytes()
        content = gzip.decompress(content) if path.suffix == ".gz" else content
        if content[:3] != b"\0\0\x08":  # the type of bytes; the number of axes and their lengths
            raise ValueError(f"it starts with {content[:3]!r}")
        shape = np.frombuffer(content, ">u4", count=content[3], offset=4)
        return path, np.frombuffer(content, np.uint8, offset=4 + shape.nbytes).reshape(shape)
    except (EOFError, IndexError, gzip.BadGzipFile, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path}: expected a complete IDX file of bytes; it is cut off, corrupt or something "
            f"else ({error})."
        ) from error
