import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep.conftest import environment

from mu2_optax.sweep import sweep


def counted(fails=lambda rate: False):
    """A run that notes its calls on the host."""
    calls = []

    def host(rate, bits):
        calls.append(float(rate))
        if fails(rate):
            raise ValueError("no luck")
        return np.float32(np.inf if rate > 3 else rate / 3)

    def train(learning_rate, key):
        out = jax.ShapeDtypeStruct((), jnp.float32)
        loss = jax.pure_callback(host, out, learning_rate, jax.random.bits(key))
        return {"loss": loss, "curve": jnp.stack([loss, 2 * loss])}

    return train, calls


RATES = [1.0, 2.0, 4.0]


def cut(path, lines, tail=""):
    """Leaves the first lines of a journal, and perhaps a piece of one more."""
    kept = path.read_text().splitlines(keepends=True)[:lines]
    path.write_text("".join(kept) + tail)


def test_resuming_runs_only_what_is_missing_and_gives_the_same_result(tmp_path):
    path = tmp_path / "runs" / "j.jsonl"
    train, _ = counted()
    whole = sweep(train, RATES, 2, strategy="loop", progress=False, resume=path)
    cut(path, 1 + 4, '{"cell": [0,')  # the header, 4 cells, and a line cut off by a kill
    train, calls = counted()
    with pytest.warns(UserWarning, match="j.jsonl: its last line was cut off and is dropped"):
        again = sweep(train, RATES, 2, strategy="loop", progress=False, resume=path)
    assert len(calls) == 2
    for name in whole.metrics:
        np.testing.assert_array_equal(again.metrics[name], whole.metrics[name])
        assert again.metrics[name].dtype == whole.metrics[name].dtype
    train, calls = counted()
    sweep(train, RATES, 2, strategy="loop", progress=False, resume=path)
    assert calls == []


def test_two_processes_that_began_at_the_same_time_leave_one_journal(tmp_path):
    path, other = tmp_path / "j.jsonl", tmp_path / "other.jsonl"
    train = lambda learning_rate, key: {"loss": 2 * learning_rate}
    run = lambda path, **more: sweep(
        train, RATES, 2, strategy="python", progress=False, resume=path, **more
    )
    run(path)
    whole = path.read_text()
    path.write_text(whole + whole)  # each found no file, wrote a header and ran every cell
    np.testing.assert_array_equal(run(path).metrics["loss"], 2 * np.repeat(RATES, 2).reshape(3, 2))
    run(other, label="another")
    path.write_text(whole + other.read_text())
    with pytest.raises(ValueError, match="belongs to another sweep: its label is another"):
        run(path)


@pytest.mark.parametrize("strategy", ["loop", "python"])
def test_a_cell_that_failed_runs_again_and_that_is_said(tmp_path, strategy):
    path = tmp_path / "j.jsonl"
    run = lambda train: sweep(train, RATES, 1, strategy=strategy, progress=False, resume=path)
    train, _ = counted(lambda rate: rate == 2)
    with pytest.warns(UserWarning, match="no luck"):
        first = run(train)
    assert list(first.errors) == [(1, 0)]
    train, calls = counted()
    with pytest.warns(UserWarning, match="run again, 1 of them; learning_rate=2, seed=0: "):
        again = run(train)
    assert calls == [2.0]
    assert again.errors == {}
    assert again.metrics["loss"][1, 0] == np.float32(2 / 3)
    train, calls = counted()
    run(train)  # and there is nothing more to say
    assert calls == []


def test_a_cell_that_failed_before_keeps_its_error_until_it_has_run(tmp_path):
    path = tmp_path / "j.jsonl"
    run = lambda train, **more: sweep(
        train, RATES, 1, strategy="python", progress=False, resume=path, **more
    )

    def train(learning_rate, key):
        if learning_rate == 2:
            raise ValueError("no luck")
        return {"count": 1}

    with pytest.warns(UserWarning, match="no luck"):
        first = run(train)
    with pytest.warns(UserWarning, match="run again"):
        again = run(train, minutes=1e-9)
    assert again.errors == first.errors
    np.testing.assert_array_equal(again.metrics["count"], [[1], [np.nan], [1]])


@pytest.mark.parametrize("strategy", ["vmap", "python"])
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("jax_threefry_partitionable", False),
        ("jax_default_matmul_precision", "highest"),
        ("jax_random_seed_offset", 1),
        ("jax_default_prng_impl", "rbg"),
    ],
)
def test_a_journal_of_other_settings_of_jax_is_refused(tmp_path, strategy, setting, value):
    path = tmp_path / "j.jsonl"
    train = lambda learning_rate, key: {"loss": learning_rate + jnp.ones(3) @ jnp.ones(3)}
    run = lambda: sweep(train, RATES, 1, strategy=strategy, progress=False, resume=path)
    run()
    before = getattr(jax.config, setting)
    jax.config.update(setting, value)
    try:
        with pytest.raises(ValueError, match=f"other settings.*{setting} was {before} and is"):
            run()
    finally:
        jax.config.update(setting, before)
    run()


