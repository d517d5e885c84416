import functools
import os
import platform
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep.conftest import make_cnn, make_logistic

from mu2_optax.sweep import SweepInterrupted, load_results, merge, save_results, sweep
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._run import layout
from mu2_optax.sweep._run.threads import on_threads, run_blocks
from mu2_optax.sweep._run.tracing import trace

RATES = [0.01, 0.1, 0.5, 1.0]
SEEDS = [3, 0, 11]
WAYS = {
    "auto": {},
    "vmap": {"strategy": "vmap"},
    "vmap in chunks of part of a seed": {"strategy": "vmap", "chunk_size": 3},
    "vmap in chunks of whole seeds": {"strategy": "vmap", "chunk_size": 9},
    "map": {"strategy": "map"},
    "map in chunks of part of a seed": {"strategy": "map", "chunk_size": 3},
    "map in chunks of whole seeds": {"strategy": "map", "chunk_size": 9},
    "loop": {"strategy": "loop"},
    "vmap on 8 devices": {"strategy": "vmap", "devices": 8},
    "map on 3 devices": {"strategy": "map", "devices": 3, "chunk_size": 2},
    "loop on 2 devices": {"strategy": "loop", "devices": 2},
}


def resolve(way):
    """The options, with a number of devices replaced by that many devices."""
    options = dict(WAYS[way])
    if "devices" in options:
        assert len(jax.devices()) >= options["devices"], "needs host devices: run from the root"
        options["devices"] = jax.devices()[: options["devices"]]
    return options


def separate(train, rates=RATES, seeds=SEEDS):
    """The cells run one after another through one compiled function."""
    one = jax.jit(train)
    rows = [[one(np.float32(rate), jax.random.key(seed)) for seed in seeds] for rate in rates]
    return {k: np.array([[cell[k] for cell in row] for row in rows]) for k in rows[0][0]}


@functools.cache
def expected_of(make):
    """The metrics of separate runs of a model."""
    return separate(make())


@pytest.mark.parametrize(
    ("make", "way"),
    [(make_logistic, way) for way in WAYS]
    + [
        pytest.param(make_cnn, way, marks=pytest.mark.slow) for way in ("vmap", "vmap on 8 devices")
    ],
)
def test_a_sweep_equals_separate_runs_after_one_trace_and_one_compile(make, way, compiles):
    expected = expected_of(make)
    traces = []
    train = make(traces)
    compiles.clear()
    result = sweep(train, RATES, SEEDS, progress=False, **resolve(way))
    assert len(traces) == 1
    assert len(compiles) == 1
    assert result.metrics.keys() == expected.keys()
    for name, value in expected.items():
        assert result.metrics[name].shape == value.shape
        # Float32: XLA fuses and orders the sums of a vmapped run otherwise than those of one run.
        np.testing.assert_allclose(result.metrics[name], value, rtol=1e-5)
    assert result.finished.all()


