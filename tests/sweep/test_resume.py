"""Going on after a kill, damage or a larger grid: what runs again, and with which bits."""

import functools
import os
import pathlib
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep.conftest import PATIENCE, environment, make_logistic

from mu2_optax.sweep import sweep

RATES = [0.5, 1.0, 2.0]
quietly = functools.partial(sweep, progress=False)


def counted():
    """A run that notes on the host which cells are computed."""
    calls = []

    def host(rate, seed):
        calls.append((float(rate), int(seed)))
        return np.float32(np.inf if rate == 1 else rate / 3 + seed)

    def train(learning_rate, key):
        out, seed = jax.ShapeDtypeStruct((), jnp.float32), jax.random.key_data(key)[-1]
        if isinstance(learning_rate, jax.core.Tracer):
            loss = jax.pure_callback(host, out, learning_rate, seed, vmap_method="sequential")
        else:
            loss = jnp.asarray(host(learning_rate, seed))
        return {"loss": loss, "curve": jnp.stack([loss, 2 * loss])}

    return train, calls


def assert_same_bits(result, expected):
    assert list(result.metrics) == list(expected.metrics)
    for name, array in expected.metrics.items():
        assert result.metrics[name].dtype == array.dtype
        assert result.metrics[name].tobytes() == array.tobytes()
    np.testing.assert_array_equal(result.finished, expected.finished)