def test_vmapped_calls_are_resumed_too(tmp_path):
    path = tmp_path / "j.jsonl"
    traces = []

    def train(learning_rate, key):
        traces.append(1)
        return {"loss": learning_rate * jax.random.uniform(key)}

    options = {"strategy": "vmap", "chunk_size": 3, "progress": False, "resume": path}
    whole = sweep(train, RATES, 3, **options)
    cut(path, 1 + 3)
    again = sweep(train, RATES, 3, **options)
    np.testing.assert_array_equal(again.metrics["loss"], whole.metrics["loss"])
    assert len(path.read_text().splitlines()) == 1 + 9


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"learning_rates": {"learning_rate": RATES, "beta": [0.5]}}, "axes"),
        ({"label": "adam"}, "label"),
        ({"context": {"task": "mnist"}}, "context"),
        ({"train": lambda learning_rate, key: {"error_rate": learning_rate}}, "metrics"),
    ],
)
def test_a_journal_of_another_sweep_is_refused(tmp_path, change, what):
    path = tmp_path / "j.jsonl"
    arguments = {
        "train": lambda learning_rate, key, **axes: {"loss": learning_rate},
        "learning_rates": RATES,
        "seeds": 2,
        "label": "sgd",
        "context": {"task": "digits"},
    }
    sweep(**arguments, progress=False, resume=path)
    before = path.read_text()
    with pytest.raises(ValueError, match=f"belongs to another sweep: its {what} is"):
        sweep(**(arguments | change), progress=False, resume=path)
    assert path.read_text() == before


def test_a_journal_with_a_cell_outside_of_the_grid_is_refused(tmp_path):
    path = tmp_path / "j.jsonl"
    train = lambda learning_rate, key: {"loss": learning_rate}
    sweep(train, RATES, 2, progress=False, resume=path)
    before = path.read_text()
    for rates, seeds, cell in (
        ([1.0, 3.0], 2, "learning_rate=[24], seed=[01]"),
        (RATES, 1, "seed=1"),
    ):
        with pytest.raises(ValueError, match=f"has the cell .*{cell}, which is not in this grid"):
            sweep(train, rates, seeds, progress=False, resume=path)
    assert path.read_text() == before


@pytest.mark.parametrize("strategy", ["loop", "python"])
def test_rates_and_seeds_can_be_added_and_only_they_run(tmp_path, strategy):
    options = {"strategy": strategy, "progress": False}
    train, _ = counted()
    whole = sweep(train, [0.5, 1.0, 2.0, 3.5, 4.0], [3, 0, 1], **options)
    options["resume"] = tmp_path / "j.jsonl"
    sweep(train, RATES, [0], **options)
    train, calls = counted()
    sweep(train, [4.0, 0.5, 1.0, 2.0], [0], **options)
    assert calls == [0.5]
    train, calls = counted()
    added = sweep(train, [0.5, 1.0, 2.0, 3.5, 4.0], [3, 0, 1], **options)
    assert len(calls) == 15 - 4
    for name in whole.metrics:
        assert added.metrics[name].tobytes() == whole.metrics[name].tobytes()
    train, calls = counted()
    sweep(train, [0.5, 1.0, 2.0, 3.5, 4.0], [0, 1, 3], **options)
    assert calls == []


def test_calls_of_several_cells_keep_the_recorded_ones_when_rates_are_added(tmp_path):
    path = tmp_path / "j.jsonl"
    train = lambda learning_rate, key: {"loss": learning_rate * jax.random.key_data(key)[1]}
    options = {"strategy": "vmap", "progress": False}
    sweep(train, [2.0, 4.0], 3, resume=path, **options)
    added = sweep(train, [1.0, 2.0, 4.0], 3, resume=path, **options)
    whole = sweep(train, [1.0, 2.0, 4.0], 3, **options)
    np.testing.assert_array_equal(added.metrics["loss"], whole.metrics["loss"])
    cells = [json.loads(line)["cell"] for line in path.read_text().splitlines()[1:]]
    assert cells[:2] == [[2.0, 0], [4.0, 0]]
    assert cells[6:] == [[1.0, 0], [1.0, 1], [1.0, 2]]


data = np.arange(4.0, dtype=np.float32)
scaled = lambda factor, array: (
    lambda learning_rate, key: {
        "loss": factor * learning_rate * jax.jit(lambda x: (x * jnp.asarray(array)).sum())(data)
    }
)


@pytest.mark.parametrize(
    "edited",
    [
        pytest.param(scaled(3.0, data), id="a number"),
        pytest.param(scaled(2.0, data + 1), id="an array in a function inside"),
        pytest.param(lambda learning_rate, key: {"loss": learning_rate}, id="the code"),
    ],
)
def test_a_journal_of_the_function_before_it_was_edited_is_refused(tmp_path, edited):
    path = tmp_path / "j.jsonl"
    sweep(scaled(2.0, data), RATES, 2, progress=False, resume=path)
    sweep(scaled(2.0, data), RATES, 2, progress=False, resume=path, strategy="map")  # the same
    before = path.read_text()
    with pytest.raises(ValueError, match="was recorded by another program: `train`, an array"):
        sweep(edited, RATES, 2, progress=False, resume=path)
    assert path.read_text() == before


@pytest.mark.slow
def test_the_same_function_is_known_again_in_another_process(tmp_path):
    from sweep.conftest import make_cnn

    script = (
        "from sweep.conftest import make_cnn\n"
        "from mu2_optax.sweep import sweep\n"
        "sweep(make_cnn(), [0.1], 1, progress=False, resume='j.jsonl')\n"
    )
    environ = environment()
    environ["PYTHONPATH"] += ":" + str(pathlib.Path(__file__).parents[2])
    for hash_seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            timeout=300,
        )
    sweep(make_cnn(), [0.1], 1, progress=False, resume=tmp_path / "j.jsonl")
    assert len((tmp_path / "j.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    "content", ["hello\n", "[1]\n", '{"format": "x"}\n', "hello", "hello\nand more"]
)
def test_a_file_that_is_no_journal_is_refused(tmp_path, content):
    path = tmp_path / "j.jsonl"
    path.write_text(content)
    train, _ = counted()
    with pytest.raises(ValueError, match="is not the journal of a sweep"):
        sweep(train, RATES, 1, progress=False, resume=path)
    assert path.read_text() == content
