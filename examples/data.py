"""MNIST, Fashion-MNIST, CIFAR-10 and digits through one function: ``load(name, data_dir)``.

``digits`` comes with scikit-learn. The others are read from a folder that holds the canonical files
(``--data-dir``, or the environment variable ``MU2_OPTAX_DATA``), in itself or in a subfolder:

    mnist/                  train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz,
                            t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz
    fashion-mnist/          the same four names
    cifar-10-batches-bin/   data_batch_1.bin ... data_batch_5.bin, test_batch.bin

Without a folder they are downloaded from their public homes into a cache folder
(``MU2_OPTAX_CACHE``, or the usual place for caches), checked against known hashes, and used from
there the next time; a download that was interrupted goes on where it was. Downloading needs pooch
and tqdm: ``pip install -e '.[examples]'``. To download one now and see where it went:

    python -m examples.data mnist
"""

import argparse
import os
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mu2_optax.sweep import Data, load_digits, load_mnist

DATA_VARIABLE, CACHE_VARIABLE = "MU2_OPTAX_DATA", "MU2_OPTAX_CACHE"


class DataError(RuntimeError):
    """A data set that cannot be had; the message names the file and what was expected."""


@dataclass(frozen=True)
class Source:
    """Where a data set is.

    Attributes:
      folder: The name of its folder.
      files: The files to read there.
      urls: Its public homes, tried in this order; each ends in a slash.
      hashes: What to download, and the MD5 that its publisher gives for it.
      read: Reads the files, in the order of ``files``.
    """

    folder: str
    files: tuple[str, ...]
    urls: tuple[str, ...]
    hashes: dict[str, str]
    read: Callable[[list[Path]], Data]


def load(name: str, data_dir: str | Path | None = None, *, progress: bool = True) -> Data:
    """Loads a data set.

    Args:
      name: One of ``NAMES``.
      data_dir: The folder with the canonical files; if None, ``MU2_OPTAX_DATA``, and if that is not
        set either, the cache, where what is missing is downloaded to.
      progress: Whether downloads show a progress bar.

    Returns:
      Images in float32, of shape (count, height, width) or (count, height, width, 3), standardised
      by the mean and deviation of all pixels of the training images (for CIFAR-10 of each channel
      on its own), and labels in int32.

    Raises:
      DataError: If a file is missing, cannot be downloaded, or is not what it should be.
    """
    if name == "digits":
        return load_digits()
    if name not in SOURCES:
        raise DataError(f"no data set {name!r}; there are {', '.join(NAMES)}.")
    source = SOURCES[name]
    folder = data_dir or os.environ.get(DATA_VARIABLE)
    return source.read(_find(source, Path(folder)) if folder else fetch(source, progress=progress))


def add_arguments(parser: argparse.ArgumentParser, default: str = "digits") -> None:
    """Adds ``--data`` and ``--data-dir`` to a script's options."""
    parser.add_argument("--data", choices=NAMES, default=default, help="default: %(default)s")
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="folder that holds the data set's canonical files; default: the environment variable "
        f"{DATA_VARIABLE}, and without it they are downloaded and cached",
    )


def load_or_exit(parser: argparse.ArgumentParser, args: argparse.Namespace, batch: int = 1) -> Data:
    """Loads what the options of `add_arguments` ask for, or ends the script with the reason.

    Args:
      parser: The parser of the command line.
      args: What it gave.
      batch: The value of ``--batch``; the data must have that many training images.
    """
    try:
        data = load(args.data, args.data_dir)
    except DataError as error:
        parser.exit(1, f"{error}\n")
    if batch > len(data.train_x):
        parser.error(f"--batch {batch} is more than the {len(data.train_x)} training images")
    return data


def read_cifar_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Reads a file of CIFAR-10's binary version: for each image a label and 3 planes of 32×32."""
    record = 1 + 3 * 32 * 32
    content = np.frombuffer(path.read_bytes(), np.uint8)
    if not content.size or content.size % record:
        raise DataError(
            f"{path}: expected records of {record} bytes (10,000 of them, 30,730,000 bytes, in the "
            f"canonical file), got {content.size:,} bytes; the file is truncated or something else."
        )
    records = content.reshape(-1, record)
    labels = records[:, 0].astype(np.int32)
    if labels.max() > 9:
        raise DataError(f"{path}: expected labels from 0 to 9, got {labels.max()}; it is corrupt.")
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels


def fetch(source: Source, *, cache: str | Path | None = None, progress: bool = True) -> list[Path]:
    """Downloads what is not in the cache yet.

    A file gets its name only when it is complete and its hash is right. Until then it is in the
    subfolder ``partial``, from where an interrupted download goes on.

    Args:
      source: What to download.
      cache: The cache folder; if None, ``MU2_OPTAX_CACHE`` or the usual place.
      progress: Whether to show a progress bar.

    Returns:
      The paths of ``source.files``.
    """
    try:
        import pooch
        import tqdm  # noqa: F401  (pooch's progress bar)
    except ImportError as error:
        raise DataError(
            f"downloading {source.folder} needs pooch and tqdm: pip install -e '.[examples]'; "
            f"or pass a folder that holds it with --data-dir or {DATA_VARIABLE}."
        ) from error
    root = Path(cache or os.environ.get(CACHE_VARIABLE) or pooch.os_cache("mu2_optax"))
    folder = root / source.folder
    for name, md5 in source.hashes.items():
        archive = name.endswith(".tar.gz")
        if archive and all((folder / file).is_file() for file in source.files):
            continue
        path = _download(source, name, md5, folder, progress)
        if archive:
            _unpack(path, source.files, folder)
    return [folder / file for file in source.files]


