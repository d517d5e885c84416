"""JAX's own strict modes, and mistakes that would otherwise end in an error from deep inside."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.training import train_state
from problems import jitted_step

import mu2_optax as m
from mu2_optax import lmo, value_and_grad

grad_fn = jax.grad(lambda x, z: jnp.sum((x - z.astype(x.dtype)) ** 2))

STRICT = {
    "linear": m.mu2_sgd(0.1, m.linear_momentum(), weighted_steps=True),
    "uniform": m.mu2_sgd(0.1, m.polynomial_momentum(0), weighted_steps=True),
    "polynomial": m.mu2_sgd(0.1, m.polynomial_momentum(2.5), weighted_steps=True),
    "extra": m.mu2_extra_sgd(0.1),
    "storm": m.storm(0.1, 0.5),
    "projection": m.mu2_sgd(0.1, projection=m.onto_l2_ball(1.0)),
    "narrow state": m.mu2_sgd(0.1, state_dtype=jnp.bfloat16),
    "guard": m.reject_nonfinite(m.mu2_sgd(0.1)),
    "l2": m.mu2_frank_wolfe(lmo.l2_ball(1.0)),
    "l1": m.mu2_frank_wolfe(lmo.l1_ball(1.0)),
    "simplex": m.mu2_frank_wolfe(lmo.simplex()),
    "spectral": m.mu2_frank_wolfe(lmo.spectral_ball(1.0)),
    "newton_schulz": m.mu2_frank_wolfe(lmo.spectral_ball(1.0, iterations=30)),
}


def two_steps(tx, dtype, grad_fn=grad_fn, batch=None):
    params = jnp.array([1.0, 2.0, -0.5], dtype)
    state = tx.init(params)
    batch = jnp.full(3, 0.25) if batch is None else batch
    step = jitted_step(tx, grad_fn)
    for _ in range(2):
        params, state = step(params, state, batch)
    return params


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, "bfloat16") for name in STRICT] + [("linear", "float32")]
)
def test_strict_dtype_promotion_changes_nothing(name, dtype):
    expected = two_steps(STRICT[name], dtype)
    with jax.numpy_dtype_promotion("strict"):
        found = two_steps(STRICT[name], dtype)
    np.testing.assert_array_equal(found.astype(float), expected.astype(float))


def test_strict_key_reuse_passes_a_cloned_key():
    def loss(x, batch, once_more):
        key = jax.random.clone(batch) if once_more else batch
        return jnp.sum(x**2 * jax.random.bernoulli(key, 0.5, x.shape))

    def run(once_more):
        grad_fn = jax.grad(lambda x, batch: loss(x, batch, once_more))
        key = jax.random.key(0)
        params, tx = jnp.ones(3), m.mu2_sgd(0.1)

        @jax.jit
        def step(params, state, key):
            grads = grad_fn(params, key)
            return tx.update(grads, state, params, grad_fn=grad_fn, batch=key)

        return step(params, tx.init(params), key)

    with jax.debug_key_reuse(True):
        run(once_more=True)
        with pytest.raises(jax.errors.KeyReuseError):
            run(once_more=False)


def test_inject_hyperparams_names_what_must_be_static():
    params = jnp.ones(3)
    with pytest.raises(TypeError, match=r'`state_dtype` must be a dtype .*static_args=\("state'):
        optax.inject_hyperparams(m.mu2_sgd)(0.1, state_dtype=jnp.float32).init(params)
    with pytest.raises(TypeError, match=r'`lmo` must be a function .*static_args=\("lmo"'):
        optax.inject_hyperparams(m.mu2_frank_wolfe)(lmo.l2_ball(1.0)).init(params)
    with pytest.raises(TypeError, match=r'`projection` .*static_args=\("projection"'):
        optax.inject_hyperparams(m.mu2_sgd)(0.1, projection=m.onto_l2_ball(1.0)).init(params)
    static = optax.inject_hyperparams(m.mu2_sgd, static_args=("state_dtype", "projection"))
    two_steps(static(0.1, state_dtype=jnp.float32, projection=m.onto_l2_ball(1.0)), "float32")
    two_steps(
        optax.inject_hyperparams(m.mu2_frank_wolfe, static_args=("lmo",))(lmo.l2_ball(1.0)),
        "float32",
    )


def test_update_refuses_a_state_without_a_schedule():
    params = jnp.ones(3)
    state = m.mu2_sgd(0.1).init(params)
    tx = m.mu2_sgd(optax.linear_schedule(0.1, 0.0, 100))
    with pytest.raises(ValueError, match="a number where this one has a schedule"):
        tx.update(params, state, params, prev_grads=params)


def test_linen_train_state_is_named_by_the_one_of_flax():
    class Forwarding(train_state.TrainState):
        """Flax's own would refuse these fields; a subclass that has them keeps them to itself."""

        grad_fn: object = None
        batch: object = None

    params = {"w": jnp.ones(2)}
    state = Forwarding.create(apply_fn=None, params=params, tx=m.mu2_sgd(0.1))
    loss_fn = lambda params: jnp.sum(params["w"] ** 2)
    _, grads, again = value_and_grad(loss_fn)(params)
    with pytest.raises(ValueError, match=r"`grad_fn` was not given.*`mu2_optax.linen.TrainState`"):
        state.apply_gradients(grads=grads, **again)
