"""The strategy "python": an ordinary function per cell, with everything else as in the others."""

import os
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep.conftest import make_logistic

from mu2_optax.sweep import SweepInterrupted, sweep

RATES = [0.5, 1.0, 2.0]


def recorder(act=lambda rate, seed: None):
    """An ordinary function that notes its calls; ``act`` may raise, or send a signal."""
    calls = []

    def train(learning_rate, key):
        seed = int(jax.random.key_data(key)[-1])
        calls.append((learning_rate, seed))
        act(learning_rate, seed)
        return {"loss": learning_rate * (seed + 1), "curve": np.arange(3) * learning_rate}

    return train, calls


def python(train, rates=RATES, seeds=2, **options):
    return sweep(train, rates, seeds, strategy="python", progress=False, **options)


def test_it_equals_the_compiled_strategies_with_one_compiled_step(compiles):
    compiled = jax.jit(make_logistic())
    expected = sweep(make_logistic(), RATES, 2, strategy="loop", progress=False)
    train = lambda learning_rate, key: compiled(np.float32(learning_rate), key)
    python(train, [3.0], 1)  # the one compile, the caller's
    compiles.clear()
    result = python(train)
    assert compiles == []
    for name, value in expected.metrics.items():
        # Float32: the same sums, once with the data as constants of the program.
        np.testing.assert_allclose(result.metrics[name], value, rtol=1e-5)
        assert result.metrics[name].dtype == value.dtype
    assert result.info["strategy"] == "python"


def test_train_gets_python_floats_and_a_concrete_key_in_this_thread():
    seen = []

    def train(learning_rate, key):
        seen.append((type(learning_rate), threading.current_thread()))
        np.testing.assert_array_equal(jax.random.bits(key), jax.random.bits(jax.random.key(7)))
        return {"loss": 1.0}

    python(train, [0.1], [7])
    assert seen == [(float, threading.current_thread())]


def test_whole_seeds_become_complete_first():
    train, calls = recorder()
    result = python(train, seeds=[4, 1])
    assert calls == [(rate, seed) for seed in (4, 1) for rate in RATES]
    assert result.metrics["loss"].tolist() == [[2.5, 1.0], [5.0, 2.0], [10.0, 4.0]]
    assert result.metrics["loss"].dtype == np.float64
    assert result.metrics["curve"].shape == (3, 2, 3)


def test_named_axes_are_passed_by_keyword():
    train = lambda key, beta, learning_rate: {"z": 100 * learning_rate + beta}
    result = python(train, {"learning_rate": [1, 2], "beta": [0.0, 10.0]}, 1)
    assert result.metrics["z"][..., 0].tolist() == [[100, 110], [200, 210]]


def test_auto_never_chooses_it():
    """What only an ordinary function can do is an error there, not a silent fallback."""
    with pytest.raises(jax.errors.ConcretizationTypeError):
        sweep(lambda learning_rate, key: {"loss": float(learning_rate)}, [1.0], 1, progress=False)


def fail_at(bad):
    def act(rate, seed):
        if rate == bad:
            raise ValueError(f"no luck at {rate:g}")

    return act


@pytest.mark.parametrize("bad", RATES)
def test_a_cell_that_raises_does_not_take_the_others_with_it(bad, tmp_path):
    train, calls = recorder(fail_at(bad))
    with pytest.warns(UserWarning, match="no luck"):
        result = python(train, resume=tmp_path / "j.jsonl")
    at = RATES.index(bad)
    assert set(result.errors) == {(at, 0), (at, 1)}
    assert result.errors[at, 0] == f"ValueError: no luck at {bad:g}"
    assert np.isnan(result.metrics["loss"][at]).all()
    assert np.isfinite(np.delete(result.metrics["loss"], at, axis=0)).all()
    calls.clear()
    with pytest.warns(UserWarning, match="no luck") as warned:
        again = python(train, resume=tmp_path / "j.jsonl")
    assert f"run again, 2 of them; learning_rate={bad:g}, seed=0: " in str(warned[0].message)
    assert calls == [(bad, 0), (bad, 1)]
    assert again.errors == result.errors
    for name, value in result.metrics.items():
        np.testing.assert_array_equal(again.metrics[name], value)
        assert again.metrics[name].dtype == value.dtype


def test_if_every_cell_raises_that_is_an_error():
    train, _ = recorder(fail_at(1.0))
    with pytest.warns(UserWarning, match="failed"), pytest.raises(ValueError, match="no luck"):
        python(train, [1.0])


