"""A training step of each optimizer, compiled for accelerators that need not be there."""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
import optax.contrib
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

import mu2_optax
from benchmarks.aot.traffic import moved_bytes

# libtpu asks a machine of Google's cloud what it is, and wants to be alone: here it only compiles.
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5litepod-4")
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")

TOPOLOGIES = {"v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
A100 = "A100"
_A100_TARGET = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: 167936
  shared_memory_per_block_optin: 166912 registers_per_core_limit: 65536
  registers_per_block_limit: 65536 core_count: 108 fpus_per_core: 64
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 1555200000000 l2_cache_size: 41943040 clock_rate_ghz: 1.41
  device_memory_size: 42331013120 cuda_compute_capability { major: 8 }
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 8 patch: 0 }
device_description_str: "NVIDIA A100-SXM4-40GB"
"""


class Optimizer(NamedTuple):
    """An optimizer and what its step has to move.

    Attributes:
      make: Makes it.
      arrays: How many arrays of the size of the params a step reads or writes at least: params and
        gradients, and state. None where matrix products take most of the time.
      wide: Whether state is never narrower than float32; then the average is kept beside narrower
        params, and is read and written as well.
    """

    make: Callable[[], Any]
    arrays: tuple[int, int] | None
    wide: bool = True

    def least(self, dtype: str) -> int | None:
        """The least that a step can move, relative to the params."""
        if self.arrays is None:
            return None
        params, state = self.arrays
        return params + (2 * (state + 2) if self.wide and dtype == "bfloat16" else state)


# Prodigy's distance is a sum over all leaves, which it needs before it can step: a second pass.
OPTIMIZERS = {
    "Adam": Optimizer(lambda: optax.adam(1e-3), (3, 4), wide=False),
    "AdamW": Optimizer(lambda: optax.adamw(1e-3), (3, 4), wide=False),
    "schedule-free AdamW": Optimizer(
        lambda: optax.contrib.schedule_free_adamw(1e-3), (3, 4), wide=False
    ),
    "Prodigy": Optimizer(lambda: optax.contrib.prodigy(), (5, 7), wide=False),
    "Muon": Optimizer(lambda: optax.contrib.muon(1e-3), None, wide=False),
    "mu2_auto": Optimizer(lambda: mu2_optax.mu2_auto(), (3, 4)),
    "mu2_auto, decay": Optimizer(lambda: mu2_optax.mu2_auto(weight_decay=0.1), (3, 4)),
    "mu2_auto, spectral": Optimizer(lambda: mu2_optax.mu2_auto(spectral=True), None),
    "mu2_sgd": Optimizer(lambda: mu2_optax.mu2_sgd(0.1), (3, 6)),
    "mu2_adam": Optimizer(lambda: mu2_optax.mu2_adam(1e-3), (3, 8)),
}


class RefusedError(Exception):
    """The compiler of the accelerator does not take the program."""


class Compiled(NamedTuple):
    """What is known of a compiled step; bytes are relative to those of the params.

    Attributes:
      streams: The bytes it moves to or from main memory.
      temporary: The bytes of temporary buffers.
      seconds: Processor time to trace and to compile it.
    """

    streams: float
    temporary: float
    seconds: float


def target(chip: str) -> Any:
    """A device to compile for."""
    if chip == A100:
        one = {"topology": "1x1x1", "target_config": _A100_TARGET}
        return topologies.get_topology_desc("a100", platform="cuda", **one).devices[0]
    return topologies.get_topology_desc(TOPOLOGIES[chip], platform="tpu").devices[0]


def compile_step(name: str, shapes: dict[str, tuple[int, ...]], dtype: str, chip: str) -> Compiled:
    """``update`` and ``apply_updates`` on one chip, with donated params and state.

    A second gradient is a product with a number, so that it is fused and only its point is read.
    """
    device = target(chip)
    placed = SingleDeviceSharding(device)
    described = lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=placed)
    tx = optax.with_extra_args_support(OPTIMIZERS[name].make())
    params = {key: jax.ShapeDtypeStruct(shape, dtype) for key, shape in shapes.items()}
    state = jax.eval_shape(tx.init, params)
    batch = jax.ShapeDtypeStruct((), dtype)
    params, state, batch = jax.tree.map(described, (params, state, batch))

    def step(params: Any, state: Any, grads: Any, batch: Any) -> tuple[Any, Any]:
        grad_fn = lambda params, batch: jax.tree.map(lambda p: batch * p, params)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state

    start = time.process_time()
    traced = jax.jit(step, donate_argnums=(0, 1)).trace(params, state, params, batch)
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        raise RefusedError(" ".join(str(error).split())) from error
    seconds = time.process_time() - start
    size = sum(p.size * p.dtype.itemsize for p in params.values())
    temporary = compiled.memory_analysis().temp_size_in_bytes / size
    return Compiled(moved_bytes(compiled.as_text()) / size, temporary, seconds)