def test_auto_loops_over_convolutions_and_vmaps_the_rest_on_cpu(monkeypatch):
    monkeypatch.setattr(layout, "_calls_at_once", lambda: 2)
    assert sweep(make_cnn(), [0.1], 1, progress=False).info["strategy"] == "loop"
    result = sweep(ok, RATES, 2, progress=False)
    assert result.info["strategy"] == "vmap"
    assert result.info["block"] == [-(-len(RATES) // 2), 2]  # a call for each of two cores


@pytest.mark.parametrize(
    ("units", "in_loop", "strategy"),
    [(128, True, "loop"), (128, False, "vmap"), (64, True, "vmap"), (15, True, "vmap")],
)
def test_auto_loops_where_a_product_in_a_loop_keeps_a_core_busy(units, in_loop, strategy):
    batch = 64 * 128 // units  # as many multiplications in each case but that of 64 units
    images = jnp.ones((64 if units == 64 else batch, 784))

    def train(learning_rate, key):
        weights = learning_rate * jax.random.normal(key, (784, units))
        step = lambda weights, _: (weights + 1e-3 * (images.T @ (images @ weights)), None)
        if in_loop:
            weights, _ = jax.lax.scan(step, weights, None, length=2)
        else:
            weights, _ = step(weights, None)
        return {"loss": jnp.sum(weights)}

    assert sweep(train, [0.1, 0.2], 1, progress=False).info["strategy"] == strategy


@pytest.mark.parametrize("chunk_size", range(1, 20))
def test_chunks_have_at_most_chunk_size_cells(chunk_size):
    chosen = layout.choose_layout("vmap", chunk_size, None, make_grid(range(6), 3), False)
    assert chosen.points * chosen.seeds <= chunk_size


def test_batches_are_gathered_once_per_seed_not_once_per_rate():
    shapes = []

    def gather(rows):
        shapes.append(np.shape(rows))
        return np.asarray(rows, np.float32)

    def train(learning_rate, key):
        rows = jax.random.randint(key, (5,), 0, 100)
        out = jax.ShapeDtypeStruct((5,), jnp.float32)
        batch = jax.pure_callback(gather, out, rows, vmap_method="sequential")
        return {"loss": learning_rate * batch.sum()}

    sweep(train, RATES, 3, strategy="vmap", progress=False)
    assert len(shapes) == 3


def test_a_result_says_where_it_was_run():
    machine = sweep(ok, [1.0], 1, progress=False).info["machine"]
    assert machine["architecture"] == platform.machine()
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert machine["device"] == jax.devices()[0].device_kind
    assert machine["devices"] == 1
    machine = sweep(ok, [1.0, 2.0], 1, progress=False, devices=jax.devices()[:2]).info["machine"]
    assert machine["devices"] == 2


def test_named_axes_span_their_product_in_order():
    train = lambda key, beta, learning_rate: {"z": 100 * learning_rate + beta}
    grid = {"learning_rate": [1, 2], "beta": [0.0, 10.0, 20.0]}
    for strategy in ("vmap", "map", "loop"):
        result = sweep(train, grid, [5], strategy=strategy, progress=False)
        assert result.metrics["z"].shape == (2, 3, 1)
        assert result.metrics["z"][..., 0].tolist() == [[100, 110, 120], [200, 210, 220]]
        assert result.dims("z") == ("learning_rate", "beta", "seed")


def test_the_key_is_the_seeds_key():
    seeds = [0, 7, 2**31 + 5, 2**32 - 1]
    train = lambda learning_rate, key: {"bits": jax.random.bits(key)}
    result = sweep(train, [1.0], seeds, progress=False)
    # jax.random.key(seed) of a Python int, without overflow
    expected = [jax.random.bits(jax.random.key(np.uint32(seed))) for seed in seeds]
    assert result.metrics["bits"][0].tolist() == [int(bits) for bits in expected]


@pytest.mark.parametrize("strategy", ["vmap", "map", "loop"])
def test_divergence_is_kept_and_counted(strategy):
    def train(learning_rate, key):
        curve = jnp.array([1.0, learning_rate**40])
        return {"loss": jnp.log(1.0 - learning_rate), "curve": curve}

    result = sweep(train, [0.5, 1.0, 2.0, 1e3], 2, strategy=strategy, progress=False)
    loss = result.metrics["loss"][:, 0]
    assert np.isfinite(loss[0])
    assert loss[1] == -np.inf
    assert np.isnan(loss[2:]).all()
    assert result.diverged("loss").sum() == 6
    assert result.diverged("curve").any(axis=1).tolist() == [False, False, False, True]
    assert result.finished.all()


def failing_train(fails):
    """A run that raises on the host where ``fails`` says so, and counts its calls."""
    calls = []

    def host(learning_rate, bits):
        calls.append(float(learning_rate))
        if fails(learning_rate):
            raise ValueError(f"no luck at {learning_rate:g}")
        return np.float32(learning_rate)

    def train(learning_rate, key):
        out = jax.ShapeDtypeStruct((), jnp.float32)
        value = jax.pure_callback(host, out, learning_rate, jax.random.bits(key))
        return {"loss": value, "count": jnp.int32(1)}

    return train, calls


def test_a_cell_that_raises_does_not_take_the_others_with_it():
    train, _ = failing_train(lambda rate: rate > 1)
    with pytest.warns(UserWarning, match=r"learning_rate=2, seed=\d failed: .*no luck at 2"):
        result = sweep(train, [0.5, 1.0, 2.0], 2, strategy="loop", progress=False)
    assert result.metrics["loss"][:2].tolist() == [[0.5, 0.5], [1.0, 1.0]]
    assert np.isnan(result.metrics["loss"][2]).all()
    assert np.isnan(result.metrics["count"][2]).all()
    assert set(result.errors) == {(2, 0), (2, 1)}
    assert "no luck" in result.errors[2, 0]
    assert result.diverged().sum() == 2


def test_a_sweep_in_which_every_cell_raises_is_an_error():
    train, _ = failing_train(lambda rate: True)
    with pytest.warns(UserWarning, match="failed"), pytest.raises(Exception, match="no luck"):
        sweep(train, [0.5, 1.0], 1, strategy="loop", progress=False)


def test_out_of_memory_says_which_chunk_size_to_try():
    def host(x):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8000000000 bytes.")

    def train(learning_rate, key):
        out = jax.ShapeDtypeStruct((), jnp.float32)
        return {"x": jax.pure_callback(host, out, learning_rate, vmap_method="expand_dims")}

    with pytest.raises(MemoryError, match=r"18 cells side by side.*6 x 3.*chunk_size=9"):
        sweep(train, np.arange(1, 7), 3, strategy="vmap", progress=False)
    with pytest.raises(MemoryError, match="a single cell does not fit"):
        sweep(train, [1.0], 1, strategy="vmap", progress=False)


def test_ctrl_c_keeps_what_has_finished():
    started = threading.Event()

    def host(rate):
        if rate == 3.0 and not started.is_set():
            started.set()
            os.kill(os.getpid(), signal.SIGINT)
        return np.float32(rate)

    def train(learning_rate, key):
        out = jax.ShapeDtypeStruct((), jnp.float32)
        return {"loss": jax.pure_callback(host, out, learning_rate)}

    rates = np.arange(1.0, 40.0)
    with pytest.raises(SweepInterrupted) as caught:
        sweep(train, rates, 1, strategy="loop", progress=False)
    result = caught.value.result
    finished = result.finished[:, 0]
    assert finished[:2].all()
    assert not finished.all()
    assert (result.metrics["loss"][finished, 0] == rates[finished]).all()
    assert np.isnan(result.metrics["loss"][~finished]).all()
    assert result.diverged().sum() == 0  # what has not been run has not diverged


ON_TWO_THREADS = functools.partial(on_threads, lambda block: block, 2)


def interrupt_in_the_first_block(times):
    """What `run_blocks` yields when Ctrl-C comes while its first block is being recorded."""
    seen = []
    usual = signal.getsignal(signal.SIGINT)

    def record_all():
        for block, value, _ in run_blocks(ON_TWO_THREADS, range(10), 0):
            assert value == block
            seen.append(block)
            for _ in range(times if len(seen) == 1 else 0):
                os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        record_all()
    assert signal.getsignal(signal.SIGINT) is usual
    return sorted(seen)


def test_ctrl_c_between_two_cells_loses_none_that_is_running():
    assert interrupt_in_the_first_block(times=1) == [0, 1]


def test_a_second_ctrl_c_does_not_wait():
    assert len(interrupt_in_the_first_block(times=2)) == 1


def test_in_another_thread_a_sweep_leaves_the_signals_alone():
    usual = signal.getsignal(signal.SIGINT)
    with ThreadPoolExecutor() as pool:
        blocks = pool.submit(lambda: list(run_blocks(ON_TWO_THREADS, range(3), 0)))
    assert len(blocks.result()) == 3
    assert signal.getsignal(signal.SIGINT) is usual


@pytest.mark.parametrize("strategy", ["vmap", "map", "loop"])
def test_settings_of_jax_hold_in_the_threads_too(strategy):
    third = lambda learning_rate, key: {"x": learning_rate / 3}
    with jax.enable_x64(True):
        result = sweep(third, [1.0, 2.0], 2, strategy=strategy, progress=False)
    assert result.metrics["x"][:, 0].tolist() == [1 / 3, 2 / 3]  # in float64


def test_debug_nans_hold_in_the_threads_too():
    log = lambda learning_rate, key: {"x": jnp.log(1.0 - learning_rate)}
    with jax.debug_nans(True), pytest.warns(UserWarning, match="=2, seed=0 failed: FloatingPoint"):
        result = sweep(log, [0.5, 2.0], 1, strategy="loop", progress=False)
    assert "turn it off to have divergence as a result" in result.errors[1, 0]
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match="jax_debug_nans"):
        sweep(log, [0.5, 2.0], 1, strategy="vmap", progress=False)
    assert np.isnan(sweep(log, [2.0], 1, strategy="loop", progress=False).metrics["x"]).all()


def test_arrays_that_train_closes_over_are_not_compiled_in():
    big = jnp.arange(1_000_000, dtype=jnp.float32)
    result = sweep(lambda learning_rate, key: {"s": learning_rate * big[-1]}, [1.0], 1)
    assert result.metrics["s"].item() == 999_999
    traced = trace(lambda learning_rate, key: {"s": learning_rate * big[-1]}, make_grid([1.0], 1))
    assert [c.shape for c in traced.closed.consts] == [(1_000_000,)]


def test_a_narrow_float_metric_comes_back_as_float32():
    train = lambda learning_rate, key: {"x": learning_rate.astype(jnp.bfloat16)}
    assert sweep(train, [0.5], 1, progress=False).metrics["x"].dtype == np.float32


ok = lambda learning_rate, key: {"loss": learning_rate}


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sweep(ok, [], 1), ValueError, "at least one number"),
        (lambda: sweep(ok, ["a"], 1), TypeError, "must be numbers"),
        (lambda: sweep(ok, [-1.0], 1), ValueError, "must not be negative, got -1"),
        (lambda: sweep(ok, [np.nan], 1), ValueError, "must be finite"),
        (lambda: sweep(ok, [0.1, 0.1], 1), ValueError, r"must not repeat a value, got 0.1"),
        (lambda: sweep(ok, np.array([1j]), 1), TypeError, "must be numbers"),
        (lambda: sweep(ok, [0.1, 0.1 + 1e-12], 1), ValueError, "different numbers in float32"),
        (lambda: sweep(ok, [1e-60], 1), ValueError, "different numbers in float32.*got .1e-60"),
        (lambda: sweep(ok, [1e39], 1), ValueError, "different numbers in float32"),
        (lambda: sweep(ok, [1], 1, context={"n": np.int64(1)}), TypeError, "`context` must hold"),
        (
            lambda: sweep(ok, {}, 1),
            TypeError,
            r"called by keyword, train\(key\), but its signature",
        ),
        (lambda: sweep(ok, {"key": [1]}, 1), ValueError, "got 'key'"),
        (lambda: sweep(ok, {"beta": [1]}, 1), TypeError, r"train\(beta, key\).*learning_rate"),
        (lambda: sweep(ok, [True], 1), TypeError, r"must be numbers, got \[True\]"),
        (lambda: sweep(ok, "0.1", 1), TypeError, "must be numbers, got '0.1'"),
        (lambda: sweep(ok, [1], 0), ValueError, "`seeds` must be at least 1, got 0"),
        (lambda: sweep(ok, [1], 1.5), TypeError, "`seeds` must be integers, got 1.5"),
        (lambda: sweep(ok, [1], True), TypeError, "`seeds` must be integers, got True"),
        (lambda: sweep(ok, [1], [True]), TypeError, r"`seeds` must be integers, got \[True\]"),
        (lambda: sweep(ok, [1], [-1]), ValueError, r"\[0, 2\*\*32\)"),
        (lambda: sweep(ok, [1], 1, strategy="pmap"), ValueError, "one of.*got 'pmap'"),
        (lambda: sweep(ok, [1], 1, chunk_size=0), ValueError, "integer of at least 1, got 0"),
        (lambda: sweep(ok, [1], 1, chunk_size=True), ValueError, "at least 1, got True"),
        (lambda: sweep(ok, [1], 1, devices=[1]), ValueError, "such as jax.devices"),
        (lambda: sweep(3, [1], 1), TypeError, "must be a function"),
        (lambda: sweep(lambda lr: {"a": lr}, [1], 1), TypeError, r"train\(learning_rate, key\)"),
        (lambda: sweep(lambda lr, key: lr, [1], 1), TypeError, "return a dict of metrics"),
        (lambda: sweep(lambda lr, key: {"seed": lr}, [1], 1), TypeError, "got 'seed'"),
        (lambda: sweep(lambda lr, key: {"a": {"b": lr}}, [1], 1), TypeError, "flat dict"),
        (lambda: sweep(lambda lr, key: {"a": 1j * lr}, [1], 1), TypeError, "real numbers"),
        (lambda: sweep(lambda lr, key: {"a": lr[None][:0]}, [1], 1), TypeError, "real numbers"),
    ],
)
def test_bad_input_names_the_argument_and_the_rule(call, error, match):
    with pytest.raises(error, match=match):
        call()


