"""What a sweep runs on: the machine, the versions, and other processes beside this one."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import jax
import numpy as np


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
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "architecture": platform.machine(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "device": used[0].device_kind,
        "devices": len(used),
    }


def describe_versions() -> dict[str, str]:
    """The versions of Python and of what the numbers of a sweep may depend on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("mu2-optax", "optax", "jax", "jaxlib", "numpy")
    }


def is_shared(devices: Sequence[jax.Device] | None) -> bool:
    """Whether some of the devices belong to other processes of ``jax.distributed``."""
    return any(device.process_index != jax.process_index() for device in devices or ())
