"""Steps with a gradient that is not finite, anywhere, are rejected."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import grad_fn, join, run, samples, split

import mu2_optax
from mu2_optax import mu2_sgd, reject_nonfinite

ZS = samples(64, seed=3).astype(np.float32)
X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3], np.float32)
OPTIMIZERS = {
    "mu2_sgd": mu2_sgd(0.3, mu2_optax.linear_momentum()),
    "mu2_extra_sgd": mu2_optax.mu2_extra_sgd(0.05),
    "storm": mu2_optax.storm(0.3, 0.1),
}


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
