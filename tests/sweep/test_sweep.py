"""Running a grid: strategies, numbers, failures, Ctrl-C, errors. Resuming is in test_resume.py."""

import functools
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sweep.conftest import make_logistic

from mu2_optax.sweep import SweepInterrupted, merge, sweep
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._program import CompiledProgram

RATES = [0.01, 0.1, 0.5, 1.0]
SEEDS = [3, 0, 11]
WAYS = {
    "vmap": {},
    "chunks of part of a seed": {"chunk_size": 3},
    "chunks of whole seeds": {"chunk_size": 9},
    "loop": {"strategy": "loop"},
}
quietly = functools.partial(sweep, progress=False)
python = functools.partial(sweep, progress=False, strategy="python")


# Numbers


def quadratic_by_hand(rates, seeds, steps=30):
    """Noisy gradient descent on x²/2 as a loop in NumPy's float64."""
    curve = np.zeros((len(rates), len(seeds), steps))
    for i, rate in enumerate(rates):
        for j, seed in enumerate(seeds):
            noise = np.asarray(jax.random.normal(jax.random.key(seed), steps), np.float64)
            x = 1.0
            for t in range(steps):
                x = x - rate * (x + 0.1 * noise[t])
                curve[i, j, t] = x**2 / 2
    return curve


def quadratic(learning_rate, key):
    def step(x, noise):
        x = x - learning_rate * (x + 0.1 * noise)
        return x, x**2 / 2

    x, curve = jax.lax.scan(step, 1.0, jax.random.normal(key, 30))
    return {"loss": x**2 / 2, "curve": curve}


@pytest.mark.parametrize("way", [*WAYS, "python"])
def test_sweep_equals_a_loop_in_numpy(way):
    with jax.enable_x64(True):
        options = {"strategy": "python"} if way == "python" else WAYS[way]
        result = quietly(quadratic, RATES, SEEDS, **options)
        expected = quadratic_by_hand(RATES, SEEDS)
    assert result.metrics["curve"].dtype == np.float64
    np.testing.assert_allclose(result.metrics["curve"], expected, rtol=1e-12)
    np.testing.assert_allclose(result.metrics["loss"], expected[..., -1], rtol=1e-12)
    assert result.finished.all()


@pytest.mark.parametrize("way", WAYS)
def test_sweep_traces_once_and_compiles_once(way, compiles):
    traces = []
    train = make_logistic(traces)
    compiles.clear()
    result = quietly(train, RATES, SEEDS, **WAYS[way])
    assert len(traces) == 1
    assert len(compiles) == 1
    alone = jax.jit(train)(np.float32(0.5), jax.random.key(11))
    for name, value in alone.items():
        # Float32: XLA fuses and orders the sums of a vmapped run otherwise than those of one run.
        np.testing.assert_allclose(result.metrics[name][2, 2], value, rtol=1e-5)


def test_sweep_does_not_compile_in_the_arrays_that_train_closes_over(monkeypatch):
    sizes, compiled = [], jax.stages.Lowered.compile
    compile_it = lambda self: sizes.append(len(self.as_text())) or compiled(self)
    monkeypatch.setattr(jax.stages.Lowered, "compile", compile_it)
    big = jnp.arange(100_000, dtype=jnp.float32) ** 2
    result = quietly(lambda learning_rate, key: {"s": learning_rate * big[-1]}, [1.0], 1)
    assert result.metrics["s"].item() == np.float32(99_999.0**2)
    assert sizes[0] < 10_000


def test_sweep_runs_on_every_device_in_threads_of_its_own():
    def study(device, seeds):
        with jax.default_device(device):
            return quietly(make_logistic(), RATES, seeds)

    blocks = [[0, 1], [2, 3]]
    with ThreadPoolExecutor() as pool:
        merged = merge(*pool.map(study, jax.devices()[:2], blocks))
    expected = quietly(make_logistic(), RATES, 4)
    np.testing.assert_allclose(merged.metrics["loss"], expected.metrics["loss"], rtol=1e-5)


def test_sweep_chunks_have_at_most_chunk_size_cells():
    program = CompiledProgram(ok, make_grid(range(6), 3), side_by_side=True)
    for chunk_size in range(1, 20):
        points, seeds = program.call_size(chunk_size)
        assert 1 <= points * seeds <= chunk_size


