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
