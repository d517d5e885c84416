"""Microbatches, rejected steps, partial trees and narrow dtypes, where a plain loop goes wrong."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import batch_grad, grad_fn, join, run, samples, split, x64

import mu2_optax
from mu2_optax import accumulate, corrected_momentum, mu2_sgd, reject_nonfinite

ZS = samples(64, seed=3).astype(np.float32)
X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3], np.float32)
OPTIMIZERS = {
    "mu2_sgd": mu2_sgd(0.3, mu2_optax.linear_momentum()),
    "mu2_extra_sgd": mu2_optax.mu2_extra_sgd(0.05),
    "storm": mu2_optax.storm(0.3, 0.1),
}


# Microbatches


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_accumulate_equals_the_big_batch(name):
    tx = OPTIMIZERS[name]
    params = split(jnp.array(X1))
    big = jnp.array(samples(20 * 16).astype(np.float32)).reshape(20, 16, 6)
    micro = big.reshape(20, 4, 4, 6)
    one, _ = run(tx, params, big, batch_grad)
    two, _ = run(tx, params, micro, accumulate(batch_grad))
    np.testing.assert_allclose(join(one), join(two), rtol=0, atol=1e-6)


def test_accumulate_keeps_the_memory_of_one_microbatch():
    params = split(jnp.array(X1))
    jitted = jax.jit(accumulate(batch_grad))

    def temporary_bytes(count):
        shape = jax.ShapeDtypeStruct((count, 4096, 6), jnp.float32)
        return jitted.lower(params, shape).compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(64) < 1.5 * temporary_bytes(2)


def test_accumulate_of_integers_is_no_integer():
    correct = mu2_optax.accumulate(lambda params, batch: jnp.sum(batch > 0))
    found = correct(None, jnp.array([[1.0, -1.0], [1.0, 1.0]]))
    assert float(found) == 1.5


def test_accumulate_sums_in_float32():
    """300 gradients of 1 and a sum in bfloat16, which stands still at 256."""
    grad = lambda params, batch: batch.astype(jnp.bfloat16)
    total = accumulate(grad)(jnp.array(0.0, jnp.bfloat16), jnp.ones(300))
    assert total.dtype == jnp.bfloat16
    assert float(total) == 1.0


# Steps that are not finite


def poisoned(where, value):
    """A gradient that is ``value`` at call number ``where`` of a step if the batch is marked."""
    calls = iter(range(10**6))

    def gradient(params, batch):
        z, marked = batch
        call = next(calls)
        bad = marked & (call == where)
        return jax.tree.map(lambda g: jnp.where(bad, value, g), grad_fn(params, z))

    return gradient


@pytest.mark.parametrize("value", [jnp.nan, jnp.inf])
@pytest.mark.parametrize(
    ("name", "call"),
    [("mu2_sgd", 0), ("mu2_sgd", 1), ("storm", 1)] + [("mu2_extra_sgd", call) for call in range(3)],
)
def test_reject_nonfinite_rejects_at_any_point(name, call, value):
    """Calls 0, 1, 2 are the gradient at params, and those the optimizer asks for."""
    tx = reject_nonfinite(OPTIMIZERS[name])
    params = split(jnp.array(X1))
    state = tx.init(params)

    def take(params, state, z, marked):
        gradient = poisoned(call, value)  # the calls of one step, counted at trace time
        batch = (z, marked)
        grads = gradient(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=gradient, batch=batch)
        return optax.apply_updates(params, updates), state

    step = jax.jit(take)
    for i, z in enumerate(jnp.array(ZS)):
        before = params, state
        params, state = step(params, state, z, i % 10 == 5)
        if i % 10 == 5:
            np.testing.assert_array_equal(join(params), join(before[0]))
            unchanged = jax.tree.map(jnp.array_equal, state.inner_state, before[1].inner_state)
            assert all(map(bool, jax.tree.leaves(unchanged)))
    assert int(state.total) == 6
    assert int(state.consecutive) == 0
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves((params, state)))
    kept = jnp.array([z for i, z in enumerate(ZS) if i % 10 != 5])
    clean, _ = run(OPTIMIZERS[name], split(jnp.array(X1)), kept)
    np.testing.assert_allclose(join(params), join(clean)[-1], rtol=0, atol=1e-5)


def test_reject_nonfinite_gives_up_after_max_consecutive():
    tx = reject_nonfinite(optax.sgd(0.1), max_consecutive=3)
    params = jnp.array(1.0)
    state = tx.init(params)
    for expected in [1, 2, 3]:
        updates, state = tx.update(jnp.array(jnp.nan), state, params)
        assert float(updates) == 0
        assert int(state.consecutive) == expected
    updates, state = tx.update(jnp.array(jnp.nan), state, params)
    assert np.isnan(float(updates))
    assert int(state.total) == 4


def test_reject_nonfinite_allows_an_infinity_in_the_state():
    tx = reject_nonfinite(optax.contrib.reduce_on_plateau())  # its best value starts at infinity
    params = jnp.array(1.0)
    state = tx.init(params)
    assert any(bool(jnp.isinf(leaf)) for leaf in jax.tree.leaves(state))
    updates, state = tx.update(params, state, params, value=jnp.array(2.0))
    assert float(updates) == 1.0
    assert int(state.total) == 0


# Partial trees


def test_masked_around_prev_grads_trains_a_part():
    mask = {"matrix": True, "rest": [False]}
    masked = optax.masked(mu2_sgd(0.3), mask, mask_compatible_extra_args=True)
    frozen = lambda params, z: {**grad_fn(params, z), "rest": [jnp.zeros(())]}
    params = previous = split(jnp.array(X1))
    state = masked.init(params)
    for z in jnp.array(ZS[:20]):
        grads, prev_grads = mu2_optax.grad_pair(frozen)(params, previous, z)
        previous = params
        updates, state = masked.update(grads, state, params, prev_grads=prev_grads)
        params = optax.apply_updates(params, updates)
    expected, _ = run(mu2_sgd(0.3), split(jnp.array(X1)), jnp.array(ZS[:20]), frozen)
    np.testing.assert_allclose(join(params), join(expected)[-1], rtol=0, atol=1e-6)


def test_partition_after_the_correction_holds_a_layer():
    labels = {"matrix": "train", "rest": ["freeze"]}
    partition = optax.partition(
        {"train": mu2_optax.anytime(optax.sgd(0.3), 0.1), "freeze": optax.set_to_zero()}, labels
    )
    points, _ = run(
        optax.chain(corrected_momentum(0.9), partition), split(jnp.array(X1)), jnp.array(ZS)
    )
    assert (join(points)[:, 4] == X1[4]).all()

    def frozen(params, z):
        return {**grad_fn(params, z), "rest": [jnp.zeros(())]}

    expected, _ = run(mu2_sgd(0.3), split(jnp.array(X1)), jnp.array(ZS), frozen)
    np.testing.assert_allclose(join(points)[:, :4], join(expected)[:, :4], rtol=0, atol=1e-6)


def test_momenta_can_be_swept_under_vmap():
    params = split(jnp.array(X1))

    def final(gamma, power):
        fixed, _ = run(mu2_sgd(0.3, mu2_optax.fixed_momentum(gamma=gamma)), params, ZS)
        grown, _ = run(mu2_sgd(0.3, mu2_optax.polynomial_momentum(power)), params, ZS)
        return jax.tree.map(lambda points: points[-1], (fixed, grown))

    gammas, powers = jnp.array([0.05, 0.5]), jnp.array([0.5, 2.0])
    together = jax.jit(jax.vmap(final))(gammas, powers)
    for i in range(2):
        alone = final(float(gammas[i]), float(powers[i]))
        for batched, single in zip(together, alone, strict=True):
            lane = jax.tree.map(lambda a, i=i: a[i], batched)
            np.testing.assert_allclose(join(lane), join(single), rtol=0, atol=1e-5)


# Precision


def test_corrected_momentum_keeps_a_beta_injected_in_bfloat16():
    """``inject_hyperparams`` casts β = 0.001 to bfloat16, where 1 - β would be 1."""
    factory = optax.inject_hyperparams(lambda beta: corrected_momentum(beta))
    params = jnp.ones(3, jnp.bfloat16)
    tx = factory(beta=0.001)
    state = tx.init(params)
    constant = lambda params, batch: batch
    _, state = tx.update(params, state, params, grad_fn=constant, batch=params)
    zero = 0 * params
    for _ in range(100):
        _, state = tx.update(zero, state, params, grad_fn=constant, batch=zero)
    # With g = g̃ = 0, d decays by 1 - β in each step: 0.999^100 = 0.905.
    np.testing.assert_allclose(state.inner_state.d, 0.999**100, rtol=1e-3)


def test_corrected_momentum_needs_a_float32_state():
    """The gradients and the points are the same; only the dtype that d is kept in differs."""
    zs = jnp.array(samples(200, seed=5).astype(np.float32))

    def final(state_dtype):
        beta = mu2_optax.uniform_momentum().beta
        tx = optax.chain(corrected_momentum(beta, state_dtype=state_dtype), optax.scale(0.0))
        _, state = run(tx, split(jnp.array(X1)), zs)
        return join(jax.tree.map(lambda d: d.astype(jnp.float32), state[0].d))

    with x64():
        exact = final(jnp.float64)
    error = lambda d: np.linalg.norm(d - exact) / np.linalg.norm(exact)
    assert error(final(None)) < 1e-5
    assert error(final(jnp.bfloat16)) > 100 * error(final(None))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_mu2_sgd_keeps_the_last_point_exactly(dtype):
    """``state.x`` is the previous params to the last bit, even in a narrower state."""
    tx = mu2_sgd(0.3, state_dtype=jnp.bfloat16)
    params = split(jnp.array(X1, dtype))
    grads = grad_fn(params, jnp.array(ZS[0], dtype))
    _, state = tx.update(grads, tx.init(params), params, prev_grads=grads)
    assert state.d["matrix"].dtype == jnp.bfloat16
    assert state.w["matrix"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(join(state.x), join(params))


def test_state_dtype_float64_leaves_params_in_float32():
    with x64():
        tx = mu2_sgd(0.3, state_dtype=jnp.float64)
        params = split(jnp.array(X1, jnp.float32))
        points, state = run(tx, params, jnp.array(ZS, jnp.float32))
        assert points["matrix"].dtype == jnp.float32
        assert {leaf.dtype.name for leaf in jax.tree.leaves(state)} == {"int32", "float64"}


@pytest.mark.parametrize("dtype", [jnp.int32, "int8", bool, jnp.complex64])
@pytest.mark.parametrize(
    "make",
    [
        mu2_sgd,
        mu2_optax.mu2_extra_sgd,
        lambda rate, **dtype: mu2_optax.storm(rate, 0.1, **dtype),
        lambda rate, **dtype: mu2_optax.anytime(optax.sgd(rate), 0.1, **dtype),
    ],
)
def test_state_dtype_must_be_a_real_float(make, dtype):
    with pytest.raises(ValueError, match=r"`state_dtype` must be a real floating-point .* got "):
        make(0.1, state_dtype=dtype).init(split(jnp.array(X1)))


@pytest.mark.parametrize("state_dtype", [None, jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("make", [mu2_sgd, mu2_optax.mu2_extra_sgd])
def test_state_dtype_keeps_the_imaginary_part_of_params(make, state_dtype):
    """The loss |x - z|² is minimal at z, a real and a complex leaf in one tree."""
    target = {"c": jnp.array([1 + 2j, -3j]), "r": jnp.array(0.5)}

    def gradient(params, batch):
        del batch
        return jax.tree.map(lambda p, z: p - z, params, target)

    tx = make(0.1, state_dtype=state_dtype)
    params = jax.tree.map(jnp.zeros_like, target)
    points, state = run(tx, params, jnp.zeros(500), gradient)
    np.testing.assert_allclose(points["c"][-1], target["c"], atol=2e-2)
    np.testing.assert_allclose(points["r"][-1], target["r"], atol=2e-2)
    assert state.d["c"].dtype == jnp.complex64
    assert state.d["r"].dtype == (state_dtype or jnp.float32)