WAYS = [{"strategy": "loop"}, {"strategy": "python"}, {"chunk_size": 2}, {}]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_resume_runs_only_what_is_missing_and_gives_the_same_bits(tmp_path, options):
    folder = tmp_path / "new" / "run"
    train, calls = counted()
    whole = quietly(train, RATES, 2, resume=folder, **options)
    computed = len(set(calls))
    assert computed == 6
    files = sorted(folder.iterdir())
    assert len(files) == (1 if not options else 4 if "chunk_size" in options else 6)
    calls.clear()
    assert_same_bits(quietly(train, RATES, 2, resume=folder, **options), whole)
    assert calls == []
    files[0].unlink()  # as if killed before it was written
    assert_same_bits(quietly(train, RATES, 2, resume=folder, **options), whole)
    assert 0 < len(set(calls)) <= -(-6 // len(files)) + 1
    assert sorted(folder.iterdir()) == files


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_resume_adds_rates_and_seeds_and_runs_only_those(tmp_path, options):
    train, calls = counted()
    whole = quietly(train, [0.25, 0.5, 1.0, 2.0], [3, 0, 1], **options)
    quietly(train, [2.0, 0.5], [0, 1], resume=tmp_path, **options)
    calls.clear()
    added = quietly(train, [0.25, 0.5, 1.0, 2.0], [3, 0, 1], resume=tmp_path, **options)
    assert not {(rate, seed) for rate in (2.0, 0.5) for seed in (0, 1)} & set(calls)
    assert len(set(calls)) == 12 - 4
    assert_same_bits(added, whole)
    calls.clear()
    part = quietly(train, [1.0], [3], resume=tmp_path, **options)  # the others stay in the folder
    assert calls == []
    assert part.metrics["curve"].tobytes() == whole.metrics["curve"][2, 0].tobytes()


@pytest.mark.parametrize("damage", ["cut off", "empty", "one bit"])
def test_resume_runs_a_damaged_block_again_and_says_so(tmp_path, damage):
    train, calls = counted()
    whole = quietly(train, RATES, 2, strategy="loop", resume=tmp_path)
    file = sorted(tmp_path.iterdir())[1]
    content = bytearray(file.read_bytes())
    if damage == "one bit":
        with np.load(file) as arrays:
            content[content.index(arrays["metrics/curve"].tobytes())] ^= 1
    file.write_bytes({"cut off": content[:-30], "empty": b"", "one bit": content}[damage])
    calls.clear()
    with pytest.warns(UserWarning, match=rf"{file.name} is damaged \(.*; its cells run again"):
        again = quietly(train, RATES, 2, strategy="loop", resume=tmp_path)
    assert len(calls) == 1
    assert_same_bits(again, whole)
    quietly(train, RATES, 2, strategy="loop", resume=tmp_path)  # it has been replaced
    assert len(calls) == 1


def test_resume_runs_failed_cells_again(tmp_path):
    train, calls = counted()
    bad = [2.0]

    def fails_first(learning_rate, key):
        metrics = train(learning_rate, key)
        return metrics if learning_rate not in bad else 1 / 0

    run = functools.partial(quietly, fails_first, RATES, 1, strategy="python", resume=tmp_path)
    with pytest.warns(UserWarning, match="learning_rate=2, seed=0 failed: ZeroDivisionError"):
        assert list(run().errors) == [(2, 0)]
    bad.clear()
    calls.clear()
    again = run()
    assert calls == [(2.0, 0)]
    assert again.errors == {}
    assert again.metrics["loss"][2, 0] == np.float32(2 / 3)


data = np.arange(4.0, dtype=np.float32)
scaled = lambda factor, array: (
    lambda learning_rate, key, **axes: {
        "loss": factor * learning_rate * jax.jit(lambda x: (x * jnp.asarray(array)).sum())(data)
    }
)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"learning_rates": {"learning_rate": RATES, "beta": [0.5]}}, "its axes is"),
        ({"label": "adam"}, "its label is 'sgd', here it is 'adam'"),
        ({"context": {"task": "mnist"}}, "its context is"),
        ({"train": lambda learning_rate, key: {"error_rate": learning_rate}}, "its metrics is"),
        ({"train": scaled(3.0, data)}, "`train`, or an array that it closes over"),
        ({"train": scaled(2.0, data + 1)}, "`train`, or an array that it closes over"),
        ({"strategy": "python"}, "`train`, or an array that it closes over"),
    ],
)
def test_resume_refuses_the_folder_of_another_sweep(tmp_path, change, match):
    arguments = {
        "train": scaled(2.0, data),
        "learning_rates": RATES,
        "seeds": 2,
        "label": "sgd",
        "context": {"task": "digits"},
        "resume": tmp_path,
    }
    quietly(**arguments)
    quietly(**arguments | {"train": scaled(2.0, data), "strategy": "loop"})  # the same
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(ValueError, match=rf"belongs to another sweep: {match}.*another folder"):
        quietly(**(arguments | change))
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("strategy", ["vmap", "python"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [("jax_threefry_partitionable", False), ("jax_default_matmul_precision", "highest")],
)
def test_resume_refuses_what_other_settings_have_computed(tmp_path, strategy, setting, value):
    run = lambda: quietly(scaled(2.0, data), RATES, 1, strategy=strategy, resume=tmp_path)
    run()
    before = getattr(jax.config, setting)
    jax.config.update(setting, value)
    try:
        with pytest.raises(ValueError, match=f"its {setting} is {before!r}, here it is {value!r}"):
            run()
    finally:
        jax.config.update(setting, before)
    run()


KILLED = """
import sys, time
from sweep.conftest import make_logistic
from mu2_optax.sweep import sweep
train = make_logistic()
if sys.argv[1:] == ["slow"]:
    from mu2_optax.sweep import _resume
    write = _resume.write_npz
    _resume.write_npz = lambda *a: (write(*a), time.sleep(0.2))
sweep(train, [0.01, 0.1, 0.3, 1.0], 5, chunk_size=2, progress=False, resume="run")
"""


@pytest.mark.slow
def test_resume_after_kill_9_gives_the_same_bits_in_another_process(tmp_path):
    environ = environment()
    environ["PYTHONPATH"] += os.pathsep + str(pathlib.Path(__file__).parents[1])
    command = [sys.executable, "-c", KILLED]
    process = subprocess.Popen(
        [*command, "slow"], cwd=tmp_path, env=environ | {"PYTHONHASHSEED": "1"}
    )
    deadline = time.monotonic() + PATIENCE
    while len(list(tmp_path.glob("run/*.npz"))) < 4:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("run/*.npz")}
    assert len(before) < 10
    subprocess.run(
        command, cwd=tmp_path, env=environ | {"PYTHONHASHSEED": "2"}, check=True, timeout=PATIENCE
    )
    assert len(list(tmp_path.glob("run/*.npz"))) == 10
    assert {file: file.stat().st_mtime_ns for file in before} == before  # not run again
    train, options = make_logistic(), {"chunk_size": 2}
    resumed = quietly(train, [0.01, 0.1, 0.3, 1.0], 5, resume=tmp_path / "run", **options)
    assert_same_bits(resumed, quietly(train, [0.01, 0.1, 0.3, 1.0], 5, **options))