def _download(source: Source, name: str, md5: str, folder: Path, progress: bool) -> Path:
    """Downloads a file from the first home that has it."""
    import pooch
    import requests

    failures = []
    pooch.get_logger().setLevel("WARNING")
    for home in source.urls:
        partial = folder / "partial" / name
        try:
            found = pooch.retrieve(
                home + name,
                f"md5:{md5}",
                fname=name,
                path=folder,
                downloader=lambda url, out, _, partial=partial: _resume(
                    url, Path(out), partial, progress
                ),
            )
            return Path(found)
        except (requests.exceptions.RequestException, ValueError, OSError) as error:
            failures.append(f"{home}{name}: {error}")
    raise DataError(
        f"could not download {name} of {source.folder} (expected MD5 {md5}):\n  "
        + "\n  ".join(failures)
        + f"\nTry again, or pass a folder that holds it with --data-dir or {DATA_VARIABLE}."
    )


def _resume(url: str, out: Path, partial: Path, progress: bool) -> None:
    """Downloads the rest of ``partial``, and moves it to ``out`` when it is complete."""
    import pooch
    import requests

    partial.parent.mkdir(parents=True, exist_ok=True)
    start = partial.stat().st_size if partial.is_file() else 0
    if start:
        wanted = {"Range": f"bytes={start}-"}
        with requests.get(url, headers=wanted, stream=True, timeout=30) as answer:
            if answer.status_code != requests.codes.partial_content:
                start = 0  # this server cannot go on in the middle, or there is nothing after it
    headers = {"Range": f"bytes={start}-"} if start else {}
    fetcher = pooch.HTTPDownloader(progressbar=progress, headers=headers, timeout=30)
    try:
        with partial.open("ab" if start else "wb") as file:
            fetcher(url, file, None)
        partial.replace(out)
    finally:
        if partial.is_file() and not partial.stat().st_size:
            partial.unlink()
        if not any(partial.parent.iterdir()):
            partial.parent.rmdir()


def _unpack(archive: Path, files: tuple[str, ...], folder: Path) -> None:
    """Takes the files out of an archive, each under its name only when it is complete."""
    try:
        with tarfile.open(archive) as tar:
            members = {Path(member.name).name: member for member in tar if member.isfile()}
            for file in files:
                if file not in members:
                    raise DataError(f"{archive}: expected {file} in it, found {sorted(members)}.")
                content = tar.extractfile(members[file])
                temporary = folder / f"{file}.tmp"
                temporary.write_bytes(content.read() if content else b"")
                temporary.replace(folder / file)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive}: expected a tar.gz archive, got {error}.") from error


def _find(source: Source, folder: Path) -> list[Path]:
    """The files in a folder, or in its subfolder of the data set's name."""
    for place in (folder / source.folder, folder):
        found = [place / file for file in source.files]
        if any(path.is_file() for path in found):
            missing = [path for path in found if not path.is_file()]
            if missing:
                raise DataError(
                    f"{missing[0]} is missing; expected {', '.join(source.files)} in {place}."
                )
            return found
    raise DataError(
        f"no {source.files[0]} in {folder} or {folder / source.folder}; expected the canonical "
        f"files {', '.join(source.files)} there, because --data-dir or {DATA_VARIABLE} says so."
    )


def _read_mnist(paths: list[Path]) -> Data:
    try:
        return load_mnist(paths[0].parent)
    except ValueError as error:
        raise DataError(str(error)) from error


def _read_cifar(paths: list[Path]) -> Data:
    batches = [read_cifar_batch(path) for path in paths]
    for path, (images, _) in zip(paths, batches, strict=True):
        if len(images) != len(batches[0][0]):
            raise DataError(
                f"{path}: expected {len(batches[0][0]):,} images as in {paths[0].name}, got "
                f"{len(images):,}; one of the two is truncated."
            )
    train_x, train_y = (np.concatenate(arrays) for arrays in zip(*batches[:-1], strict=True))
    test_x, test_y = batches[-1]
    mean, deviation = (f((0, 1, 2)).astype(np.float32) for f in (train_x.mean, train_x.std))
    train_x, test_x = ((x.astype(np.float32) - mean) / deviation for x in (train_x, test_x))
    return Data(train_x, train_y, test_x, test_y)


_IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")

# The hashes are those that the publishers and torchvision's datasets give.
SOURCES = {
    "mnist": Source(
        "mnist",
        _IDX_FILES,
        (
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        _read_mnist,
    ),
    "fashion-mnist": Source(
        "fashion-mnist",
        _IDX_FILES,
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        _read_mnist,
    ),
    "cifar10": Source(
        "cifar-10-batches-bin",
        _CIFAR_FILES,
        ("https://www.cs.toronto.edu/~kriz/",),
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        _read_cifar,
    ),
}
NAMES = ("digits", *SOURCES)
TITLES = dict(zip(NAMES, ("digits", "MNIST", "Fashion-MNIST", "CIFAR-10"), strict=True))


def main() -> None:
    """Downloads a data set, or says what is wrong with a folder's."""
    parser = argparse.ArgumentParser(description="Download a data set, or check a folder's.")
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--data-dir", metavar="DIR", help="check this folder; download nothing")
    args = parser.parse_args()
    try:
        data = load(args.name, args.data_dir)
    except DataError as error:
        parser.exit(1, f"{error}\n")
    for field, array in data._asdict().items():
        print(f"{field:8} {array.dtype}{list(array.shape)}")


if __name__ == "__main__":
    main()