def test_sweep_computes_what_depends_on_the_key_once_per_seed():
    shapes = []

    def gather(rows):
        shapes.append(np.shape(rows))
        return np.asarray(rows, np.float32)

    def train(learning_rate, key):
        rows = jax.random.randint(key, (5,), 0, 100)
        out = jax.ShapeDtypeStruct((5,), jnp.float32)
        batch = jax.pure_callback(gather, out, rows, vmap_method="sequential")
        return {"loss": learning_rate * batch.sum()}

    quietly(train, RATES, 3)
    assert len(shapes) == 3


@pytest.mark.parametrize("strategy", ["vmap", "loop", "python"])
def test_sweep_spans_the_product_of_named_axes_in_order(strategy):
    train = lambda key, beta, learning_rate: {"z": 100 * learning_rate + beta, "a": 1 * beta}
    grid = {"learning_rate": [1, 2], "beta": [0.0, 10.0, 20.0]}
    result = quietly(train, grid, [5], strategy=strategy)
    assert result.metrics["z"][..., 0].tolist() == [[100, 110, 120], [200, 210, 220]]
    assert result.dims("z") == ("learning_rate", "beta", "seed")
    assert list(result.metrics) == ["z", "a"]


@pytest.mark.parametrize("strategy", ["vmap", "loop", "python"])
def test_sweep_without_axes_runs_once_per_seed_with_the_seeds_key(strategy, tmp_path):
    train = lambda key: {"bits": jax.random.bits(key, 2)}
    seeds = [0, 7, 2**31 + 5, 2**32 - 1]
    for _ in range(2):
        result = quietly(train, {}, seeds, strategy=strategy, resume=tmp_path / "run")
        assert (result.shape, result.axes, result.dims("bits")) == ((4,), {}, ("seed", "step"))
        # jax.random.key(seed) of a Python int, without overflow
        expected = [jax.random.bits(jax.random.key(np.uint32(seed)), 2) for seed in seeds]
        np.testing.assert_array_equal(result.metrics["bits"], np.stack(expected))
    assert merge(result, quietly(train, {}, [1])).metrics["bits"].shape == (5, 2)


def test_sweep_python_gets_floats_and_a_concrete_key_whole_seeds_first():
    calls = []

    def train(learning_rate, key):
        assert type(learning_rate) is float
        calls.append((learning_rate, int(jax.random.key_data(key)[-1])))
        return {"loss": learning_rate, "count": 3, "narrow": jnp.bfloat16(0.5)}

    result = python(train, [1.0, 2.0], [4, 1])
    assert calls == [(1.0, 4), (2.0, 4), (1.0, 1), (2.0, 1)]
    kinds = {name: array.dtype for name, array in result.metrics.items()}
    assert kinds == {"loss": np.float64, "count": np.int64, "narrow": np.float32}


def test_sweep_knows_float32_rates_as_the_decimal_numbers_that_they_print_as():
    found = quietly(ok, jnp.array([0.1, 0.3]), 1)
    assert found.learning_rates.tolist() == [0.1, 0.3]
    assert merge(found, quietly(ok, [0.1, 0.3], 1)).shape == (2, 1)


def test_sweep_says_how_and_where_it_was_run():
    info = quietly(ok, [1.0, 2.0], 1, context={"steps": 3}).info
    assert info["strategy"] == "vmap"
    assert info["context"] == {"steps": 3}
    assert info["machine"]["device"] == jax.devices()[0].device_kind
    assert info["versions"]["jax"] == jax.__version__
    assert min(info["compile_seconds"], info["run_seconds"]) >= 0


# Divergence and failures


@pytest.mark.parametrize("strategy", ["vmap", "loop", "python"])
def test_sweep_keeps_and_counts_divergence(strategy):
    def train(learning_rate, key):
        learning_rate = jnp.float32(learning_rate)
        curve = jnp.array([1.0, learning_rate**40])
        return {"loss": jnp.log(1.0 - learning_rate), "curve": curve}

    result = quietly(train, [0.5, 1.0, 2.0, 1e3], 2, strategy=strategy)
    loss = result.metrics["loss"][:, 0]
    assert np.isfinite(loss[0])
    assert loss[1] == -np.inf
    assert np.isnan(loss[2:]).all()
    assert result.diverged("loss").sum() == 6
    assert result.diverged("curve").any(axis=1).tolist() == [False, False, False, True]
    assert result.finished.all()


