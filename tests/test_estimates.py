"""Corrected estimates of general operators, against exact values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mu2_optax
from mu2_optax.estimates import corrected_estimate

INVERSE_TIME = mu2_optax.polynomial_momentum(0).beta
DATA = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
TARGETS = np.random.default_rng(1).normal(size=64).astype(np.float32)


def loss(x, i):
    """A smooth loss on one sample, with third derivatives; the exact mean is over all 64."""
    return jnp.logaddexp(0.0, jnp.asarray(DATA)[i] @ x - jnp.asarray(TARGETS)[i])


def mean_of(operator):
    return lambda x: jax.tree.map(
        lambda a: jnp.mean(a, 0), jax.vmap(operator, in_axes=(None, 0))(x, jnp.arange(64))
    )


GRAD = jax.grad(loss)
VECTOR = jnp.array([1.0, -1.0, 0.5])


def hessian_product(v, x, i):
    return jax.jvp(lambda x: GRAD(x, i), (x,), (v,))[1]


def statistics(x, i):
    """What BatchNorm would keep: the first two moments of a layer's output."""
    hidden = jnp.tanh(jnp.asarray(DATA)[i] * x)
    return {"mean": hidden, "square": hidden**2}


OPERATORS = {
    "loss": loss,
    "gradient of another loss": jax.grad(lambda x, i: jnp.sum((x - jnp.asarray(DATA)[i]) ** 4)),
    "hessian-vector": functools.partial(hessian_product, VECTOR),
    "hessian": jax.hessian(loss),
    "batch statistics": statistics,
}
DIAGONAL = "hutchinson diagonal"
STEPS, SEEDS = 1000, 16
EARLY, LATE = np.arange(20, 40), np.arange(500, 1000, 25)


def everything(x, batch):
    key, i = batch
    values = {name: operator(x, i) for name, operator in OPERATORS.items()}
    probe = jax.random.rademacher(key, x.shape, x.dtype)
    return values | {DIAGONAL: probe * hessian_product(probe, x, i)}


def exact_values(x):
    operators = OPERATORS | {DIAGONAL: lambda x, i: jnp.diag(jax.hessian(loss)(x, i))}
    return {name: mean_of(operator)(x) for name, operator in operators.items()}


@pytest.fixture(scope="module")
def errors():
    """Squared errors, at EARLY and LATE, of all operators beside an optimizer on a ball.

    Three runs on the same trajectories: with the correction, one batch at a time (beta = 1), and a
    plain running average of the values.
    """
    tx = mu2_optax.mu2_sgd(
        0.3, mu2_optax.linear_momentum(1), projection=mu2_optax.onto_l2_ball(2.0)
    )
    tracked = corrected_estimate(everything, INVERSE_TIME)

    def run(key):
        params = jnp.full(3, 0.5)

        def step(carry, inputs):
            params, state, estimate, average = carry
            t, key = inputs
            draw, probe = jax.random.split(key)
            i = jax.random.randint(draw, (), 0, 64)
            value, estimate = tracked.update(estimate, params, (probe, i))
            once = everything(params, (probe, i))
            average = jax.tree.map(lambda m, a: m + (a - m) / t, average, once)
            updates, state = tx.update(GRAD(params, i), state, params, grad_fn=GRAD, batch=i)
            after = optax.apply_updates(params, updates)
            return (after, state, estimate, average), (params, value, once, average)

        estimate = tracked.init(params, (key, 0))
        first = (params, tx.init(params), estimate, estimate.d)
        inputs = (jnp.arange(1, STEPS + 1), jax.random.split(key, STEPS))
        trajectory = jax.lax.scan(step, first, inputs)[1]
        picked = np.concatenate([EARLY, LATE])
        x, *found = jax.tree.map(lambda a: a[picked], trajectory)
        exact = jax.lax.map(exact_values, x)

        def error(values, name):
            away = jax.tree.map(lambda a, b: (a - b) ** 2, values[name], exact[name])
            return sum(jnp.sum(a.reshape(len(picked), -1), 1) for a in jax.tree.leaves(away))

        return [{name: error(values, name) for name in exact} for values in found]

    return jax.tree.map(
        lambda a: (np.mean(a[:, : len(EARLY)]), np.mean(a[:, len(EARLY) :])),
        jax.jit(jax.vmap(run))(jax.random.split(jax.random.key(0), SEEDS)),
    )


@pytest.mark.parametrize("name", [*OPERATORS, DIAGONAL])
def test_corrected_estimate_error_shrinks_like_one_over_t(errors, name):
    (early, late), (early_once, late_once), (_, late_average) = (run[name] for run in errors)
    # the means of 1/t over EARLY and LATE are 0.034 and 0.0014: a 24-fold fall; ask for half
    assert late < early / 12
    assert late_once > early_once / 2  # one batch stays as noisy as ever
    assert late < late_once / 100
    assert late < 1.5 * late_average  # never much worse than an average, which may be late


