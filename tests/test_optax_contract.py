"""What Optax asks of its own optimizers and ``test_contract.py`` does not ask of ours.

References:
  The suites of Optax: ``alias_test``, ``sharding_test``, ``contrib/_common_test``.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from optimizers import MECHANISMS, each_of, every_optimizer
from problems import x64

import mu2_optax as m

MATRICES = [-np.ones((2, 3), np.float32), np.ones((2, 5, 2), np.float32)]
halved = lambda params, batch: jax.tree.map(lambda p: p * batch.astype(p.dtype), params)
AGAIN = {"grad_fn": halved, "batch": jnp.float32(0.5)}

every_mechanism_and_orthogonal_steps = each_of([*MECHANISMS, "mu2_auto spectral"])


def first_step(tx, params):
    """The updates of a first step, and the state after it, each compiled as a whole."""
    state = jax.jit(tx.init)(params)
    update = lambda state, params: tx.update(halved(params, AGAIN["batch"]), state, params, **AGAIN)
    return jax.jit(update)(state, params)


@every_optimizer
def test_optax_map_params_of_nothing_changes_no_state_of_matrices(case):
    tx = case.make(case.rate)
    for state in (tx.init(MATRICES), first_step(tx, MATRICES)[1]):
        mapped = optax.tree.map_params(tx, lambda leaf: leaf, state)
        jax.tree.map(np.testing.assert_array_equal, mapped, state)


@every_mechanism_and_orthogonal_steps
def test_optax_map_params_shards_what_has_the_shape_of_its_param(case):
    tx = case.make(case.rate)
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("x"))
    params, placed = {"w": jnp.ones((16, 4)), "b": jnp.ones(4)}, {"w": rows, "b": whole}
    place = lambda leaf, p, sharding: sharding if leaf.shape == p.shape else whole
    shapes = jax.eval_shape(tx.init, params)
    shardings = optax.tree.map_params(
        tx, place, shapes, params, placed, transform_non_params=lambda _: whole
    )
    state = jax.jit(tx.init, out_shardings=shardings)(params)
    for leaf in jax.tree.leaves(state):
        assert leaf.sharding == (rows if leaf.shape == (16, 4) else whole)


INJECTED = [
    (m.mu2_sgd, {"learning_rate": 0.1, "weight_decay": 0.01}),
    (m.mu2_adam, {"learning_rate": 1e-3, "b2": 0.99, "eps": 1e-6}),
    (m.mu2_adam, {"learning_rate": 1e-3, "b2": 0.99, "eps": 1e-6, "weight_decay": 0.01}),
    (m.mu2_extra_sgd, {"learning_rate": 0.1}),
    (functools.partial(m.anytime_sgd, momentum=m.polynomial_momentum(0)), {"learning_rate": 0.1}),
    (m.storm, {"learning_rate": 0.1, "beta": 0.3}),
    (m.mu2_auto, {"first_step": 0.5, "weight_decay": 0.01}),
    (functools.partial(m.mu2_auto, spectral=True), {"first_step": 0.5}),
]


@pytest.mark.parametrize(("factory", "numbers"), INJECTED)
def test_optax_injected_numbers_change_neither_updates_nor_state(factory, numbers):
    objects = set(inspect.signature(factory).parameters) - set(numbers)
    injected = optax.inject_hyperparams(factory, static_args=tuple(objects))(**numbers)
    updates, state = first_step(injected, MATRICES)
    expected, expected_state = first_step(factory(**numbers), MATRICES)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    jax.tree.map(close, (updates, state.inner_state), (expected, expected_state))


@every_optimizer
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_optax_multi_steps_wait_for_the_last_gradient(case, dtype):
    tx = optax.MultiSteps(case.make(case.rate), every_k_schedule=4)
    updates, _ = first_step(tx, jnp.array([1.0, 2.0], dtype))
    assert updates.dtype == dtype
    np.testing.assert_array_equal(updates, jnp.zeros_like(updates))


@every_mechanism_and_orthogonal_steps
@pytest.mark.parametrize("dtype", ["float16", "complex64", "complex128"])
def test_optax_state_keeps_its_types_in_a_branch(case, dtype):
    with x64():
        tx = case.make(case.rate)
        params = jnp.array([[-1.0, 10.0], [1.0, 2.0]], dtype)
        state = tx.init(params)

        def step(go, params, state):
            update = lambda: tx.update(params, state, params, **AGAIN)
            updates, state = jax.lax.cond(go, update, lambda: (params, state))
            return optax.apply_updates(params, updates), state

        types = jax.tree.map(jax.typeof, (params, state))
        assert jax.tree.map(jax.typeof, jax.eval_shape(step, True, params, state)) == types


@each_of(MECHANISMS)
def test_optax_complex_params_converge(case):
    """|x − x*|² with a complex x*; as everywhere in Optax, gradients come in conjugated."""
    tx = case.make(case.rate)
    minimum = jnp.array([1 + 1j, -1 - 1j, 1 + 1j])
    loss = lambda x: jnp.sum(jnp.square(jnp.abs(x - minimum)))
    gradient = lambda x, batch: jax.grad(loss)(x).conj()

    def step(carry, _):
        params, state = carry
        known = {"grad_fn": gradient, "batch": ()}
        updates, state = tx.update(gradient(params, ()), state, params, **known)
        return (optax.apply_updates(params, updates), state), None

    params = jnp.array([-1.0, 10.0, 1.0], jnp.complex64)
    carry = (params, tx.init(params))
    (params, _), _ = jax.jit(lambda carry: jax.lax.scan(step, carry, length=10_000))(carry)
    np.testing.assert_allclose(params, minimum, rtol=0, atol=3e-2)


@every_mechanism_and_orthogonal_steps
def test_optax_state_on_an_explicit_mesh_has_the_types_of_init(case):
    tx = case.make(case.rate)
    mesh = jax.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        sharding = NamedSharding(mesh, PartitionSpec(None, "x"))
        params = jax.device_put(jnp.ones((2, 8, 4), jnp.float16), sharding)
        types = lambda tree: jax.tree.map(jax.typeof, tree)
        updates, state = first_step(tx, params)
        assert types(updates) == types(params)
        assert types(tx.init(params)) == types(jax.jit(tx.init)(params)) == types(state)
