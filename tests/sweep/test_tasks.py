import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mu2_optax
from mu2_optax.sweep import Data
from mu2_optax.sweep._command.optimizers import (
    GROUPS,
    OPTIMIZERS,
    Setting,
    make_optimizer,
)
from mu2_optax.sweep._command.tasks import METRICS, TASKS, curve_steps, make_train


def tiny(task, steps=3):
    """A task on a few made-up images."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(40, 8, 8)).astype(np.float32)
    labels = (np.arange(40) % 10).astype(np.int32)
    small = task._replace(steps=steps, batch_size=16)
    return make_train(small, Data(images, labels, images[:10], labels[:10]))


LINEAR = mu2_optax.linear_momentum()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tasks_train_every_optimizer_and_keep_it_in_the_ball(optimizer):
    train = tiny(TASKS["digits"], steps=60)
    in_ball = "onto_l2_ball" in OPTIMIZERS[optimizer].line(3.0, 60)

    @jax.jit
    def run(rate, radius, key):
        projection = mu2_optax.onto_l2_ball(radius) if in_ball else None
        return train(make_optimizer(optimizer, rate, Setting(LINEAR, projection, 60)), key)

    metrics = run(1.0 if optimizer == "prodigy" else 0.1, 3.0, jax.random.key(0))
    assert set(metrics) == set(METRICS)
    curve = np.asarray(
        metrics["test_loss_curve"]
    )  # before training and after every third step, on all images
    assert curve.shape == (21,)
    assert curve[0] == pytest.approx(np.log(10), rel=1e-5)
    assert curve[-1] == pytest.approx(float(metrics["test_loss"]), rel=1e-5)
    assert (curve[1:] < curve[0]).mean() > 0.5
    assert metrics["initial_loss"] == pytest.approx(np.log(10), rel=1e-5)  # a float32 mean
    assert metrics["train_loss"] < metrics["initial_loss"] - 0.3
    if in_ball:
        # Params of norm 1e-6 predict next to nothing: images of norm 8 have logits below 1e-5.
        metrics = run(0.1, 1e-6, jax.random.key(0))
        assert metrics["train_loss"] == pytest.approx(np.log(10), rel=1e-5)


def test_make_optimizer_evaluates_the_average_also_inside_a_chain():
    params = 2 * jnp.ones(2)  # y is neither x nor w
    auto = make_optimizer("mu2_auto", None)
    state = auto.init(jnp.ones(2))
    average = auto.eval_params(state, params)
    np.testing.assert_array_equal(average, mu2_optax.eval_params(state, params))
    assert (average != params).all()
    free = make_optimizer("schedule_free_adamw", 0.1)
    inside = optax.chain(optax.clip(1.0), free)
    average = free.eval_params(inside.init(jnp.ones(2)), params)
    expected = optax.contrib.schedule_free_eval_params(free.init(jnp.ones(2)), params)
    np.testing.assert_array_equal(average, expected)
    assert (average != params).all()
    sgd = make_optimizer("sgd", 0.1)
    np.testing.assert_array_equal(sgd.eval_params(sgd.init(params), params), params)


def test_make_optimizer_cosine_begins_with_a_warm_up_and_ends_at_zero():
    tx = make_optimizer("adamw_cosine", 1.0, Setting(steps=100))
    params, state, sizes = jnp.zeros(()), tx.init(jnp.zeros(())), []
    for _ in range(100):
        updates, state = tx.update(jnp.ones(()), state, params)  # Adam's step is then the rate
        sizes.append(-float(updates))
    np.testing.assert_allclose(sizes[:5], [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-4)
    assert sizes[-1] == 0
    assert (np.diff(sizes[4:]) < 0).all()


def test_make_optimizer_muon_is_for_matrices_and_adam_for_the_rest():
    tx = make_optimizer("muon", 0.1)
    params = {"w": jnp.zeros((4, 3)), "b": jnp.zeros(3)}
    grads = {
        "w": jnp.diag(jnp.array([4.0, 2.0, 1.0, 1.0]))[:, :3],
        "b": jnp.array([1.0, -2.0, 3.0]),
    }
    updates = jax.jit(lambda grads: tx.update(grads, tx.init(params), params)[0])(grads)
    singular = np.linalg.svd(updates["w"], compute_uv=False)
    assert singular.max() / singular.min() < 2  # 4 before; five steps of Newton and Schulz
    signs = updates["b"] / jnp.abs(updates["b"][0])  # Adam's first step is one size everywhere
    np.testing.assert_allclose(signs, [-1, 1, -1], rtol=1e-4)


def test_groups_name_optimizers_that_there_are():
    assert all(set(members) <= OPTIMIZERS.keys() for members in GROUPS.values())
    assert len(GROUPS["default"]) == 5


def test_make_optimizer_momentum_has_dampening():
    tx = make_optimizer("momentum", 1.0)
    params, state = jnp.zeros(()), tx.init(jnp.zeros(()))
    buffer = 0.0
    for gradient in (1.0, 2.0, -3.0):
        updates, state = tx.update(jnp.asarray(gradient), state, params, grad_fn=None, batch=None)
        buffer = 0.9 * buffer + 0.1 * gradient
        assert updates == pytest.approx(-buffer)


def test_make_optimizer_extra_sgd_steps_by_the_rate_alone():
    """With β = γ = 1 and a fixed batch its step is that of SGD, whatever α would be."""
    momentum = mu2_optax.DoubleMomentum(lambda t: t + 1.0, lambda t: 1.0, lambda t: 1.0)
    tx = make_optimizer("mu2_extra_sgd", 0.1, Setting(momentum))
    params = jnp.asarray(1.0)
    state = tx.init(params)
    constant = lambda params, batch: jnp.ones_like(params)
    for _ in range(3):
        updates, state = tx.update(jnp.ones(()), state, params, grad_fn=constant, batch=())
        params = optax.apply_updates(params, updates)
    assert params == pytest.approx(0.7)


def test_tasks_curve_leaves_the_last_params_as_they_were():
    """A run of 7 steps has 7 stretches of one step, a run of 23 steps a single one."""
    for steps, points in ((7, 8), (23, 2), (46, 3)):
        assert len(curve_steps(steps)) == points
        assert curve_steps(steps)[-1] == steps
    sgd = make_optimizer("sgd", 0.1)
    metrics, longer = (
        jax.jit(functools.partial(tiny(TASKS["digits"], steps), sgd))(jax.random.key(0))
        for steps in (7, 3)
    )
    np.testing.assert_allclose(metrics["test_loss_curve"][:4], longer["test_loss_curve"], rtol=1e-5)


def test_tasks_have_no_accuracy_where_a_run_overflows():
    train = tiny(TASKS["digits-mlp"])
    metrics = train(make_optimizer("sgd", 1e30), jax.random.key(0))
    assert np.isnan(metrics["test_accuracy"])
    assert not np.isfinite(metrics["train_loss"])


def test_optimizers_line_makes_what_is_run():
    assert OPTIMIZERS["mu2_auto"].line(None, None) == "mu2_optax.mu2_auto()"
    ball = "mu2_optax.onto_l2_ball(3.0)"
    assert OPTIMIZERS["mu2_auto"].line(3.0, None) == f"mu2_optax.mu2_auto(projection={ball})"
    assert (
        OPTIMIZERS["sgd"].line(3.0, None)
        == f"mu2_optax.projected(optax.sgd(learning_rate), {ball})"
    )
    for name, contender in OPTIMIZERS.items():
        for radius in (
            (None, 3.0) if name not in ("mu2_auto_spectral", "schedule_free_adamw") else (None,)
        ):
            line = contender.line(radius, 40)
            known = {"mu2_optax": mu2_optax, "optax": optax, "learning_rate": 0.1}
            assert callable(eval(line, known).update), line
            assert ("onto_l2_ball" in line) == (radius is not None)
