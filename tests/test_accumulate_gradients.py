"""Many microbatches make one step: across calls, and in one call with auxiliary data."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import compiled, grad_fn, join, loss, run, samples, split

import mu2_optax
from mu2_optax import accumulate_gradients, mu2_sgd, value_and_grad

X1 = jnp.array([0.3, -0.2, 0.1, 0.4, -0.3], jnp.float32)
BIG = jnp.array(samples(20 * 16).astype(np.float32)).reshape(20, 16, 6)
OPTIMIZERS = {
    "mu2_sgd": mu2_sgd(0.3, mu2_optax.linear_momentum()),
    "mu2_adam, decayed": mu2_optax.mu2_adam(0.05, weight_decay=0.1),
    "storm": mu2_optax.storm(0.3, 0.1),
    "anytime_sgd": mu2_optax.anytime_sgd(0.3, mu2_optax.linear_momentum()),
    "sgd": optax.sgd(0.3),
    "in a chain": optax.chain(
        mu2_optax.corrected_momentum(0.1),
        optax.clip_by_global_norm(0.1),
        mu2_optax.anytime(optax.sgd(0.3), 0.2),
    ),
    "reject_nonfinite": mu2_optax.reject_nonfinite(mu2_sgd(0.3)),
    "injected": optax.inject_hyperparams(mu2_sgd)(0.3),
}


def batch_loss(params, zs):
    return jnp.mean(jax.vmap(loss, in_axes=(None, 0))(params, zs))


batch_grad = jax.grad(batch_loss)


@pytest.mark.parametrize(
    ("name", "every"), [(name, 4) for name in OPTIMIZERS] + [("mu2_sgd", 1), ("in a chain", 8)]
)
def test_accumulate_gradients_equals_the_big_batch(name, every):
    tx = OPTIMIZERS[name]
    small = BIG.reshape(20 * every, 16 // every, 6)
    one, state = run(tx, split(X1), BIG, batch_grad)
    many, collected = run(accumulate_gradients(tx, every), split(X1), small, batch_grad)
    np.testing.assert_allclose(join(many)[every - 1 :: every], join(one), rtol=0, atol=1e-6)
    for a, b in zip(jax.tree.leaves(collected.inner_state), jax.tree.leaves(state), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)


def test_accumulate_gradients_holds_params_between_steps():
    points, state = run(accumulate_gradients(mu2_sgd(0.3), 4), split(X1), BIG[:6], batch_grad)
    moves = np.abs(np.diff(np.concatenate([X1[None], join(points)]), axis=0)).max(axis=1)
    assert [bool(move > 0) for move in moves] == [False, False, False, True, False, False]
    assert int(state.calls) == 2
    assert int(state.inner_state.t) == 1


def test_accumulate_gradients_takes_prev_grads():
    tx, gradient = compiled(accumulate_gradients(mu2_sgd(0.3), 2)), jax.jit(batch_grad)
    params = split(X1)
    state = tx.init(params)
    for zs in BIG[:6]:
        grads, prev_grads = gradient(params, zs), gradient(state.inner_state.x, zs)
        one, _ = tx.update(grads, state, params, prev_grads=prev_grads)
        two, state = tx.update(grads, state, params, grad_fn=batch_grad, batch=zs)
        np.testing.assert_allclose(join(one), join(two), rtol=0, atol=1e-7)
        params = optax.apply_updates(params, two)


def test_accumulate_gradients_sums_in_float32():
    """300 gradients of 1 and a sum in bfloat16, which stands still at 256."""
    tx = accumulate_gradients(optax.sgd(1.0), 300)
    ones = lambda params, batch: jnp.ones_like(params)
    points, _ = run(tx, jnp.zeros(1, jnp.bfloat16), jnp.zeros(300), ones)
    assert float(points[-1, 0]) == -1.0


def test_accumulate_gradients_refuses_what_needs_an_unknown_point():
    with pytest.raises(ValueError, match=r"no mu2_extra_sgd, got .* Mu2ExtraState; use `value_"):
        accumulate_gradients(mu2_optax.mu2_extra_sgd(0.1), 2).init(split(X1))
    two = optax.chain(mu2_optax.corrected_momentum(0.1), mu2_optax.corrected_momentum(0.1))
    with pytest.raises(ValueError, match=r"at most one corrected momentum .* got a state with Co"):
        accumulate_gradients(two, 2).init(split(X1))
    for every in (0, 1.5, True):
        with pytest.raises(ValueError, match="`every` must be an integer of at least 1"):
            accumulate_gradients(mu2_sgd(0.1), every)


def test_accumulate_gradients_goes_inside_hold_fixed():
    params, mask = {"a": jnp.ones(2), "b": jnp.ones(())}, {"a": False, "b": True}
    tx = mu2_optax.accumulate_gradients(mu2_optax.hold_fixed(mu2_optax.mu2_sgd(0.1), mask), 2)
    with pytest.raises(ValueError, match="Put `hold_fixed` around `accumulate_gradients`"):
        tx.init(params)
    tx = mu2_optax.hold_fixed(mu2_optax.accumulate_gradients(mu2_optax.mu2_sgd(0.1), 2), mask)
    updates, _ = tx.update(params, tx.init(params), params, prev_grads=params)
    assert jax.tree.map(jnp.shape, updates) == jax.tree.map(jnp.shape, params)


def test_accumulate_gradients_needs_grad_fn_in_every_call():
    tx = accumulate_gradients(mu2_sgd(0.1), 2)
    with pytest.raises(ValueError, match="`accumulate_gradients` evaluates the gradient again"):
        tx.update(split(X1), tx.init(split(X1)), split(X1))


# value_and_grad


def with_aux(params, zs, *, scale=1.0):
    losses = jax.vmap(loss, in_axes=(None, 0))(params, zs)
    return scale * jnp.mean(losses), {"losses": losses, "first": zs[0]}


def test_value_and_grad_is_that_of_jax_and_evaluates_again():
    (value, aux), grads, again = value_and_grad(with_aux, has_aux=True)(
        split(X1), BIG[0], scale=2.0
    )
    own = jax.value_and_grad(functools.partial(with_aux, scale=2.0), has_aux=True)
    (expected, expected_aux), expected_grads = own(split(X1), BIG[0])
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_array_equal(aux["losses"], expected_aux["losses"])
    np.testing.assert_allclose(join(grads), join(expected_grads), rtol=1e-6)
    elsewhere = split(2 * X1)
    _, there = own(elsewhere, BIG[0])
    second = again["grad_fn"](elsewhere, again["batch"])
    np.testing.assert_allclose(join(second), join(there), rtol=1e-6)
    value, grads, _ = value_and_grad(loss)(split(X1), BIG[0, 0])
    np.testing.assert_allclose(value, loss(split(X1), BIG[0, 0]), rtol=1e-6)
    np.testing.assert_allclose(join(grads), join(grad_fn(split(X1), BIG[0, 0])), rtol=1e-6)


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("tx", [OPTIMIZERS["mu2_sgd"], mu2_optax.mu2_extra_sgd(0.05)])
def test_value_and_grad_with_aux_gives_the_run_without(tx, accumulate):
    evaluate = value_and_grad(with_aux, has_aux=True, accumulate=accumulate)

    @jax.jit
    def step(params, state, zs):
        (_, aux), grads, again = evaluate(params, zs.reshape(4, 4, 6) if accumulate else zs)
        updates, state = tx.update(grads, state, params, **again)
        return optax.apply_updates(params, updates), state, aux

    params = split(X1)
    state = tx.init(params)
    for zs in BIG:
        params, state, aux = step(params, state, zs)
    expected, _ = run(tx, split(X1), BIG, batch_grad)
    np.testing.assert_allclose(join(params), join(expected)[-1], rtol=0, atol=1e-6)
    assert aux["losses"].shape == ((4, 4) if accumulate else (16,))


def test_value_and_grad_keeps_the_memory_of_one_microbatch():
    evaluate = value_and_grad(batch_loss, accumulate=True)
    jitted = jax.jit(lambda params, zs: evaluate(params, zs)[1])

    def temporary_bytes(count):
        shape = jax.ShapeDtypeStruct((count, 4096, 6), jnp.float32)
        return jitted.lower(split(X1), shape).compile().memory_analysis().temp_size_in_bytes

    assert temporary_bytes(64) < 1.5 * temporary_bytes(2)


def test_value_and_grad_accumulates_in_float32():
    """300 gradients of 1 and a sum in bfloat16, which stands still at 256."""
    evaluate = value_and_grad(lambda x, z: jnp.sum(x * z), accumulate=True)
    x = jnp.array(0.0, jnp.bfloat16)
    _, total, _ = evaluate(x, jnp.ones(300, jnp.bfloat16))
    assert total.dtype == jnp.bfloat16
    assert float(total) == 1.0
