"""The settings of JAX that change what a function computes, for another thread or process."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
import jax.experimental

# Names of `jax.config`; each is also a context manager, `jax.debug_nans(True)`.
_NAMES = (
    "enable_x64",
    "debug_nans",
    "debug_infs",
    "default_matmul_precision",
    "default_prng_impl",
    "threefry_partitionable",
    "numpy_dtype_promotion",
    "numpy_rank_promotion",
)

Settings = dict[str, Any]


def current_settings() -> Settings:
    """The settings that hold in this thread, be it by ``jax.config`` or inside of a ``with``."""
    config: Any = jax.config
    return {name: getattr(config, f"jax_{name}") for name in _NAMES}


@contextmanager
def under_settings(settings: Settings) -> Iterator[None]:
    """Within it these settings hold; a thread has those of a ``with`` for itself.

    Args:
      settings: What `current_settings` gave, in this process or another.
    """
    with ExitStack() as stack:
        for name, value in settings.items():
            home: Any = jax if hasattr(jax, name) else jax.experimental  # x64 before jax 0.8
            stack.enter_context(getattr(home, name)(value))
        yield
