"""Saving, restoring, and going on as if nothing had happened."""

import gc
import os
import pathlib
import random
import subprocess
import sys

import jax
import jax.numpy as jnp
import linen_steps
import nnx_steps
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from cnn import LinenCNN, batches, linen_variables, nnx_model
from flax import nnx, serialization

import mu2_optax
import mu2_optax.linen
import mu2_optax.nnx

TESTS = pathlib.Path(__file__).parent
OPTIMIZERS = {
    "mu2_sgd": mu2_optax.mu2_sgd(0.1),
    "mu2_sgd with a schedule": mu2_optax.mu2_sgd(optax.constant_schedule(0.1)),
    "mu2_sgd with a measured beta": mu2_optax.mu2_sgd(
        0.1, mu2_optax.fixed_momentum(beta=mu2_optax.measured_beta())
    ),
    "mu2_sgd in bfloat16": mu2_optax.mu2_sgd(0.1, state_dtype=jnp.bfloat16),
    "mu2_adam": mu2_optax.mu2_adam(0.1),
    "mu2_extra_sgd": mu2_optax.mu2_extra_sgd(0.1),
    "anytime_sgd": mu2_optax.anytime_sgd(0.1, mu2_optax.linear_momentum()),
    "storm": mu2_optax.storm(0.1, 0.5),
    "mu2_auto": mu2_optax.mu2_auto(),
    "reject_nonfinite": mu2_optax.reject_nonfinite(mu2_optax.mu2_sgd(0.1)),
    "optax sgd": optax.sgd(0.1),
}


def bits(tree):
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(tree)]


def make_state(tx, width=3):
    params = {"w": jnp.arange(float(width)), "b": jnp.ones([], jnp.bfloat16)}
    return mu2_optax.linen.TrainState.create(apply_fn=None, params=params, tx=tx)


def step_once(state):
    grads = jax.tree.map(jnp.ones_like, state.params)
    return state.apply_gradients(
        grads=grads,
        grad_fn=lambda params, scale: jax.tree.map(lambda p: p * scale, params),
        batch=2.0,
    )


def save_and_restore_orbax(state, target, directory):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory / "state", state)
        checkpointer.wait_until_finished()
        return checkpointer.restore(directory / "state", jax.eval_shape(lambda: target))


@pytest.mark.slow
def test_checkpoint_restores_every_bit_from_orbax_and_flax(tmp_path):
    new = {name: make_state(tx) for name, tx in OPTIMIZERS.items()}
    state = {name: step_once(step_once(start)) for name, start in new.items()}
    from_orbax = save_and_restore_orbax(state, new, tmp_path)
    from_bytes = serialization.from_bytes(new, serialization.to_bytes(state))
    for restored in (from_orbax, from_bytes):
        assert jax.tree.structure(restored) == jax.tree.structure(state)
        assert bits(restored) == bits(state)
        for name in OPTIMIZERS:
            assert bits(step_once(restored[name])) == bits(step_once(state[name]))


@pytest.mark.parametrize(
    "name",
    ["mu2_adam", "mu2_sgd with a measured beta", "optax sgd"],
)
def test_checkpoint_of_another_optimizer_is_refused_by_orbax(name, tmp_path):
    state = make_state(OPTIMIZERS["mu2_sgd"])
    with pytest.raises(ValueError, match="structure"):
        save_and_restore_orbax(state, make_state(OPTIMIZERS[name]), tmp_path)


# Orbax cancels the reads of the other leaves, and Python says so when it collects them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_checkpoint_of_another_model_is_refused_by_orbax(tmp_path):
    state, wider = (make_state(OPTIMIZERS["mu2_sgd"], width) for width in (3, 4))
    with pytest.raises(ValueError, match=r"\(4,\) is not compatible with the stored shape: \(3,"):
        save_and_restore_orbax(state, wider, tmp_path)
    gc.collect()


def test_checkpoint_of_another_model_is_refused_by_the_step():
    state = make_state(OPTIMIZERS["mu2_sgd"])
    wider = make_state(OPTIMIZERS["mu2_sgd"], width=4)
    with pytest.raises(ValueError, match=r"has shape \(4,\), expected \(3,\)"):
        step_once(wider.replace(opt_state=state.opt_state))


