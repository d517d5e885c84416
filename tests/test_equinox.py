"""Equinox needs no adapter: the recipe of the documentation, tested."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mu2_optax

TX = mu2_optax.mu2_sgd(0.1)


class Network(eqx.Module):
    first: eqx.nn.Linear
    dropout: eqx.nn.Dropout
    second: eqx.nn.Linear

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.first = eqx.nn.Linear(3, 8, key=first)
        self.dropout = eqx.nn.Dropout(0.5)
        self.second = eqx.nn.Linear(8, 1, key=second)

    def __call__(self, x, key):
        return self.second(self.dropout(jax.nn.relu(self.first(x)), key=key))


def loss_fn(params, static, batch):
    model = eqx.combine(params, static)
    x, y, keys = batch
    return jnp.mean((jax.vmap(model)(x, keys)[:, 0] - y) ** 2)


@eqx.filter_jit
def train_step(model, state, batch):
    params, static = eqx.partition(model, eqx.is_inexact_array)
    grad_fn = jax.grad(lambda params, batch: loss_fn(params, static, batch))
    grads = grad_fn(params, batch)
    updates, state = TX.update(grads, state, params, grad_fn=grad_fn, batch=batch)
    return eqx.apply_updates(model, updates), state


def batches(steps):
    rng = np.random.default_rng(0)
    keys = jax.random.split(jax.random.key(1), (steps, 16))
    for number in range(steps):
        x = rng.normal(size=(16, 3)).astype(np.float32)
        yield x, np.sin(x.sum(1)), keys[number]


def test_equinox_recipe_follows_a_step_written_by_hand():
    model = Network(jax.random.key(0))
    params, static = eqx.partition(model, eqx.is_inexact_array)
    state = TX.init(params)
    grad = jax.jit(lambda params, batch: jax.grad(loss_fn)(params, static, batch))
    x = w = previous = params
    d = None
    for batch in batches(10):
        model, state = train_step(model, state, batch)
        g, g_previous = grad(x, batch), grad(previous, batch)
        d = g if d is None else jax.tree.map(lambda g, d, p: g + 0.1 * (d - p), g, d, g_previous)
        previous = x
        w = jax.tree.map(lambda w, d: w - 0.1 * d, w, d)
        x = jax.tree.map(lambda x, w: x + 0.1 * (w - x), x, w)
    found = eqx.filter(model, eqx.is_inexact_array)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), found, x)


def test_equinox_whole_model_as_params_is_refused():
    model = Network(jax.random.key(0))
    params = eqx.filter(model, eqx.is_inexact_array)
    state = TX.init(params)
    grads = jax.tree.map(jnp.zeros_like, params)
    with pytest.raises((TypeError, ValueError), match="`params` must"):
        TX.update(grads, state, model, prev_grads=grads)


def test_equinox_gradient_of_the_whole_model_is_refused():
    """``grad_fn`` is called with the arrays alone: functions in the model are None there."""
    model = eqx.nn.MLP(3, 1, 4, 1, key=jax.random.key(0))
    grad_fn = eqx.filter_grad(lambda model, x: jnp.mean(jax.vmap(model)(x) ** 2))
    params = eqx.filter(model, eqx.is_inexact_array)
    batch = np.ones((2, 3), np.float32)
    with pytest.raises(TypeError, match=r"some leaves are None.*eqx.combine\(params, static\)"):
        TX.update(params, TX.init(params), params, grad_fn=grad_fn, batch=batch)