def failing(strategy, fails):
    """A run that raises where ``fails`` says so."""

    def host(rate):
        if fails(rate):
            raise ValueError(f"no luck at {rate:g}")
        return np.float32(rate)

    def train(learning_rate, key):
        out = jax.ShapeDtypeStruct((), jnp.float32)
        traced = isinstance(learning_rate, jax.core.Tracer)
        if not traced:
            return {"loss": host(learning_rate), "count": np.int32(1)}
        loss = jax.pure_callback(host, out, learning_rate, vmap_method="sequential")
        return {"loss": loss, "count": np.int32(1)}

    return functools.partial(quietly, train, strategy=strategy)


@pytest.mark.parametrize("strategy", ["loop", "python"])
@pytest.mark.parametrize("bad", [0.5, 2.0])
def test_sweep_cell_that_raises_is_nan_and_keeps_its_error(strategy, bad):
    rates = [0.5, 1.0, 2.0]
    with pytest.warns(UserWarning, match=rf"learning_rate={bad:g}, seed=\d failed: .*no luck"):
        result = failing(strategy, lambda rate: rate == bad)(rates, 2)
    at = rates.index(bad)
    assert set(result.errors) == {(at, 0), (at, 1)}
    assert "no luck" in result.errors[at, 0]
    expected = np.where(np.arange(3) == at, np.nan, rates)
    np.testing.assert_array_equal(result.metrics["loss"], np.stack([expected] * 2, axis=1))
    np.testing.assert_array_equal(result.metrics["count"][:, 0], np.where(expected > 0, 1, np.nan))
    assert result.diverged().sum() == 2
    assert result.finished.all()


@pytest.mark.parametrize("strategy", ["loop", "python"])
def test_sweep_in_which_every_cell_raises_is_an_error(strategy):
    with pytest.warns(UserWarning, match="failed"), pytest.raises(Exception, match="no luck") as e:
        failing(strategy, lambda rate: True)([0.5, 1.0], 1)
    assert "while running learning_rate=1, seed=0" in e.value.__notes__


def test_sweep_vmap_says_in_which_call_it_failed_and_how_to_need_less_memory():
    with pytest.raises(Exception, match="no luck") as error:
        failing("vmap", lambda rate: rate > 2)([1.0, 2.0, 3.0, 4.0], 1, chunk_size=2)
    place, remedy = error.value.__notes__[-2:]
    assert place == "while running learning_rate=3, seed=0"
    assert remedy == "2 cells ran side by side; `chunk_size` bounds them"


@pytest.mark.parametrize(
    ("first", "later", "match"),
    [
        ({"a": 1.0}, {"b": 1.0}, r"got .*'b': .* at learning_rate=1, seed=0 and .*'a'.* before"),
        ({"a": np.zeros(2)}, {"a": np.zeros(3)}, r"same metrics.*\(3,\).*\(2,\)"),
        ({"a": 1.0}, {"a": "x"}, "must be a real number"),
        ({"a": 1.0}, None, "return a dict of metrics"),
    ],
)
def test_sweep_cell_with_other_metrics_than_the_first_fails(first, later, match):
    answers = iter([first])
    with pytest.warns(UserWarning, match=match):
        result = python(lambda learning_rate, key: next(answers, later), [0.5, 1.0], 1)
    assert list(result.errors) == [(1, 0)]


# Ctrl-C and progress


def interrupting(strategy):
    """A run in which Ctrl-C comes while the second rate runs for the first time."""
    sent = []

    def host(rate):
        if rate == 2.0 and not sent:
            sent.append(rate)
            signal.raise_signal(signal.SIGINT)
        return np.float32(rate)

    def train(learning_rate, key):
        if strategy == "python":
            return {"loss": host(learning_rate)}
        out = jax.ShapeDtypeStruct((), jnp.float32)
        return {"loss": jax.pure_callback(host, out, learning_rate, vmap_method="sequential")}

    return train


@pytest.mark.parametrize(
    "options", [{"strategy": "loop"}, {"strategy": "python"}, {"chunk_size": 1}]
)
def test_sweep_ctrl_c_keeps_what_has_finished_and_resume_goes_on(options, tmp_path):
    train = interrupting(options.get("strategy"))
    with pytest.raises(SweepInterrupted, match="with 1 cells finished") as caught:
        quietly(train, [1.0, 2.0, 3.0], 1, resume=tmp_path, **options)
    result = caught.value.result
    np.testing.assert_array_equal(result.metrics["loss"], [[1.0], [np.nan], [np.nan]])
    assert result.finished.tolist() == [[True], [False], [False]]
    assert result.diverged().sum() == 0  # what has not been run has not diverged
    result = quietly(train, [1.0, 2.0, 3.0], 1, resume=tmp_path, **options)
    assert result.metrics["loss"].tolist() == [[1.0], [2.0], [3.0]]


