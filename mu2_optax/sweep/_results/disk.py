"""Files written all or nothing, with a checksum that shows damage; NaN and Inf in JSON."""

import contextlib
import hashlib
import json
import os
import re
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np


def write_atomically(path: str | Path, content: str | bytes) -> None:
    """Replaces a file by a new one, so that readers see the old or the new, never a part."""
    path = Path(path)
    with naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            Path(name).chmod(0o644)
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to an error of the system, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def encode(value: Any) -> Any:
    """Nested lists of numbers for strict JSON: non-finite numbers become strings."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list):
        return [encode(item) for item in value]
    return json.dumps(value) if isinstance(value, float) and not np.isfinite(value) else value


def decode(value: Any) -> Any:
    """The inverse of `encode`."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    return float(value) if isinstance(value, str) else value


def seal(document: Mapping[str, Any]) -> str:
    """A JSON object that is not empty as a line of text, with its checksum as the last entry."""
    text = json.dumps(document, allow_nan=False)
    return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'


def is_sealed(text: str) -> bool:
    """Whether a text, without the end of its line, is unchanged since `seal` made it."""
    found = re.fullmatch(r'(.*), "crc32": "([0-9a-f]{8})"\}', text, re.DOTALL)
    return found is not None and zlib.crc32(f"{found[1]}}}".encode()) == int(found[2], 16)


def write_beside(path: str | Path, text: str) -> None:
    """Writes a file, and its checksum into another beside it, as ``sha256sum`` would.

    If this is interrupted between the two, the file is there and cannot be checked.
    """
    beside = _checksum_file(path)
    beside.unlink(missing_ok=True)
    write_atomically(path, text)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    write_atomically(beside, f"{checksum}  {Path(path).name}\n")


def check_beside(path: str | Path, content: bytes) -> None:
    """Requires the content of a file to agree with the checksum beside it, if there is one."""
    beside = _checksum_file(path)
    checksum = hashlib.sha256(content).hexdigest().encode()
    if beside.exists() and beside.read_bytes().split()[:1] != [checksum]:
        raise ValueError(
            f"{path} is not what was written: its SHA-256 is not that in {beside.name}; restore it,"
            f" or delete {beside.name} if it was changed on purpose."
        )


def _checksum_file(path: str | Path) -> Path:
    return Path(path).with_name(f"{Path(path).name}.sha256")
