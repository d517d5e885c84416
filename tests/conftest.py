"""What the whole suite needs before anything else is imported."""

import os
import signal

import pytest

collect_ignore = ["typed_program.py"]  # a program with mistakes, for a type checker alone

# Eight host devices: JAX reads the flag when it is first imported.
FLAG = "--xla_force_host_platform_device_count"
if FLAG not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}=8".strip()

# A shell's background jobs, and whatever they start, ignore Ctrl-C; the tests of Ctrl-C need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config):
    """Compiles each program once, for all workers and the next run: that is most of the time."""
    if hasattr(config, "cache"):  # not with -p no:cacheprovider
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.fixture
def compiled_quickly(monkeypatch):
    """For large programs that run for moments: optimizing them would take most of the time."""
    import jax  # after the flag above

    name = "jax_disable_most_optimizations"
    before = jax.config.read(name)
    monkeypatch.setenv(name.upper(), "1")  # for processes that the test starts
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)
