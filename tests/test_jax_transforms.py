"""A step inside other transforms of JAX: differentiated, nested, held back, cut in two."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import grad_fn, join, loss, run, samples, split, x64

import mu2_optax as m

X1 = np.linspace(-0.5, 0.5, 5)
ZS = samples(12)


def step(tx, params, state, batch):
    grads = grad_fn(params, batch)
    updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
    return optax.apply_updates(params, updates), state


def train(tx, x, batches):
    params = split(x)
    move = lambda carry, batch: (step(tx, *carry, batch), None)
    return jax.lax.scan(move, (params, tx.init(params)), batches)[0][0]


MEASURED = m.linear_momentum(beta=m.measured_beta())
MAKERS = {
    "mu2_sgd": m.mu2_sgd,
    "measured_beta, guarded": lambda rate: m.reject_nonfinite(m.mu2_sgd(rate, MEASURED)),
    "accumulate_gradients": lambda rate: m.accumulate_gradients(m.mu2_sgd(rate), 3),
    "mu2_extra_sgd": m.mu2_extra_sgd,
}


@pytest.mark.parametrize("name", MAKERS)
def test_jax_grad_through_a_run_is_that_of_finite_differences(name):
    with x64():
        x, batches, last = jnp.asarray(X1), jnp.asarray(ZS[:6]), jnp.asarray(ZS[6])
        final = jax.jit(lambda rate: loss(train(MAKERS[name](rate), x, batches), last))
        found, h = jax.grad(final)(0.05), 1e-6
        np.testing.assert_allclose(found, (final(0.05 + h) - final(0.05 - h)) / (2 * h), rtol=1e-5)


@pytest.mark.parametrize("name", MAKERS)
def test_jax_cond_leaves_no_trace_of_the_other_branch(name):
    tx, batches = MAKERS[name](0.05), jnp.asarray(ZS, jnp.float32)
    x = jnp.asarray(X1, jnp.float32)

    def perhaps(i, carry):
        take = lambda: step(tx, *carry, batches[i])
        return jax.lax.cond(i % 2 == 0, take, lambda: carry)

    params = split(x)
    carry = (params, tx.init(params))
    found, _ = jax.jit(lambda: jax.lax.fori_loop(0, len(ZS), perhaps, carry))()
    np.testing.assert_allclose(join(found), join(train(tx, x, batches[::2])), rtol=1e-5)


def test_jax_vmap_of_momenta_equals_separate_runs():
    params, zs = split(jnp.asarray(X1, jnp.float32)), jnp.asarray(ZS, jnp.float32)

    def final(gamma, power):
        fixed, _ = run(m.mu2_sgd(0.3, m.fixed_momentum(gamma=gamma)), params, zs)
        grown, _ = run(m.mu2_sgd(0.3, m.polynomial_momentum(power)), params, zs)
        return jax.tree.map(lambda points: points[-1], (fixed, grown))

    gammas, powers = jnp.array([0.05, 0.5]), jnp.array([0.5, 2.0])
    together = jax.jit(jax.vmap(final))(gammas, powers)
    for i in range(2):
        alone = final(float(gammas[i]), float(powers[i]))
        for batched, single in zip(together, alone, strict=True):
            lane = jax.tree.map(lambda a, i=i: a[i], batched)
            np.testing.assert_allclose(join(lane), join(single), rtol=0, atol=1e-5)
