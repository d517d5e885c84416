"""The measurements of speed run on tiny models, and what they found about memory stays true."""

import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import call
from jax.experimental.compilation_cache import compilation_cache

import mu2_optax
from benchmarks import __main__ as every_benchmark
from benchmarks import (
    files,
    scaling,
    step_cost,
    step_profile,
    sweep_throughput,
    timing,
)


@pytest.mark.parametrize(
    ("tx", "gradients", "share"),
    [
        # 20 leaves: a copy of one of them would be a twentieth of the params.
        pytest.param(mu2_optax.mu2_sgd(0.1), 2, 0.03, id="mu2_sgd"),
        pytest.param(mu2_optax.storm(0.1, 0.9), 2, 0.03, id="storm"),
        pytest.param(mu2_optax.mu2_auto(), 1, 0.2, id="mu2_auto"),  # and samples of all leaves
    ],
)
def test_a_donated_step_copies_no_params(tx, gradients, share):
    loss, params, batch = step_cost.tree(count=2_000_000, leaves=20)
    optimizer = step_cost.Optimizer(tx, gradients)
    step = jax.jit(step_cost.make_step(loss, optimizer), donate_argnums=(0, 1))
    memory = step.lower(params, tx.init(params), batch).compile().memory_analysis()
    assert memory.temp_size_in_bytes < share * step_cost.size(params)


def test_the_gradient_of_the_tree_is_a_multiple_of_it():
    loss, params, batch = step_cost.tree(count=6, leaves=2)
    grads = jax.grad(loss)(params, batch)
    jax.tree.map(lambda g, p: np.testing.assert_allclose(g, 1e-3 * p, rtol=1e-6), grads, params)