@pytest.mark.parametrize("strategy", ["loop", "python"])
def test_metrics_can_be_refused_before_anything_is_written(strategy, tmp_path):
    def check(outputs):
        assert outputs["loss"].shape == ()
        raise LookupError("no accuracy")

    path = tmp_path / "j.jsonl"
    options = {"strategy": strategy, "progress": False, "resume": path}
    with pytest.raises(LookupError, match="no accuracy"):
        sweep(ok, [0.1, 0.3], 2, check=check, **options)
    assert not path.exists()
    assert sweep(ok, [0.1, 0.3], 2, check=lambda outputs: None, **options).finished.all()


def test_an_error_that_ends_a_sweep_has_what_had_finished():
    train = lambda learning_rate, key: {"loss": np.ones(2 if learning_rate == 0.3 else 1)}
    with pytest.raises(TypeError, match="one shape and kind") as error:
        sweep(train, [0.1, 0.2, 0.3], 1, strategy="python", progress=False)
    assert error.value.result.finished.tolist() == [[True], [True], [False]]


def test_rates_of_a_float32_array_are_the_decimal_numbers_that_they_print_as():
    found = sweep(ok, jnp.array([0.1, 0.3]), 1, progress=False)
    assert found.learning_rates.tolist() == [0.1, 0.3]
    assert merge(found, sweep(ok, [0.1, 0.3], 1, progress=False)).shape == (2, 1)