def test_corrected_estimate_is_not_late_as_an_average_is():
    # x moves from 1 to 0 along 1/t while the operator x + noise is averaged: the plain average of
    # the values is the mean of the x's, H_t/t, late by log(t)/t; the corrected one has no bias.
    noise = jax.random.normal(jax.random.key(0), (256, 400))
    x = 1 / jnp.arange(1.0, 401.0)
    tracked = corrected_estimate(lambda x, z: x + z, INVERSE_TIME)

    def run(z):
        def step(state, inputs):
            value, state = tracked.update(state, *inputs)
            return state, value

        return jax.lax.scan(step, tracked.init(0.0, 0.0), (x, z))[1]

    corrected = np.asarray(jax.jit(jax.vmap(run))(noise))[:, -1] - float(x[-1])
    plain = np.asarray(jnp.mean(x + noise, 1)) - float(x[-1])
    standard_error = 1 / np.sqrt(400 * 256)
    assert abs(corrected.mean()) < 4 * standard_error
    assert abs(plain.mean() - (np.sum(1 / np.arange(1, 401)) / 400 - 1 / 400)) < 4 * standard_error
    assert abs(plain.mean()) > 4 * abs(corrected.mean())


def test_corrected_estimate_of_the_gradient_is_corrected_momentum():
    tx = mu2_optax.corrected_momentum(0.3)
    tracked = corrected_estimate(GRAD, 0.3)
    params = jnp.zeros(3)
    state, estimate = tx.init(params), tracked.init(params, 0)
    for i in range(20):
        d, state = tx.update(GRAD(params, i), state, params, grad_fn=GRAD, batch=i)
        value, estimate = tracked.update(estimate, params, i)
        np.testing.assert_allclose(d, value, rtol=1e-6, atol=1e-7)
        params = params + 0.1 * jnp.sin(float(i) + jnp.arange(3.0))
    assert int(estimate.t) == 20


def test_corrected_estimate_of_a_constant_sample_is_exact():
    tracked = corrected_estimate(loss, 0.1)
    estimate = tracked.init(jnp.zeros(3), 0)
    for k in range(10):
        params = jnp.full(3, 0.1 * k)
        value, estimate = tracked.update(estimate, params, 7)
        np.testing.assert_allclose(value, loss(params, 7), rtol=1e-5)


def test_corrected_estimate_keeps_shapes_and_float32():
    tracked = corrected_estimate(lambda x, z: {"low": x * z, "sum": jnp.sum(x)}, 0.5)
    params = jnp.ones(2, jnp.bfloat16)
    state = tracked.init(params, jnp.ones((), jnp.bfloat16))
    value, after = tracked.update(state, params, jnp.ones((), jnp.bfloat16))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), value) == {
        "low": ((2,), jnp.float32),
        "sum": ((), jnp.float32),
    }
    assert jax.tree.structure(state) == jax.tree.structure(after)
    assert jax.tree.map(jnp.result_type, state) == jax.tree.map(jnp.result_type, after)


def test_corrected_estimate_survives_donated_params():
    tracked = corrected_estimate(loss, 0.1)
    params = jnp.zeros(3)
    state = tracked.init(params, 0)
    _, state = tracked.update(state, params, 0)
    params = jax.jit(lambda x: x + 1, donate_argnums=0)(params)
    assert not state.x.is_deleted()
    tracked.update(state, params, 1)


def test_corrected_estimate_refuses_bad_arguments():
    with pytest.raises(ValueError, match=r"`beta` must lie in \[0, 1\], got 2"):
        corrected_estimate(loss, 2)
    with pytest.raises(TypeError, match="`operator` must be a function"):
        corrected_estimate(3.0, 0.5)
    with pytest.raises(TypeError, match="`operator` must return floating-point arrays, got int32"):
        corrected_estimate(lambda x, z: jnp.argmax(x), 0.5).init(jnp.ones(3), 0)
    tracked = corrected_estimate(lambda x, z: x * z, 0.5)
    state = tracked.init(jnp.ones(3), 1.0)
    with pytest.raises(ValueError, match="`params` must have the structure of the params given to"):
        tracked.update(state, jnp.ones(4), 1.0)
    with pytest.raises(TypeError, match="`state` must be the CorrectedMomentumState that `init`"):
        tracked.update(jnp.ones(3), state, 1.0)
    with pytest.raises(ValueError, match=r"`operator\(params, batch\)` must have the structure"):
        tracked.update(state, jnp.ones(3), jnp.ones((2, 1)))
