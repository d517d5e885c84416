"""Freezing a part of the params: the rest is optimized as if it were all there is."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from flax import nnx
from problems import grad_fn, join, numpy_grad, run, samples, split, x64

import mu2_optax
import mu2_optax.linen
import mu2_optax.nnx
from mu2_optax import hold_fixed, mu2_sgd

X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
ZS = samples(100, seed=3)
MASK = {"matrix": False, "rest": [True]}
RADIUS = 0.6  # less than the norm of the whole start, more than that of its trained part
BATCHES = np.random.default_rng(0).normal(size=(20, 8, 3)).astype(np.float32)


def ball(x):
    return x * min(1, RADIUS / np.linalg.norm(x))


def without_the_last(u, z):
    """The gradient with respect to the first four, with the fifth closed over."""
    return numpy_grad(np.append(u, X1[4]), z)[:4]


ALGORITHMS = {
    "mu2_sgd": (mu2_sgd, reference.mu2_sgd, False),
    "mu2_extra_sgd": (mu2_optax.mu2_extra_sgd, reference.mu2_extra_sgd, True),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_hold_fixed_follows_the_oracle_of_the_smaller_problem(name):
    make, in_numpy, weighted = ALGORITHMS[name]
    momentum, weights = mu2_optax.linear_momentum(), reference.linear(0, len(ZS))
    expected = in_numpy(without_the_last, X1[:4], ZS, 0.01, weights, ball, weighted)
    with x64():
        tx = make(0.01, momentum, projection=mu2_optax.onto_l2_ball(RADIUS))
        points, state = run(hold_fixed(tx, MASK), split(jnp.array(X1)), jnp.array(ZS))
    np.testing.assert_allclose(join(points)[:, :4], expected, rtol=0, atol=1e-12)
    assert (join(points)[:, 4] == X1[4]).all()
    assert state.d["rest"] == [None]


@pytest.mark.parametrize(
    "mask",
    [
        {"matrix": False, "rest": True},  # a prefix of the tree
        lambda params: {"matrix": False, "rest": [True]},
        {"matrix": np.False_, "rest": [np.True_]},
    ],
    ids=["prefix", "function", "numpy"],
)
def test_hold_fixed_takes_masks_in_every_form_of_optax(mask):
    params, zs = split(jnp.array(X1, jnp.float32)), jnp.array(ZS, jnp.float32)
    one, _ = run(hold_fixed(mu2_sgd(0.3), MASK), params, zs)
    two, _ = run(hold_fixed(mu2_sgd(0.3), mask), params, zs)
    np.testing.assert_array_equal(join(one), join(two))


def test_hold_fixed_takes_prev_grads():
    tx = hold_fixed(mu2_sgd(0.3), MASK)
    params = split(jnp.array(X1, jnp.float32))
    state = tx.init(params)
    for z in jnp.array(ZS[:5], jnp.float32):
        previous = {"matrix": state.x["matrix"], "rest": params["rest"]}
        grads, prev_grads = grad_fn(params, z), grad_fn(previous, z)
        one, _ = tx.update(grads, state, params, prev_grads=prev_grads)
        two, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=z)
        np.testing.assert_allclose(join(one), join(two), rtol=0, atol=1e-7)
        params = optax.apply_updates(params, two)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ({"matrix": True}, r"`freeze_mask` must be a tree of booleans like params"),
        ({"matrix": True, "rest": [False], "more": True}, r"`freeze_mask` must be a tree of"),
        ({"matrix": 1, "rest": [False]}, r"`freeze_mask` must hold the booleans True and"),
        (True, r"`freeze_mask` must leave something to train"),
    ],
)
def test_hold_fixed_refuses_masks_that_do_not_fit(mask, message):
    with pytest.raises((TypeError, ValueError), match=message):
        hold_fixed(mu2_sgd(0.1), mask).init(split(jnp.array(X1)))


WRAPPERS = {
    "masked": lambda tx: optax.masked(tx, {"matrix": True, "rest": [False]}),
    "partition": lambda tx: optax.partition(
        {"go": tx, "stop": optax.set_to_zero()}, {"matrix": "go", "rest": ["stop"]}
    ),
    "selective_transform": lambda tx: optax.selective_transform(tx, freeze_mask=MASK),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_hold_fixed_is_named_by_wrappers_that_hide_a_part(wrapper):
    params = split(jnp.array(X1))
    tx = WRAPPERS[wrapper](mu2_sgd(0.1))
    with pytest.raises(
        ValueError, match=r"whole tree, got MaskedNode .*`mu2_optax\.hold_fixed\(tx, "
    ):
        tx.update(grad_fn(params, ZS[0]), tx.init(params), params, grad_fn=grad_fn, batch=ZS[0])


# The frameworks: freezing equals closing over the frozen part by hand.


def by_hand(loss, head, batches, rate=0.3):
    """mu2_sgd on the head alone, in plain JAX."""
    points, _ = run(mu2_sgd(rate), head, jnp.array(batches), jax.grad(loss))
    return jax.tree.map(lambda a: a[-1], points)


def assert_close(tree, other):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-5), tree, other)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.body = nnx.Linear(3, 4, rngs=rngs)
        self.head = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.head(jnp.tanh(self.body(x)))


def body_frozen(params):
    named = jax.tree_util.tree_map_with_path
    return named(lambda path, _: "body" in jax.tree_util.keystr(path), params)


def test_hold_fixed_in_nnx_does_what_wrt_does():
    loss = lambda model, x: jnp.mean((model(x) - 1) ** 2)
    head = nnx.All(nnx.Param, nnx.PathContains("head"))
    forms = {
        "mask": (hold_fixed(mu2_sgd(0.3), body_frozen), nnx.Param),
        "wrt": (mu2_sgd(0.3), head),
    }
    found = {}
    for name, (tx, wrt) in forms.items():
        model = Nnx(nnx.Rngs(0))
        optimizer = nnx.Optimizer(model, tx, wrt=wrt)

        @nnx.jit
        def step(model, optimizer, batch):
            _, grads, again = mu2_optax.nnx.value_and_grad(loss)(model, batch)
            optimizer.update(model, grads, **again)

        for batch in BATCHES:
            step(model, optimizer, batch)
        found[name] = nnx.to_pure_dict(nnx.state(model))
    start = nnx.to_pure_dict(nnx.state(Nnx(nnx.Rngs(0))))
    apply = lambda p, x: jnp.tanh(x @ p["body"]["kernel"] + p["body"]["bias"])
    only_head = lambda h, x: jnp.mean((apply(start, x) @ h["kernel"] + h["bias"] - 1) ** 2)
    for params in found.values():
        assert_close(params["body"], start["body"])
        assert_close(params["head"], by_hand(only_head, start["head"], BATCHES))


# Optax's own wrappers, where they do hold a part


def without_rest(params, z):
    return {**grad_fn(params, z), "rest": [jnp.zeros(())]}


def trained_by_hand(zs):
    points, _ = run(mu2_sgd(0.3), split(jnp.array(X1, jnp.float32)), zs, without_rest)
    return join(points)


def test_partition_after_the_correction_holds_a_layer():
    labels = {"matrix": "train", "rest": ["freeze"]}
    anytime = mu2_optax.anytime(optax.sgd(0.3), 0.1)
    partition = optax.partition({"train": anytime, "freeze": optax.set_to_zero()}, labels)
    tx, zs = optax.chain(mu2_optax.corrected_momentum(0.9), partition), jnp.array(ZS, jnp.float32)
    points, _ = run(tx, split(jnp.array(X1, jnp.float32)), zs)
    np.testing.assert_array_equal(join(points)[:, 4], np.float32(X1[4]))
    np.testing.assert_allclose(join(points)[:, :4], trained_by_hand(zs)[:, :4], rtol=0, atol=1e-6)