def test_sweep_progress_counts_cells_and_is_optional(capsys, monkeypatch, tmp_path):
    sweep(ok, [0.1, 1.0], 2, label="sgd")
    shown = capsys.readouterr().err
    assert "sgd" in shown
    assert "4/4" in shown
    quietly(ok, [0.1, 1.0], 2)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    quietly(ok, [0.1, 1.0], 2)
    assert capsys.readouterr().err == ""


# Errors


ok = lambda learning_rate, key: {"loss": learning_rate}


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda: sweep(ok, [], 1), ValueError, "must be distinct numbers"),
        (lambda: sweep(ok, ["a"], 1), TypeError, "must be numbers"),
        (lambda: sweep(ok, "0.1", 1), TypeError, "must be numbers such as .*, got '0.1'"),
        (lambda: sweep(ok, [True], 1), TypeError, "must be numbers"),
        (lambda: sweep(ok, np.array([1j]), 1), TypeError, "must be numbers"),
        (lambda: sweep(ok, [-1.0], 1), ValueError, r"finite and not negative, got \[-1.0\]"),
        (lambda: sweep(ok, [np.nan], 1), ValueError, "must be distinct numbers, each finite"),
        (lambda: sweep(ok, [0.1, 0.1], 1), ValueError, "must be distinct"),
        (lambda: sweep(ok, {"key": [1]}, 1), ValueError, "got 'key'"),
        (lambda: sweep(ok, {"beta": [1]}, 1), TypeError, "unexpected keyword argument 'beta'"),
        (lambda: sweep(ok, {}, 1), TypeError, "missing 1 required positional.*'learning_rate'"),
        (lambda: sweep(ok, [1], 0), ValueError, "`seeds` must be a number of seeds such as 3"),
        (lambda: sweep(ok, [1], 1.5), ValueError, "integers in .*got 1.5"),
        (lambda: sweep(ok, [1], [True]), ValueError, r"integers in .*got \[True\]"),
        (lambda: sweep(ok, [1], 2**32), ValueError, "integers in"),
        (lambda: sweep(ok, [1], []), ValueError, r"integers in .*got \[\]"),
        (lambda: sweep(ok, [1], [-1]), ValueError, r"\[0, 2\*\*32\)"),
        (lambda: sweep(ok, [1], [2, 2]), ValueError, r"distinct integers in .*got \[2, 2\]"),
        (lambda: sweep(ok, [1], 1, strategy="pmap"), ValueError, "one of.*got 'pmap'"),
        (lambda: sweep(ok, [1], 1, chunk_size=0), ValueError, "integer of at least 1, got 0"),
        (lambda: sweep(ok, [1], 1, chunk_size=1.5), ValueError, "integer of at least 1, got 1.5"),
        (lambda: python(ok, [1], 1, chunk_size=2), ValueError, "not apply to strategy 'python'"),
        (lambda: sweep(ok, [1], 1, label=3), TypeError, "`label` must be text, got 3"),
        (lambda: sweep(ok, [1], 1, context={"n": np.int64(1)}), TypeError, "int64 is not JSON"),
        (lambda: sweep(lambda lr, key: lr, [1], 1), TypeError, "return a dict of metrics"),
        (lambda: sweep(lambda lr, key: {"seed": lr}, [1], 1), TypeError, "none of the names"),
        (lambda: sweep(lambda lr, key: {"a": {"b": lr}}, [1], 1), TypeError, "flat dict"),
        (lambda: sweep(lambda lr, key: {"a": 1j * lr}, [1], 1), TypeError, "a real number"),
        (lambda: sweep(lambda lr, key: {"a": lr[None][:0]}, [1], 1), TypeError, "a real number"),
    ],
)
def test_sweep_bad_input_names_the_argument_and_the_rule(call, error, match):
    with pytest.raises(error, match=match):
        call()


def test_sweep_tells_a_train_that_is_no_jax_code_of_the_strategy_python():
    with pytest.raises(TypeError) as error:
        quietly(lambda learning_rate, key: {"a": float(learning_rate)}, [1], 1)
    assert 'strategy="python"' in error.value.__notes__[-1]
