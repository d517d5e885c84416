"""Random trees, seeds and momenta against the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import run, x64

import mu2_optax

T = 12
shapes = st.lists(st.integers(1, 3), min_size=0, max_size=2).map(tuple)
trees = st.recursive(
    shapes,
    lambda children: (
        st.lists(children, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("abc"), children, min_size=1, max_size=3)
        | st.tuples(children, children).map(lambda pair: ("node", *pair))
    ),
    max_leaves=5,
)
unit = st.floats(0, 1)
is_shape = lambda node: isinstance(node, tuple) and "node" not in node


@st.composite
def problems(draw):
    """Random quadratic losses ½ Σ a (x - b)², a tree, and its momenta."""
    tree = draw(trees)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tree = jax.tree.map(
        lambda s: s if isinstance(s, str) else rng.normal(size=s), tree, is_leaf=is_shape
    )
    tree = jax.tree.map(lambda leaf: 0.0 if isinstance(leaf, str) else leaf, tree)
    tree = jax.tree.map(np.asarray, tree)
    beta, gamma = draw(unit), draw(unit)
    weights = reference.Weights(lambda t: 1.0, lambda t: beta, lambda t: gamma, T)
    momentum = mu2_optax.fixed_momentum(gamma=gamma, beta=beta)
    return tree, rng, weights, momentum


def check(optimizer, oracle, problem, radius):
    tree, rng, weights, momentum = problem
    leaves, structure = jax.tree.flatten(tree)
    flat = np.concatenate([leaf.ravel() for leaf in leaves])
    ends = np.cumsum([leaf.size for leaf in leaves])
    zs = rng.uniform(0.1, 1.0, size=(T, 2, flat.size))
    project = lambda x: x if np.linalg.norm(x) <= radius else x * (radius / np.linalg.norm(x))
    numpy_grad = lambda x, z: z[0] * (x - z[1])
    expected = oracle(numpy_grad, flat, zs, 0.5, weights, project, False)

    def grad_fn(params, z):
        a, b = (jnp.split(row, ends[:-1]) for row in z)
        parts = zip(a, b, jax.tree.leaves(params), strict=True)
        return jax.tree.unflatten(
            structure, [a.reshape(x.shape) * (x - b.reshape(x.shape)) for a, b, x in parts]
        )

    tx = optimizer(0.5, momentum, projection=mu2_optax.onto_l2_ball(radius), weighted_steps=False)
    points, _ = run(tx, tree, zs, grad_fn)
    got = np.concatenate(
        [leaf.reshape(T, -1) for leaf in map(np.asarray, jax.tree.leaves(points))], 1
    )
    np.testing.assert_allclose(got, np.array(expected), rtol=0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(problem=problems(), radius=st.floats(0.1, 10))
def test_mu2_sgd_follows_algorithm_1_on_any_tree(problem, radius):
    with x64():
        check(mu2_optax.mu2_sgd, reference.mu2_sgd, problem, radius)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(problem=problems(), radius=st.floats(0.1, 10))
def test_mu2_extra_sgd_follows_algorithm_2_on_any_tree(problem, radius):
    with x64():
        check(mu2_optax.mu2_extra_sgd, reference.mu2_extra_sgd, problem, radius)


@settings(max_examples=30, deadline=None)
@given(
    t=st.integers(1, 2000),
    offset=st.integers(-1, 5),
    power=st.floats(0, 4),
)
def test_momenta_gamma_is_the_share_of_alpha_in_its_sum(t, offset, power):
    with x64():
        for momentum in [
            mu2_optax.linear_momentum(offset),
            mu2_optax.polynomial_momentum(power),
        ]:
            alpha = np.asarray(jax.vmap(momentum.alpha)(np.arange(2000)))[:t]
            share = alpha[-1] / alpha.sum() if alpha.sum() > 0 else 1.0
            np.testing.assert_allclose(float(momentum.gamma(t - 1)), share, rtol=1e-9)
