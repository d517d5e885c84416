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
    """What a reader of timings wants to know."""
    used = list(devices) if devices else [default_device()]
    kind = {"device": used[0].device_kind, "devices": len(used)}
    return {"architecture": platform.machine(), "cores": os.cpu_count(), **kind}


def describe_versions() -> dict[str, str]:
    """The versions of Python and of what the numbers of a sweep may depend on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("mu2-optax", "optax", "jax", "jaxlib", "numpy")
    }


def is_shared(devices: Sequence[jax.Device] | None) -> bool:
    """Whether some of the devices belong to other processes of ``jax.distributed``."""
    return any(device.process_index != jax.process_index() for device in devices or ())