def test_a_train_that_is_no_jax_code_is_told_of_the_strategy_python():
    with pytest.raises(TypeError) as error:
        sweep(lambda learning_rate, key: {"a": float(learning_rate)}, [1], 1, progress=False)
    assert 'strategy="python"' in error.value.__notes__[-1]


@pytest.mark.parametrize("strategy", ["vmap", "map", "loop", "python"])
def test_without_a_learning_rate_train_runs_once_per_seed(tmp_path, strategy):
    train = lambda key: {"loss": jax.random.key_data(key).astype(jnp.float32)}
    options = {"strategy": strategy, "progress": False, "resume": tmp_path / "j.jsonl"}
    result = sweep(train, {}, 3, **options)
    assert (result.shape, result.axes) == ((3,), {})
    assert result.dims("loss") == ("seed", "step")
    expected = [jax.random.key_data(jax.random.key(seed)) for seed in range(3)]
    np.testing.assert_array_equal(result.metrics["loss"], np.stack(expected))
    again = sweep(train, {}, 3, **options)
    np.testing.assert_array_equal(again.metrics["loss"], result.metrics["loss"])
    for name in ("r.json", "r.csv"):
        save_results(result, tmp_path / name)
        (loaded,) = load_results(tmp_path / name).values()
        np.testing.assert_array_equal(loaded.metrics["loss"], result.metrics["loss"])
    more = merge(result, sweep(train, {}, [7], progress=False))
    assert more.metrics["loss"].shape == (4, 2)
