"""One sweep by several processes of ``jax.distributed``: what they have to agree on.

Each process makes the same calls in the same order, and every call runs on the devices of all. What
a process knows for itself alone, the journal, the clock and Ctrl-C, becomes known to all here.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import jax
import numpy as np
from jax.experimental import multihost_utils


def is_shared(devices: Sequence[jax.Device] | None) -> bool:
    """Whether some of the devices are those of other processes."""
    return any(device.process_index != jax.process_index() for device in devices or ())


def check_all_take_part(devices: Sequence[jax.Device]) -> None:
    """Requires devices of every process, which all have to make the same call.

    Raises:
      ValueError: If there are none of some process.
    """
    owners = {device.process_index for device in devices}
    if owners != set(range(jax.process_count())):
        raise ValueError(
            "`devices` must be of this process, or of all processes of jax.distributed, got those "
            f"of the processes {sorted(owners)} out of {jax.process_count()}; pass "
            "jax.local_devices() or jax.devices()."
        )


def largest(number: int) -> int:
    """The largest of the numbers that the processes give."""
    return int(np.max(multihost_utils.process_allgather(np.int32(number))))


@contextmanager
def one_journal(path: str | Path | None) -> Iterator[str | Path | None]:
    """The journal of the first process, which alone writes it; the others have a copy.

    Args:
      path: The journal's file, or None.

    Yields:
      The file that this process reads and writes.
    """
    if path is None:
        yield None
        return
    first = jax.process_index() == 0
    content = Path(path).read_bytes() if first and Path(path).exists() else b""
    padded = np.zeros(largest(len(content)), np.uint8)
    padded[: len(content)] = np.frombuffer(content, np.uint8)
    if padded.size:
        padded = multihost_utils.broadcast_one_to_all(padded)
    if first:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="mu2-sweep-") as folder:
        copy = Path(folder, Path(path).name)
        if padded.size:
            copy.write_bytes(np.asarray(padded).tobytes())
        yield copy