def test_ways_take_turns_and_the_first_round_does_not_count():
    calls = []
    ways = {name: lambda name=name: float(len(calls.append(name) or calls)) for name in "ab"}
    seconds = timing.in_turn(ways, rounds=2)
    assert calls == list("ababab")
    np.testing.assert_array_equal(seconds["a"], [3, 5])
    assert timing.spread(np.array([1.0, 2, 3, 4, 5])) == (3, 2, 4)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_the_cost_of_a_step_is_measured_for_each_optimizer_that_is_named(tmp_path, monkeypatch):
    tiny = {
        "logistic regression": step_cost.Model(lambda: step_cost.dense(8, 10), 1),
        "10⁸ params in 200 leaves": step_cost.Model(lambda: step_cost.tree(20, 2), 1, copied=True),
    }
    monkeypatch.setattr(step_cost, "MODELS", tiny)
    names = ("SGD", "mu2_sgd", "mu2_sgd, part 1/8", "mu2_sgd, lean")
    for dtype in ("bfloat16", "float32"):  # the second run keeps the rows of the first
        options = ["--rounds", 1, "--out", tmp_path, "--dtypes", dtype, "--optimizers", *names]
        call(step_cost, monkeypatch, *options)
    rows = files.read_rows(tmp_path / "results.csv")
    assert len(rows) == 2 * 2 * len(names)
    state = {(row["dtype"], row["optimizer"]): float(row["state"]) for row in rows[:8]}
    assert state["float32", "mu2_sgd"] == pytest.approx(3, abs=0.1)
    assert state["float32", "mu2_sgd, lean"] == pytest.approx(2, abs=0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_every_model_is_made():
    for make in (lambda: step_cost.dense(4, 3, 10), lambda: step_cost.resnet(10, 1, 2)):
        loss, params, batch = make()
        assert jnp.isfinite(jax.jit(loss)(params, batch))


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_growth_is_measured_and_drawn(tmp_path, monkeypatch):
    tiny = {"PARAMS": (40, 80), "TIMES": (1, 1000), "LEAVES": (1, 2), "LANES": (1, 2)}
    for constant, value in tiny.items():
        monkeypatch.setattr(scaling, constant, value)
    call(scaling, monkeypatch, "--rounds", 1, "--out", tmp_path)
    call(scaling, monkeypatch, "--rounds", 1, "--out", tmp_path, "--studies", "lanes")
    rows = files.read_rows(tmp_path / "results.csv")
    assert list(dict.fromkeys(row["study"] for row in rows)) == list(scaling.STUDIES)
    names = len(scaling.NAMES)
    assert len(rows) == 2 * (names + (names - 1) + names + 1)  # SGD has no t
    assert (tmp_path / "figure.png").is_file()


@pytest.mark.slow
def test_sweeps_are_compared_with_cells_and_with_steps_from_python(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", os.environ.get("XLA_FLAGS", ""))  # main would set it to stay
    monkeypatch.setattr(sweep_throughput, "SEEDS", 1)
    monkeypatch.setattr(sweep_throughput, "RATES", np.array([0.1, 1.0]))
    monkeypatch.setattr(sweep_throughput, "growth", lambda steps, rounds: {})
    settings = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in settings}
    options = ["--rounds", 1, "--steps", 2, "--cnn-steps", 1, "--out", tmp_path]
    try:
        call(sweep_throughput, monkeypatch, *options)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()  # JAX goes on with the folder that it has begun with
    assert "| steps from Python |" in (tmp_path / "result.md").read_text()


def test_the_command_for_all_lists_them_and_refuses_others(monkeypatch, capsys):
    call(every_benchmark, monkeypatch, "--list")
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == list(every_benchmark.SPEED)
    with pytest.raises(SystemExit):
        call(every_benchmark, monkeypatch, "step_time")
    assert "choose from step_cost" in capsys.readouterr().err


def test_rows_that_are_not_measured_again_are_kept(tmp_path):
    file = tmp_path / "results.csv"
    files.write_rows(file, [{"model": "a", "x": "1"}, {"model": "b", "x": "2"}])
    rows = files.with_kept(file, [{"model": "a", "x": "3"}], ("model",))
    assert rows == [{"model": "b", "x": "2"}, {"model": "a", "x": "3"}]
    assert files.with_kept(tmp_path / "none.csv", rows, ("model",)) == rows


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be pinned here")
def test_the_command_for_all_runs_each_on_its_cores(monkeypatch, capsys):
    before, seen = os.sched_getaffinity(0), []

    def noted(command):
        seen.append((command[2], len(os.sched_getaffinity(0))))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", noted)
    call(every_benchmark, monkeypatch, "step_cost", "sweep_throughput")
    at_most = min(2, len(before))
    assert seen == [("benchmarks.step_cost", 1), ("benchmarks.sweep_throughput", at_most)]
    assert os.sched_getaffinity(0) == before
    assert "step_cost, cores: 1" in capsys.readouterr().out


PROGRAM = """
  %dot.1 = f32[8,5]{1,0} dot(%a, %b), lhs_contracting_dims={0}
  %ynn_fusion = f32[4,5]{1,0} fusion(%a), kind=kCustom, calls=%inside
  %add_fusion.2 = f32[8,5]{1,0} fusion(%dot.1), kind=kLoop, calls=%inside
  %copy.3 = f32[8,5]{1,0} copy(%params)
  ROOT %relu = f32[4,5]{1,0} maximum(%ynn_fusion, %zero)
"""


def test_a_profile_knows_the_kinds_of_operations():
    assert step_profile.kinds(PROGRAM, {"w": jnp.zeros((8, 5))}) == {
        "dot.1": "products",
        "ynn_fusion": "products",
        "add_fusion.2": "params and state",
        "copy.3": "copies",
        "relu": "activations",
    }


@pytest.mark.slow
def test_a_profile_finds_the_time_of_a_step():
    model = step_cost.Model(lambda: step_cost.dense(784, 10), 5)
    gradient, step = step_profile.profile(model, ["mu2_sgd"], rounds=2)
    assert int(gradient["products"]) > 0
    assert int(step["params and state"]) > 0
