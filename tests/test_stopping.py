"""Stopping on the norm of the corrected estimate."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import jitted_step

import mu2_optax
from mu2_optax import stopping
from mu2_optax.stopping import NormBelow, StopReason, estimate_norm, run_until

BALL = mu2_optax.onto_l2_ball(3.0)


def loss(x, z):
    """Its mean over z ~ N(0, 1) has the gradient x, and every gradient has variance dim."""
    return 0.5 * jnp.sum((x - z) ** 2)


GRAD = jax.grad(loss)


def make_step(tx):
    return jitted_step(tx, GRAD)


def normals(key, dim=4):
    return lambda count: jax.random.normal(jax.random.fold_in(key, count), (dim,))


def mu2(rate=0.2):
    return mu2_optax.mu2_sgd(rate, mu2_optax.linear_momentum(1), projection=BALL)


def test_run_until_equals_a_python_loop():
    tx, params = mu2(), jnp.full(4, 1.0)
    draw, step = normals(jax.random.key(3)), make_step(mu2())
    result = run_until(step, params, tx.init(params), draw, tolerance=0.3, max_steps=5000)
    assert StopReason(int(result.reason)) is StopReason.TOLERANCE
    x, state, stop = params, tx.init(params), NormBelow(0.3)
    for count in range(5000):
        x, state = step(x, state, draw(count))
        if stop(state):
            break
    assert stop.reason is StopReason.TOLERANCE
    assert int(result.steps) == count + 1
    np.testing.assert_allclose(result.params, x, rtol=1e-5)
    np.testing.assert_allclose(result.norm, estimate_norm(state), rtol=1e-4)


def test_run_until_fires_at_small_d_and_never_on_plain_gradients():
    tolerance, seeds, max_steps, dim = 0.2, 8, 1500, 4
    params = jnp.full(dim, 1.0)

    def run(tx, norm, key):
        out = run_until(
            make_step(tx),
            params,
            tx.init(params),
            normals(key, dim),
            tolerance=tolerance,
            max_steps=max_steps,
            norm=norm,
        )
        return out.reason, out.steps, jnp.linalg.norm(out.params)  # the exact gradient is x

    keys = jax.random.split(jax.random.key(0), seeds)
    reason, steps, gradient = jax.jit(jax.vmap(lambda k: run(mu2(), estimate_norm, k)))(keys)
    assert np.all(reason == StopReason.TOLERANCE)
    assert np.all(steps < max_steps)
    # |grad f(x)| <= |d| + |error|, and the error at the stop is about sqrt(dim / t) each
    slack = 4 * np.sqrt(dim / np.asarray(steps))
    assert np.all(gradient <= tolerance + slack)

    # beta = 1 makes d the plain gradient: SGD's own rule
    sgd = mu2_optax.storm(0.05, beta=1.0, projection=BALL)
    reason, steps, gradient = jax.jit(jax.vmap(lambda k: run(sgd, estimate_norm, k)))(keys)
    assert np.all(reason == StopReason.MAX_STEPS)
    assert np.all(steps == max_steps)
    assert np.mean(gradient) < 1.0  # although it is near the minimum


@pytest.mark.parametrize(
    "tx",
    [
        mu2_optax.mu2_sgd(0.1),
        mu2_optax.mu2_extra_sgd(0.1, weighted_steps=False),
        mu2_optax.storm(0.1, 0.5),
        mu2_optax.reject_nonfinite(mu2_optax.mu2_adam(0.1)),
        optax.chain(mu2_optax.corrected_momentum(0.5), optax.clip(1.0), optax.sgd(0.1)),
        optax.inject_hyperparams(mu2_optax.mu2_sgd, static_args="momentum")(learning_rate=0.1),
    ],
    ids=["mu2_sgd", "mu2_extra_sgd", "storm", "guarded", "chain", "injected"],
)
def test_estimate_norm_finds_d_in_any_state(tx):
    params = {"d": jnp.ones(3), "x": jnp.ones(())}  # names that also are fields of states
    grad_fn = jax.grad(lambda p, z: jnp.sum(p["d"] ** 2) * z + p["x"] ** 2)
    grads = grad_fn(params, 1.0)
    updates, state = tx.update(grads, tx.init(params), params, grad_fn=grad_fn, batch=1.0)
    # in the first step d is the gradient: at params, but after the step for mu2_extra_sgd
    after = optax.apply_updates(params, updates)
    point = after if hasattr(state, "y") else params
    expected = float(jnp.sqrt(4 * jnp.sum(point["d"] ** 2) + 4 * point["x"] ** 2))
    assert float(estimate_norm(state)) == pytest.approx(expected, rel=1e-6)


def test_run_until_takes_stacked_batches_and_functions():
    tx, params = mu2(), jnp.ones(4)
    draw = normals(jax.random.key(1))
    stacked = jax.vmap(draw)(jnp.arange(100))
    by_function = run_until(
        make_step(tx), params, tx.init(params), draw, tolerance=0.0, max_steps=100
    )
    by_array = run_until(
        make_step(tx), params, tx.init(params), stacked, tolerance=0.0, max_steps=100
    )
    np.testing.assert_allclose(by_function.params, by_array.params, rtol=1e-6)
    assert StopReason(int(by_array.reason)) is StopReason.MAX_STEPS
    assert int(by_array.steps) == 100


def test_run_until_patience_counts_steps_in_a_row():
    norms = jnp.array([0.1, 5.0, 0.1, 0.1, 9.0, 0.1, 0.1, 0.1, 0.1])

    def step(params, state, batch):
        return params, batch

    for patience, steps in ((1, 1), (2, 4), (3, 8)):
        result = run_until(
            step,
            jnp.zeros(1),
            norms[0],
            norms,
            tolerance=1.0,
            max_steps=9,
            patience=patience,
            norm=lambda s: s,
        )
        assert (int(result.steps), int(result.reason)) == (steps, StopReason.TOLERANCE)
        rule = NormBelow(1.0, patience=patience, norm=lambda s: s)
        assert [rule(n) for n in norms].index(True) + 1 == steps


def test_run_until_ends_at_a_norm_that_is_not_finite():
    norms = jnp.array([3.0, 2.0, jnp.nan, 0.1, 0.1])

    def step(params, state, batch):
        return params, batch

    result = run_until(
        step, 0.0, norms[0], norms, tolerance=1.0, max_steps=5, patience=1, norm=lambda s: s
    )
    assert (int(result.steps), int(result.reason)) == (3, StopReason.NONFINITE)
    rule = NormBelow(1.0, norm=lambda s: s)
    assert [rule(n) for n in norms[:3]] == [False, False, True]
    assert rule.reason is StopReason.NONFINITE


def test_run_until_traces_once_and_takes_traced_limits():
    tx, params, traces = mu2(), jnp.ones(4), []

    def step(params, state, batch):
        traces.append(1)
        return make_step(tx)(params, state, batch)

    @jax.jit
    def run(tolerance, max_steps):
        return run_until(
            step,
            params,
            tx.init(params),
            normals(jax.random.key(0)),
            tolerance=tolerance,
            max_steps=max_steps,
        ).steps

    assert int(run(0.0, 50)) == 50
    first = len(traces)
    assert int(run(100.0, 50)) == 10
    assert int(run(0.0, 70)) == 70
    assert len(traces) == first  # other limits do not compile again
    assert first <= 2


def test_run_until_traced_limits_end_with_the_batches():
    batches = jnp.arange(5.0)
    step = lambda params, state, batch: (params + batch, state + 1.0)

    def run(max_steps):
        return run_until(
            step, 0.0, 1.0, batches, tolerance=0.0, max_steps=max_steps, norm=lambda state: state
        )

    result = jax.jit(run)(jnp.int32(8))
    assert (int(result.steps), float(result.params)) == (5, 10.0)
    assert int(result.reason) == StopReason.MAX_STEPS
    assert int(jax.jit(run)(3).steps) == 3
    np.testing.assert_array_equal(jax.vmap(run)(jnp.array([2, 9])).steps, [2, 5])


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, jnp.int32, np.uint8])
def test_run_until_takes_any_integer_for_max_steps(kind):
    batches = jnp.arange(5.0)

    def run(max_steps):
        step = lambda params, state, batch: (params + batch, state + 1.0)
        return run_until(
            step, 0.0, 1.0, batches, tolerance=0.0, max_steps=max_steps, norm=lambda state: state
        )

    assert int(run(kind(4)).steps) == 4
    with pytest.raises(ValueError, match="at least `max_steps` = 6 batches"):
        run(kind(6))
    with pytest.raises(ValueError, match="`max_steps` must be an integer of at least 1"):
        run(kind(0))


def test_run_until_refuses_bad_arguments():
    tx, params = mu2(), jnp.ones(4)
    step, state, batches = make_step(tx), tx.init(params), jnp.ones((20, 4))

    def call(**changes):
        arguments = {"tolerance": 0.1, "max_steps": 20} | changes
        given = arguments.pop("batches", batches)
        given_state = arguments.pop("state", state)
        return run_until(step, params, given_state, given, **arguments)

    with pytest.raises(ValueError, match="`tolerance` must be finite and not negative, got -1"):
        call(tolerance=-1)
    with pytest.raises(ValueError, match="`max_steps` must be an integer of at least 1, got 0"):
        call(max_steps=0)
    with pytest.raises(ValueError, match="`patience` must be an integer of at least 1, got 0"):
        call(patience=0)
    with pytest.raises(ValueError, match=r"at least `max_steps` = 21 batches.*count % n"):
        call(max_steps=21)
    with pytest.raises(ValueError, match=r"exactly one estimate d.*got 0"):
        call(state=optax.sgd(0.1).init(params))
    with pytest.raises(ValueError, match=r"exactly one estimate d.*got 2"):
        call(state=(state, state))
    with pytest.raises(TypeError, match="`step` must be a function"):
        run_until(None, params, state, batches, tolerance=0.1, max_steps=20)
    with pytest.raises(ValueError, match="`tolerance`"):
        NormBelow(float("nan"))
    assert stopping.StopReason.TOLERANCE == 0


@pytest.mark.parametrize("how", ["accumulate_gradients", "reject_nonfinite"])
def test_run_until_does_not_stop_before_there_is_an_estimate(how):
    """d is zero until the first step; that is no small gradient."""
    grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
    if how == "accumulate_gradients":
        tx = mu2_optax.accumulate_gradients(mu2_optax.mu2_sgd(0.1), every=16)
    else:
        tx = mu2_optax.reject_nonfinite(mu2_optax.mu2_sgd(0.1), max_consecutive=100)
    batch = jnp.full(2, jnp.nan if how == "reject_nonfinite" else 0.0)
    params = jnp.ones(2)
    result = stopping.run_until(
        jitted_step(tx, grad_fn),
        params,
        tx.init(params),
        lambda count: batch,
        tolerance=0.1,
        max_steps=15,
        patience=2,
    )
    assert int(result.reason) == stopping.StopReason.MAX_STEPS
    assert not stopping.NormBelow(0.1, patience=1)(tx.init(params))


def test_run_until_refuses_a_step_that_returns_the_loss():
    tx = mu2_optax.mu2_sgd(0.1)
    step = lambda params, state, batch: (params, state, 0.0)
    with pytest.raises(ValueError, match=r"`step` must return \(params, state\), got 3 values"):
        stopping.run_until(
            step, jnp.ones(2), tx.init(jnp.ones(2)), jnp.ones(9), tolerance=0.1, max_steps=9
        )


@pytest.mark.parametrize("scale", [1e-25, 1e25])
def test_estimate_norm_takes_any_float32(scale):
    tx = mu2_optax.storm(0.1, mu2_optax.measured_beta())
    params = jnp.zeros(2)
    state = tx.init(params)
    for grads in scale * jnp.array([[3.0, 1.0], [3.0, -1.0]]):
        _, state = tx.update(grads, state, params, prev_grads=grads)
    np.testing.assert_allclose(mu2_optax.stopping.estimate_norm(state), 3 * scale, rtol=1e-5)
    np.testing.assert_allclose(mu2_optax.error_bar(state).norm_bound, 4 * scale, rtol=1e-5)
    np.testing.assert_allclose(mu2_optax.error_bar(state).noise_scale, 0.25, rtol=1e-5)
