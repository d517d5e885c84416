"""What a sweep runs in: the settings of JAX, the machine, and other processes beside this one.

Under ``jax.distributed`` several processes share one sweep. Each makes the same calls in the same
order, and every call runs on the devices of all of them. But each has its own files and clock, and
only one may get Ctrl-C: `one_journal` and `largest` make them act alike.
"""

import os
import platform
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.experimental
import numpy as np
from jax.experimental import multihost_utils

# Names of `jax.config`; each is also a context manager, `jax.debug_nans(True)`.
_CONTEXT_SETTINGS = (
    "enable_x64",
    "debug_nans",
    "debug_infs",
    "default_matmul_precision",
    "default_prng_impl",
    "threefry_partitionable",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
)

# Names of `jax.config` on which the numbers of a cell depend.
_NUMERIC_SETTINGS = (
    "enable_x64",
    "default_matmul_precision",
    "default_prng_impl",
    "threefry_partitionable",
    "random_seed_offset",
    "high_dynamic_range_gumbel",
    "softmax_custom_jvp",
    "numpy_dtype_promotion",
)

Settings = dict[str, Any]


def current_settings() -> Settings:
    """This thread's settings, by ``jax.config`` or a ``with``, that change what is computed."""
    config: Any = jax.config
    return {name: getattr(config, f"jax_{name}") for name in _CONTEXT_SETTINGS}


def deciding_settings() -> Settings:
    """The settings on which numbers depend, to be compared with those of another run."""
    return {f"jax_{name}": getattr(jax.config, f"jax_{name}", None) for name in _NUMERIC_SETTINGS}


@contextmanager
def under_settings(settings: Settings) -> Iterator[None]:
    """Applies what `current_settings` gave, in this process or another, to this thread."""
    with ExitStack() as stack:
        for name, value in settings.items():
            home: Any = jax if hasattr(jax, name) else jax.experimental  # x64 before jax 0.8
            stack.enter_context(getattr(home, name)(value))
        yield


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_device() -> jax.Device:
    """The device that arrays go to by default."""
    return next(iter(jax.device_put(np.float32(0)).devices()))


def describe_machine(devices: Sequence[jax.Device] | None) -> dict[str, Any]:
    """What a reader of timings wants to know, as JSON values.

    ``devices`` are those that share the sweep; the default device if None.

    Examples:
      >>> sorted(describe_machine(None))
      ['architecture', 'cores', 'device', 'devices']
    """
    used = list(devices) if devices else [default_device()]
    return {
        "architecture": platform.machine(),
        "cores": cores(),
        "device": used[0].device_kind,
        "devices": len(used),
    }


def describe_versions() -> dict[str, str]:
    """The versions of Python and of what the numbers of a sweep may depend on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("mu2-optax", "optax", "jax", "jaxlib", "numpy")
    }


def is_shared(devices: Sequence[jax.Device] | None) -> bool:
    """Whether some of the devices belong to other processes."""
    return any(device.process_index != jax.process_index() for device in devices or ())


def check_all_take_part(devices: Sequence[jax.Device]) -> None:
    """Requires devices of every process, because all processes have to make the same call."""
    owners = {device.process_index for device in devices}
    if owners != set(range(jax.process_count())):
        raise ValueError(
            "`devices` must be of this process, or of all processes of jax.distributed, got those "
            f"of the processes {sorted(owners)} out of {jax.process_count()}; pass "
            "jax.local_devices() or jax.devices()."
        )


def largest(number: int) -> int:
    """The largest of the numbers that the processes pass."""
    return int(np.max(multihost_utils.process_allgather(np.int32(number))))


@contextmanager
def one_journal(path: str | Path | None) -> Iterator[str | Path | None]:
    """Gives every process the first one's journal; the others work on a copy that is discarded.

    Yields the file that this process reads and writes.
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
