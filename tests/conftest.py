"""What the whole suite needs before anything else is imported."""

import gc
import importlib.metadata
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


# XLA's older way to generate code for CPUs compiles a step three times as fast, and one piece of
# code takes a third less than the 32 that it is split into for other cores, which other workers
# need. From 0.11 on there is no older way, and XLA ends a process that names a flag which it does
# not have.
QUICK = ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
HAS_QUICK = tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 11)


def pytest_configure(config):
    """Compiles each program once, for all workers and the next run: that is most of the time.

    Slow tests, which run by themselves, run the code that users run.
    """
    if config.option.markexpr == "not slow":
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # also while collecting
        if HAS_QUICK and QUICK[0] not in os.environ["XLA_FLAGS"]:
            os.environ["XLA_FLAGS"] += " " + " ".join(QUICK)
    if hasattr(config, "cache"):  # not with -p no:cacheprovider
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("jax")))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Spares the collector of garbage all that is imported, which stays until the end."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.fixture(autouse=True)
def quick_unless_slow(request):
    """Most tests run a program for moments; slow ones ask for ``compiled_quickly`` themselves."""
    if request.node.get_closest_marker("slow") is None:
        request.getfixturevalue("compiled_quickly")


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
