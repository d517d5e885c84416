"""Data to sweep on: scikit-learn's digits, and MNIST or its like from IDX files."""

import gzip
import math
import os
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

DATA_VARIABLE = "MU2_OPTAX_DATA"
_IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}  # the third byte


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
    """MNIST, or anything in its format, such as Fashion-MNIST.

    Args:
      folder: Where the four IDX files are (or in its subfolder ``mnist``), with or without
        ``.gz``; the environment variable ``MU2_OPTAX_DATA`` if None.
      standardize: Whether to subtract the mean of all training pixels and divide by their
        deviation (one number each, not one per pixel); if False, pixels lie in [0, 1].

    Returns:
      The data, in the order of the files.

    Raises:
      FileNotFoundError: If there is no folder, or a file is missing.
      ValueError: If a file is not what it should be; the message names it.
    """
    folder = folder or os.environ.get(DATA_VARIABLE)
    if not folder:
        raise FileNotFoundError(
            f"MNIST must be on disk: pass its folder (on the command line, --data), or set "
            f"{DATA_VARIABLE}; it holds train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, "
            "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz."
        )
    train_x, train_y = _images_and_labels(Path(folder), "train")
    test_x, test_y = _images_and_labels(Path(folder), "t10k")
    if train_x.shape[1:] != test_x.shape[1:]:
        raise ValueError(
            f"{folder}: training and test images must have one size, got {train_x.shape[1:]} and "
            f"{test_x.shape[1:]}."
        )
    shift, scale = 0.0, 255.0
    if standardize:
        shift, scale = train_x.mean(dtype=np.float64), max(train_x.std(dtype=np.float64), 1e-6)
    return Data(_scaled(train_x, shift, scale), train_y, _scaled(test_x, shift, scale), test_y)


def _scaled(images: npt.NDArray[Any], shift: float, scale: float) -> npt.NDArray[np.float32]:
    """Shifted and divided, in float32 and in place: float64 would take 400 MB for MNIST."""
    out = images.astype(np.float32)
    out -= np.float32(shift)
    out /= np.float32(scale)
    return out


def _images_and_labels(folder: Path, part: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """A pair of IDX files, checked against each other."""
    images = _find(folder, f"{part}-images-idx3-ubyte")
    labels = _find(folder, f"{part}-labels-idx1-ubyte")
    x, y = _read_idx(images), _read_idx(labels)
    if x.ndim != 3 or x.dtype != np.uint8 or not len(x):
        raise ValueError(
            f"{images}: expected bytes (count, height, width), got {x.dtype}{list(x.shape)}."
        )
    if y.ndim != 1 or y.dtype != np.uint8 or len(y) != len(x):
        raise ValueError(
            f"{labels}: expected {len(x)} bytes, one label per image, got {y.dtype}{list(y.shape)}."
        )
    if y.max() > 9:
        raise ValueError(f"{labels}: expected labels from 0 to 9, got {y.max()}; it is corrupt.")
    return x, y.astype(np.int32)


def _read_idx(path: Path) -> npt.NDArray[Any]:
    """Reads an array from an IDX file, plain or gzipped."""
    content = path.read_bytes()
    try:
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(
            f"{path}: expected a complete IDX file, compressed with gzip; it is truncated, corrupt "
            f"or something else ({error})."
        ) from error
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in _IDX_TYPES:
        raise ValueError(f"{path} is not an IDX file: it starts with {content[:4]!r}.")
    start, dtype = 4 + 4 * content[3], np.dtype(_IDX_TYPES[content[2]])
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    announced, found = start + dtype.itemsize * math.prod(shape), len(content)
    if announced != found or not shape:
        raise ValueError(
            f"{path} is cut off or corrupt: {announced} bytes announced, {found} found."
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape)


def _find(folder: Path, name: str) -> Path:
    for file in (f"{name}.gz", name, f"mnist/{name}.gz", f"mnist/{name}"):
        if (folder / file).is_file():
            return folder / file
    raise FileNotFoundError(
        f"no {name}.gz in {folder} or {folder / 'mnist'}; the folder that was passed (on the "
        f"command line, --data; else {DATA_VARIABLE}) must hold the four IDX files."
    )
