"""bfloat16 params, and what their optimizer remembers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import compiled, grad_fn, join, run, samples, split, x64

import mu2_optax
import mu2_optax.linen
from mu2_optax import corrected_momentum, mu2_sgd
from mu2_optax._internal import trees


@pytest.mark.parametrize(
    ("make", "in_float32", "in_bfloat16", "narrow"),
    [
        (lambda dtype: mu2_optax.mu2_sgd(0.1, state_dtype=dtype), 12, 16, 6),
        (lambda dtype: mu2_optax.mu2_extra_sgd(0.1, state_dtype=dtype), 8, 12, 4),
        (lambda dtype: mu2_optax.mu2_adam(0.1, state_dtype=dtype), 16, 20, 8),
    ],
    ids=["mu2_sgd", "mu2_extra_sgd", "mu2_adam"],
)
def test_mixed_precision_state_takes_the_documented_memory(make, in_float32, in_bfloat16, narrow):
    def bytes_per_parameter(param_dtype, state_dtype):
        state = make(state_dtype).init(jnp.zeros(1000, param_dtype))
        return sum(leaf.nbytes for leaf in jax.tree.leaves(state) if leaf.ndim) / 1000

    assert bytes_per_parameter(jnp.float32, None) == in_float32
    assert bytes_per_parameter(jnp.bfloat16, None) == in_bfloat16
    assert bytes_per_parameter(jnp.bfloat16, jnp.bfloat16) == narrow


def outside(params):
    """What someone else does to the params between steps: less than one last place of bfloat16."""
    return jax.tree.map(lambda p: (0.994 * p).astype(p.dtype), params)


@pytest.mark.parametrize("how", ["eager", "jit", "scan", "vmap"])
@pytest.mark.parametrize("optimizer", [mu2_optax.mu2_sgd, mu2_optax.mu2_extra_sgd])
def test_mixed_precision_keeps_small_changes_from_outside(optimizer, how):
    tx = optimizer(0.0, mu2_optax.fixed_momentum(gamma=0.0))
    steps = 20 if how == "eager" else 300
    start = jnp.array([1.0, -3.0, 0.7], jnp.bfloat16)
    grad_fn = lambda params, batch: jnp.zeros_like(params)

    def step(carry, _):
        params, state = carry
        updates, state = tx.update(0 * params, state, params, grad_fn=grad_fn, batch=())
        return (outside(optax.apply_updates(params, updates)), state), None

    def run(start):
        first = (start, tx.init(start))
        if how in ("scan", "vmap"):
            return jax.lax.scan(step, first, length=steps)[0][0]
        one = jax.jit(step, donate_argnums=0) if how == "jit" else step
        carry = jax.tree.map(jnp.copy, first)
        for _ in range(steps):
            carry, _ = one(carry, None)
        return carry[0]

    expected = start
    for _ in range(steps):
        expected = outside(expected)
    if how == "vmap":
        start, expected = jnp.stack([start, start]), jnp.stack([expected, expected])
    found = {"scan": jax.jit(run), "vmap": jax.jit(jax.vmap(run))}.get(how, run)(start)
    np.testing.assert_array_equal(found.astype(float), expected.astype(float))


@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
@pytest.mark.parametrize("how", ["eager", "jit", "jit of the update alone"])
def test_anytime_in_bfloat16_is_the_rounded_average(narrow, how):
    """Against the average of the iterates in NumPy, in float32."""
    gamma, w, x = 0.02, np.float32([2.0, 3.1, 0.7]), np.float32([1.0, 1.0, 1.0])
    tx = mu2_optax.anytime(optax.sgd(1.0), gamma)
    params = jnp.asarray(x, narrow)
    state = tx.init(params)
    move = lambda params, state, grads: tx.update(grads, state, params)
    apply = optax.apply_updates
    if how != "eager":
        move = jax.jit(move)

    def both(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return apply(params, updates), state

    grads = jnp.asarray(x - w, narrow)
    w = x - np.asarray(grads, np.float32)
    for number in range(100):
        if how == "jit":
            params, state = jax.jit(both)(params, state, grads)
        else:
            updates, state = move(params, state, grads)
            params = apply(params, updates)
        x = x + np.float32(gamma) * (w - x)
        grads = jnp.zeros_like(grads)
        np.testing.assert_array_equal(params, jnp.asarray(state.x).astype(narrow))
        np.testing.assert_allclose(state.x, x, rtol=1e-5, atol=1e-6, err_msg=f"step {number}")


def test_update_survives_the_donation_of_the_params():
    grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
    for tx in (mu2_optax.mu2_sgd(0.1), mu2_optax.mu2_extra_sgd(0.1), mu2_optax.storm(0.1, 0.5)):
        params = jnp.ones(3)
        state = tx.init(params)
        apply = jax.jit(optax.apply_updates, donate_argnums=0)
        for _ in range(2):
            grads = grad_fn(params, 3.0)
            updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=3.0)
            params = apply(params, updates)
        assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize(
    "tx",
    [
        mu2_optax.mu2_sgd(0.1),
        mu2_optax.mu2_extra_sgd(0.1, mu2_optax.fixed_momentum(), weighted_steps=False),
        mu2_optax.mu2_sgd(0.1, lean=True),
    ],
    ids=["mu2_sgd", "mu2_extra_sgd", "lean"],
)
def test_mixed_precision_keeps_small_float16_params(tx):
    """A layer scale of 1e-6 is below the smallest normal float16, 6e-5, and is none the less."""
    params = jnp.array([1e-6, 3e-5, -2e-7, 1.0], jnp.float16)
    still = lambda params, batch: jnp.zeros_like(params)
    pull = lambda params, batch: jnp.array([1e-5, 0, 0, 0], jnp.float16)
    state = tx.init(params)
    for _ in range(3):
        updates, state = tx.update(still(params, ()), state, params, grad_fn=still, batch=())
        assert not np.any(updates)
    for _ in range(30):
        updates, state = tx.update(pull(params, ()), state, params, grad_fn=pull, batch=())
        params = optax.apply_updates(params, updates)
    assert -3.0e-5 < float(params[0]) < -1.5e-5  # w has gone 30 steps of 1e-6 from there
    np.testing.assert_array_equal(params[1:], jnp.array([3e-5, -2e-7, 1.0], jnp.float16))


def test_rounded_is_that_of_numpy_down_to_the_smallest():
    rng = np.random.default_rng(0)
    x = (rng.normal(size=5000) * 10.0 ** rng.integers(-9, 5, 5000)).astype(np.float32)
    found = jax.jit(lambda x: trees.rounded(x, jnp.float16))(x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(found, x.astype(np.float16).astype(np.float32))


# d and its last point, and other dtypes of the state

X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3], np.float32)
ZS = samples(64, seed=3).astype(np.float32)


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
        beta = mu2_optax.polynomial_momentum(0).beta
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


def test_mu2_hands_its_inner_optimizer_the_estimate_as_it_is():
    """Not rounded to the dtype of the params: a rounding is 2⁻⁸ of d, and 2⁻⁷ of its square."""
    tx = compiled(mu2_optax.mu2(optax.trace(decay=0.0)))  # which remembers what it got
    params = jnp.array([1.0, -2.0], jnp.bfloat16)
    grad_fn = lambda x, z: x - z.astype(x.dtype)
    state = tx.init(params)
    for z in jnp.array([0.3, 0.7, -0.1]):
        known = {"grad_fn": grad_fn, "batch": z}
        _, state = tx.update(grad_fn(params, z), state, params, **known)
        np.testing.assert_array_equal(state.averaged.inner_state.trace, state.d)
    assert np.any(state.d != state.d.astype(jnp.bfloat16))