def goes_on(state, step, restore):
    """Two runs that go on: as if nothing had happened, and from what was stored after 4 steps."""
    data = list(batches(8))
    for batch in data[:4]:
        state = step(state, batch)
    restored = restore(state)
    for batch in data[4:]:
        state, restored = step(state, batch), step(restored, batch)
    assert bits(restored) == bits(state)
    return state, restored


def new_linen_run():
    apply = LinenCNN(dropout=0.5).apply
    return linen_steps.FlaxState.create(
        apply_fn=apply, tx=mu2_optax.mu2_auto(), **linen_variables()
    )


@jax.jit
def auto_step(state, batch):
    """The key is a function of the step."""
    return linen_steps.auto_step(state, batch, jax.random.fold_in(jax.random.key(1), state.step))


def check_auto_goes_on(restore):
    runs = goes_on(new_linen_run(), auto_step, restore)
    averages = [mu2_optax.linen.eval_state(run).params for run in runs]
    assert bits(averages[0]) == bits(averages[1])


def test_checkpoint_by_bytes_continues_mu2_auto_exactly():
    encoded = serialization.to_bytes
    check_auto_goes_on(lambda state: serialization.from_bytes(new_linen_run(), encoded(state)))


@pytest.mark.slow
def test_checkpoint_by_orbax_continues_mu2_auto_exactly(tmp_path):
    new = jax.tree.map(jnp.asarray, new_linen_run())  # Flax's first step is a Python integer
    check_auto_goes_on(lambda state: save_and_restore_orbax(state, new, tmp_path))


NNX_STEPS = {
    "mu2_sgd": (mu2_optax.mu2_sgd(0.5), nnx_steps.train_step),
    "mu2_auto": (
        mu2_optax.mu2_auto(),
        nnx.jit(lambda model, optimizer, batch, rngs: nnx_steps.auto_step(model, optimizer, batch)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NNX_STEPS)
def test_checkpoint_by_orbax_continues_nnx_exactly(name, tmp_path):
    tx, step = NNX_STEPS[name]

    def new_run():
        model = nnx_model(dropout=0.5 if name == "mu2_sgd" else 0.0)
        return model, nnx.Optimizer(model, tx, wrt=nnx.Param), nnx.Rngs(dropout=1)

    def train(run, data):
        model, optimizer, rngs = run
        for batch in data:
            step(model, optimizer, batch, rngs)

    run, data = new_run(), list(batches(8))
    train(run, data[:4])
    graphdef, new = nnx.split(new_run())
    restored = nnx.merge(graphdef, save_and_restore_orbax(nnx.state(run), new, tmp_path))
    train(run, data[4:])
    train(restored, data[4:])
    trees = [nnx.as_pure(nnx.state(some[:2])) for some in (run, restored)]
    assert bits(trees[0]) == bits(trees[1])


def start(kind, directory, steps):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS.parent), str(TESTS)])}
    return subprocess.Popen(
        [sys.executable, str(TESTS / "train_and_resume.py"), kind, str(directory), str(steps)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    directory = tmp_path_factory.mktemp("uninterrupted")
    with start("bytes", directory, 30) as process:
        output, _ = process.communicate(timeout=300)
    assert output.startswith("from 0")
    return (directory / "final").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["orbax", "bytes"])
def test_checkpoint_after_a_kill_ends_bitwise_equal(kind, tmp_path, uninterrupted):
    last = random.Random(kind).randint(7, 27)
    with start(kind, tmp_path, 30) as process:
        for line in process.stdout:
            if line.strip() == f"step {last}":
                process.kill()
    assert process.returncode == -9
    assert not (tmp_path / "final").exists()
    with start(kind, tmp_path, 30) as process:
        output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    resumed_from = int(output.split()[1])
    assert 0 < resumed_from <= last, f"killed after step {last}, resumed from {resumed_from}"
    assert (tmp_path / "final").read_bytes() == uninterrupted
