"""The machine that a sweep runs on."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import jax
import numpy as np


def cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def default_device() -> jax.Device:
    """The device that arrays go to when nobody says where."""
    return next(iter(jax.device_put(np.float32(0)).devices()))


def describe_machine(devices: Sequence[jax.Device] | None) -> dict[str, Any]:
    """What a reader of timings wants to know, as JSON values.

    Args:
      devices: The devices that share the sweep; the default device if None.

    Returns:
      The processor's architecture, the cores, the kind of device and the number of devices.

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
