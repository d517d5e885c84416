import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mu2_optax
from mu2_optax.sweep import Data
from mu2_optax.sweep._command.optimizers import OPTIMIZERS, make_optimizer, python_line
from mu2_optax.sweep._command.tasks import METRICS, TASKS, curve_steps, make_train


def tiny(task, steps=3):
    """A task on a few made-up images."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(40, 8, 8)).astype(np.float32)
    labels = (np.arange(40) % 10).astype(np.int32)
    small = task._replace(steps=steps, batch_size=16)
    return make_train(small, Data(images, labels, images[:10], labels[:10]))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_tasks_train_every_optimizer_and_keep_it_in_the_ball(optimizer):
    train, key = tiny(TASKS["digits"], steps=60), jax.random.key(0)
    rate = 1.0 if optimizer == "prodigy" else 0.1
    run = lambda radius: jax.jit(
        lambda rate: train(make_optimizer(optimizer, rate, radius, 60), key)
    )(rate)
    in_ball = optimizer not in ("mu2_auto_spectral", "schedule_free_adamw")
    metrics = run(3.0 if in_ball else None)
    assert set(metrics) == set(METRICS)
    # Before training and after every third step, on all images.
    curve = np.asarray(metrics["test_loss_curve"])
    assert curve.shape == (21,)
    assert curve[0] == pytest.approx(np.log(10), rel=1e-5)
    assert curve[-1] == pytest.approx(float(metrics["test_loss"]), rel=1e-5)
    assert (curve[1:] < curve[0]).mean() > 0.5
    assert metrics["train_loss"] < np.log(10) - 0.3
    if in_ball:
        assert python_line(optimizer, 3.0, 60).count("onto_l2_ball(3.0)") == 1
        # Params of norm 1e-6 predict next to nothing: images of norm 8 have logits below 1e-5.
        assert run(1e-6)["train_loss"] == pytest.approx(np.log(10), rel=1e-5)


def test_python_line_is_the_call():
    assert python_line("mu2_auto") == "mu2_optax.mu2_auto()"
    ball = "mu2_optax.onto_l2_ball(3.0)"
    assert python_line("mu2_auto", 3.0) == f"mu2_optax.mu2_auto(projection={ball})"
    assert python_line("sgd", 3.0) == f"mu2_optax.projected(optax.sgd(learning_rate), {ball})"


def test_make_optimizer_evaluates_the_average_also_inside_a_chain():
    params = 2 * jnp.ones(2)
    auto = make_optimizer("mu2_auto", None)
    _, state = auto.update(params, auto.init(jnp.ones(2)), jnp.ones(2))  # y is neither x nor w
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
    tx = make_optimizer("adamw_cosine", 1.0, steps=100)
    params, state, sizes = jnp.zeros(()), tx.init(jnp.zeros(())), []
    for _ in range(100):
        updates, state = tx.update(jnp.ones(()), state, params)  # Adam's step is then the rate
        sizes.append(-float(updates))
    np.testing.assert_allclose(sizes[:5], [0.2, 0.4, 0.6, 0.8, 1.0], rtol=1e-4)
    assert sizes[-1] == 0
    assert (np.diff(sizes[4:]) < 0).all()


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
