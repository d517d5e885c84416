"""The files of a sweep on a full disk, and after damage; `benchmarks.faults` has many more."""

import contextlib
import json
import resource

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mu2_optax.sweep import load_results, save_results, sweep
from mu2_optax.sweep._command.cli import main

RATES = [0.5, 1.0, 2.0]


def train(learning_rate, key):
    return {"loss": learning_rate * jax.random.uniform(key, (3,))}


def run(path):
    return sweep(train, RATES, 2, strategy="loop", progress=False, resume=path)


@contextlib.contextmanager
def files_no_larger_than(size):
    """As on a full disk, a write stops somewhere in the middle, and then there is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    compiled = "jax_persistent_cache_min_compile_time_secs"  # JAX has no room for programs either
    least = getattr(jax.config, compiled)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    jax.config.update(compiled, 1e9)
    try:
        yield
    finally:
        jax.config.update(compiled, least)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A journal, and what its sweep gave."""
    path = tmp_path_factory.mktemp("whole") / "j.jsonl"
    return path, run(path).metrics["loss"]


def test_a_journal_without_room_is_an_error_that_names_it_and_goes_on_later(tmp_path, whole):
    lines = whole[0].read_text().splitlines(keepends=True)
    room = len(lines[0]) + len(lines[1]) + len(lines[2]) // 2
    path = tmp_path / "j.jsonl"
    with files_no_larger_than(room), pytest.raises(OSError, match=r"too large: .*j\.jsonl"):
        run(path)
    header, cell = path.read_text().splitlines(keepends=True)  # and no half of the next
    assert header == lines[0]
    assert cell in lines[1:]
    np.testing.assert_array_equal(run(path).metrics["loss"], whole[1])


def test_a_journal_without_room_for_its_first_line_stays_empty(tmp_path):
    path = tmp_path / "j.jsonl"
    with files_no_larger_than(20), pytest.raises(OSError, match=r"j\.jsonl"):
        run(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("name", ["r.json", "r.csv"])
def test_results_without_room_leave_the_old_ones(tmp_path, name):
    path = tmp_path / name
    make = lambda rates: sweep(train, rates, 2, progress=False)
    old = make(RATES)
    save_results(old, path)
    with files_no_larger_than(path.stat().st_size), pytest.raises(OSError, match=name):
        save_results(make(np.linspace(1, 2, 50)), path)
    np.testing.assert_array_equal(load_results(path)[""].metrics["loss"], old.metrics["loss"])
    assert {file.name for file in tmp_path.iterdir()} <= {name, f"{name}.sha256"}


TASK = """
def by_rate(learning_rate, key):
    return {"loss": (1 - learning_rate) ** 2}
"""


def test_the_command_says_which_file_had_no_room(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "task_without_room.py").write_text(TASK)
    with files_no_larger_than(300):
        status = main(["task_without_room:by_rate", "--lrs", "1,2", "--seeds", "1", "--out", "run"])
    assert status == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert "run/journal/by_rate.jsonl'; finished cells are kept in the journal" in last


def flipped(path, place, bit):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def test_a_flipped_bit_in_a_journal_costs_its_cell_alone(tmp_path, whole):
    content = whole[0].read_bytes()
    first, second = content.find(b"\n"), content.find(b"\n", content.find(b"\n") + 1)
    path = tmp_path / "j.jsonl"
    for place in range(first + 1, second, 31):
        path.write_bytes(content)
        flipped(path, place, place % 8)
        with pytest.warns(UserWarning, match=r"j\.jsonl: damaged lines are left out: 2(, 3)?;"):
            again = run(path)
        np.testing.assert_array_equal(again.metrics["loss"], whole[1])


def test_a_flipped_bit_in_the_first_line_is_refused(tmp_path, whole):
    path = tmp_path / "j.jsonl"
    for place in range(0, whole[0].read_bytes().find(b"\n"), 23):
        path.write_bytes(whole[0].read_bytes())
        flipped(path, place, place % 7)
        with pytest.raises(ValueError, match=r"j\.jsonl is not the journal of a sweep, or its"):
            run(path)


def test_without_the_line_that_tells_the_metrics_their_cells_run_again(tmp_path):
    path = tmp_path / "j.jsonl"
    ordinary = lambda learning_rate, key: {"loss": 2 * learning_rate}
    run = lambda: sweep(ordinary, RATES, 1, strategy="python", progress=False, resume=path)
    run()
    assert "metrics" in json.loads(path.read_text().splitlines()[1])
    flipped(path, path.read_bytes().find(b"\n") + 5, 0)
    with pytest.warns(UserWarning, match="damaged lines are left out: 2, 3, 4, 5;"):
        again = run()
    np.testing.assert_array_equal(again.metrics["loss"][:, 0], 2 * np.array(RATES))


@pytest.mark.parametrize("name", ["r.json", "r.csv"])
def test_a_flipped_bit_or_a_cut_in_results_is_refused(tmp_path, name):
    path = tmp_path / name
    save_results({"sgd": sweep(train, RATES, 2, progress=False)}, path)
    content = path.read_bytes()
    for place in range(0, len(content), len(content) // 40):
        for damaged in ("flipped", "cut"):
            path.write_bytes(content[:place] if damaged == "cut" else content)
            if damaged == "flipped":
                flipped(path, place, place % 8)
            with pytest.raises(ValueError, match=rf"{name} is not (a result|what was written)"):
                load_results(path)


def test_a_table_that_was_changed_on_purpose_is_read_without_its_checksum(tmp_path):
    path = tmp_path / "r.csv"
    result = sweep(lambda learning_rate, key: {"loss": jnp.sqrt(learning_rate)}, [1.0, 4.0], 1)
    save_results(result, path)
    path.write_text(path.read_text().replace("4.0,", "9.0,"))
    with pytest.raises(
        ValueError, match=r"r\.csv is not what was written: .*delete r\.csv\.sha256"
    ):
        load_results(path)
    (tmp_path / "r.csv.sha256").unlink()
    assert load_results(path)[""].learning_rates.tolist() == [1.0, 9.0]
