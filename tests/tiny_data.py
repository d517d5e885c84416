"""Small data sets in the canonical formats."""

import gzip
import struct

import numpy as np

COUNTS = {"train": 20, "t10k": 10}


def idx(array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(
        f">{array.ndim}I", *array.shape
    )
    return header + array.astype(np.uint8).tobytes()


def mnist_files(seed=0):
    rng = np.random.default_rng(seed)
    files = {}
    for part, count in COUNTS.items():
        images, labels = rng.integers(0, 256, (count, 28, 27)), rng.integers(0, 10, count)
        files[f"{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(images), mtime=0)
        files[f"{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx(labels), mtime=0)
    return files


def cifar_files(records=4, seed=0):
    rng = np.random.default_rng(seed)
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    files = {}
    for name in names:
        content = rng.integers(0, 256, (records, 3073)).astype(np.uint8)
        content[:, 0] %= 10
        files[name] = content.tobytes()
    return files


def write(folder, files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