def interrupt_at(rate, times=1):
    def act(learning_rate, seed):
        for _ in range(times if learning_rate == rate else 0):
            os.kill(os.getpid(), signal.SIGINT)

    return act


def test_ctrl_c_lets_the_running_cell_finish_and_resume_goes_on(tmp_path):
    train, calls = recorder(interrupt_at(1.0))
    with pytest.raises(SweepInterrupted) as caught:
        python(train, resume=tmp_path / "j.jsonl")
    result = caught.value.result
    assert result.finished.tolist() == [[True, False], [True, False], [False, False]]
    assert result.metrics["loss"][:2, 0].tolist() == [0.5, 1.0]
    train, calls = recorder()
    result = python(train, resume=tmp_path / "j.jsonl")
    assert calls == [(2.0, 0), (0.5, 1), (1.0, 1), (2.0, 1)]
    assert result.finished.all()


def test_a_second_ctrl_c_stops_the_running_cell():
    train, _ = recorder(interrupt_at(1.0, times=2))
    with pytest.raises(SweepInterrupted) as caught:
        python(train)
    assert caught.value.result.finished.sum() == 1


@pytest.mark.parametrize("strategy", ["python", "loop", "vmap"])
def test_without_time_nothing_starts_and_resume_goes_on(strategy, tmp_path):
    train = lambda learning_rate, key: {"loss": learning_rate}
    options = {"strategy": strategy, "progress": False, "resume": tmp_path / "j.jsonl"}
    assert sweep(train, RATES, 1, **options, minutes=1e-9).finished.sum() == 0
    result = sweep(train, RATES, 1, **options, minutes=60)
    assert result.finished.all()
    assert result.metrics["loss"][:, 0].tolist() == RATES


def test_the_cell_that_uses_up_the_budget_still_counts(use_clock):
    train, calls = recorder()
    use_clock(lambda: 61.0 * len(calls))
    result = python(train, minutes=1)
    assert len(calls) == 1
    assert result.finished.tolist() == [[True, False], [False, False], [False, False]]
    assert np.isnan(result.metrics["loss"][1:]).all()
    assert result.errors == {}


def changing(first, later):
    """A function whose metrics change after the first cell."""
    answers = iter([first])
    return lambda learning_rate, key: next(answers, later)


@pytest.mark.parametrize(
    ("first", "later", "match"),
    [
        ({"a": 1.0}, {"b": 1.0}, r"same metrics in every cell: \['b'\] at learning_rate=1, seed=0"),
        ({"a": np.zeros(2)}, {"a": np.zeros(3)}, r"'a' must have one shape.*float64\(3,\)"),
        ({"a": 1}, {"a": 0.5}, "one shape and kind"),
        ({"a": 1.0}, {"a": "x"}, "real numbers"),
        ({"a": 1.0}, None, "return a dict of metrics"),
        ({"a": 1.0}, {"a": {"b": 1.0}}, "flat dict"),
    ],
)
def test_metrics_that_change_from_cell_to_cell_are_an_error(first, later, match, tmp_path):
    path = tmp_path / "j.jsonl"
    with pytest.raises(TypeError, match=match):
        python(changing(first, later), resume=path)
    assert len(path.read_text().splitlines()) == 3  # which sweep, its metrics, the first cell


def test_numbers_of_one_kind_take_the_first_cells_precision():
    result = python(changing({"a": np.float32(1)}, {"a": float("nan")}))
    assert result.metrics["a"].dtype == np.float32
    result = python(lambda learning_rate, key: {"a": jnp.bfloat16(0.5), "n": 3})
    assert result.metrics["a"].dtype == np.float32
    assert result.metrics["n"].dtype == np.int64


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"chunk_size": 2}, "`chunk_size` and `devices` do not apply to strategy 'python'"),
        ({"devices": jax.devices()}, "`chunk_size` and `devices` do not apply"),
        ({"minutes": 0}, "`minutes` must be positive or None, got 0"),
    ],
)
def test_options_that_do_not_apply_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        python(recorder()[0], **options)


@pytest.mark.parametrize("strategy", ["python", "vmap", "loop"])
def test_metrics_keep_their_order(strategy, tmp_path):
    train = lambda learning_rate, key: {"loss": 2 * learning_rate, "acc": 1 * learning_rate}
    for _ in range(2):  # also when they are read from a journal
        result = sweep(
            train, RATES, 1, strategy=strategy, progress=False, resume=tmp_path / "j.jsonl"
        )
        assert list(result.metrics) == ["loss", "acc"]
