"""What a sweep runs on: the machine and the versions."""

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
    """What a reader of timings wants to know."""
    used = list(devices) if devices else [default_device()]
    kind = {"device": used[0].device_kind, "devices": len(used)}
    return {"architecture": platform.machine(), "cores": os.cpu_count(), **kind}


def describe_versions() -> dict[str, str]:
    """The versions of Python and of what the numbers of a sweep may depend on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("mu2-optax", "optax", "jax", "jaxlib", "numpy")
    }
