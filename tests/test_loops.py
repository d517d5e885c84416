"""The loops that people have, with ``mu2_auto`` in the place of Adam and nothing else changed."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from auto_problem import (
    AUTO,
    BATCH,
    FEATURES,
    START,
    STEPS,
    TARGETS,
    apply,
    assert_same,
    average,
    batches,
    loss_fn,
    plain,
)
from flax import nnx
from flax.training.train_state import TrainState
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import mu2_optax
import mu2_optax.linen
from mu2_optax import eval_params, found_rate, mu2_auto

ALL = "all"


@pytest.fixture(scope="module")
def expected():
    """The params, the state and the average of the plain loop."""
    params, state = plain()
    return params, state, average(state, params)


# The loops


def test_linen_train_state_follows_the_plain_loop(expected):
    """Flax's own, whose ``apply_gradients`` passes nothing on to the optimizer."""
    state = TrainState.create(apply_fn=apply, params=START, tx=mu2_auto())

    @jax.jit
    def train_step(state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(state.params, batch)
        return state.apply_gradients(grads=grads), loss

    for batch in batches():
        state, _ = train_step(state, batch)
    assert_same(state.params, expected[0])
    for holder in (state, state.opt_state):
        assert_same(eval_params(holder, state.params), expected[2])
        assert float(found_rate(holder)) == pytest.approx(float(found_rate(expected[1])), rel=1e-3)


class Network(nnx.Module):
    def __init__(self, rngs):
        self.body = nnx.Linear(3, 8, rngs=rngs)
        self.head = nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, features):
        return self.head(jnp.tanh(self.body(features)))


@pytest.mark.parametrize(
    "wrap", [lambda tx: tx, lambda tx: optax.chain(optax.zero_nans(), tx)], ids=["plain", "chain"]
)
def test_nnx_optimizer_follows_the_plain_loop(wrap, expected):
    model = Network(nnx.Rngs(0))
    nnx.update(model, nnx.State(START))
    optimizer = nnx.Optimizer(model, wrap(mu2_auto()), wrt=nnx.Param)

    @nnx.jit
    def train_step(model, optimizer, batch):
        features, targets = batch
        loss = lambda model: jnp.mean((model(features) - targets) ** 2)
        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value, found_rate(optimizer)

    for batch in batches():
        _, rate = train_step(model, optimizer, batch)
    params = nnx.state(model, nnx.Param)
    assert_same(params, expected[0])
    for holder in (optimizer, optimizer.opt_state):
        found = eval_params(holder, params)
        assert_same(found, expected[2])
        assert jax.tree.structure(found) == jax.tree.structure(params)
        assert float(found_rate(holder)) == float(rate)
    assert_same(eval_params(optimizer, nnx.as_pure(params)), expected[2])


def test_equinox_follows_the_plain_loop(expected):
    class Model(eqx.Module):
        body: dict
        head: dict
        activation: object = jnp.tanh

        def __call__(self, x):
            hidden = self.activation(x @ self.body["kernel"] + self.body["bias"])
            return hidden @ self.head["kernel"] + self.head["bias"]

    tx, model = mu2_auto(), Model(**START)
    state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def make_step(model, state, features, targets):
        loss = lambda model: jnp.mean((jax.vmap(model)(features) - targets) ** 2)
        grads = eqx.filter_grad(loss)(model)
        params = eqx.filter(model, eqx.is_inexact_array)
        updates, state = tx.update(grads, state, params)
        return eqx.apply_updates(model, updates), state

    for batch in batches():
        model, state = make_step(model, state, *batch)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    assert_same(params, expected[0])
    averaged = eqx.combine(average(state, params), static)
    assert_same(eqx.filter(averaged, eqx.is_inexact_array), expected[2])
    assert jax.eval_shape(averaged, FEATURES[0, 0]).shape == (1,)


def test_each_seed_of_a_vmapped_scan_over_epochs_ends_as_it_does_alone():
    """Each seed shuffles in its own way; the states have a leading axis, and so have averages."""
    tx = mu2_auto()
    flat = (FEATURES.reshape(-1, 3), TARGETS.reshape(-1, 1))

    @jax.jit
    def orders(key, epochs=2):
        return jax.vmap(lambda key: jax.random.permutation(key, STEPS * BATCH).reshape(STEPS, -1))(
            jax.random.split(key, epochs)
        )

    def run(key):
        def step(carry, rows):
            params, state = carry
            grads = jax.grad(loss_fn)(params, jax.tree.map(lambda a: jnp.asarray(a)[rows], flat))
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), found_rate(state)

        epoch = lambda carry, rows: jax.lax.scan(step, carry, rows)
        return jax.lax.scan(epoch, (START, tx.init(START)), orders(key))

    keys = jax.random.split(jax.random.key(1), 3)
    (params, state), rates = jax.jit(jax.vmap(run))(keys)
    assert rates.shape == (3, 2, STEPS)
    np.testing.assert_array_equal(found_rate(state), np.asarray(rates)[:, -1, -1])
    averages = average(state, params)
    assert_same(averages, jax.jit(jax.vmap(eval_params))(state, params), atol=1e-6)
    for seed, key in enumerate(keys):
        rows = np.asarray(orders(key)).reshape(2 * STEPS, -1)
        alone = plain(data=[jax.tree.map(lambda a, r=r: a[r], flat) for r in rows])
        of_seed = lambda tree, seed=seed: jax.tree.map(lambda a: np.asarray(a)[seed], tree)
        assert_same(of_seed(params), alone[0], atol=1e-3)
        assert_same(of_seed(averages), average(*reversed(alone)), atol=1e-3)


def device_step(params, state, batch):
    """As in every loop of ``pmap``: the gradients are averaged, and then the optimizer steps."""
    params_here = jax.tree.map(lambda p: jax.lax.pcast(p, ALL, to="varying"), params)
    grads = jax.lax.pmean(jax.grad(loss_fn)(params_here, batch), ALL)
    updates, state = mu2_auto().update(grads, state, params)
    return optax.apply_updates(params, updates), state


def assert_bitwise_equal_replicas(tree):
    for leaf in jax.tree.leaves(tree):
        each = np.asarray(leaf)
        assert each.shape[0] == 8
        assert all(replica.tobytes() == each[0].tobytes() for replica in each)


def test_pmap_with_pmean_keeps_replicas_bitwise_equal(expected):
    def step(params, state, batch):
        grads = jax.lax.pmean(jax.grad(loss_fn)(params, batch), ALL)
        updates, state = mu2_auto().update(grads, state, params)
        return optax.apply_updates(params, updates), state

    eight = lambda tree: jax.tree.map(lambda a: np.broadcast_to(a, (8, *a.shape)), tree)
    each = jax.pmap(step, axis_name=ALL)
    params, state = eight(START), eight(AUTO.init(START))
    for _ in range(2):  # 60 steps
        for batch in batches():
            split = jax.tree.map(lambda a: a.reshape(8, -1, a.shape[-1]), batch)
            params, state = jax.block_until_ready(each(params, state, split))
        if _ == 0:
            assert_same(jax.tree.map(lambda a: np.asarray(a)[0], params), expected[0])
    assert_bitwise_equal_replicas((params, state))
    assert_bitwise_equal_replicas(average(state, params))
    assert found_rate(state).shape == (8,)


@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map_with_pmean_keeps_replicas_bitwise_equal(check_vma, expected):
    mesh = jax.make_mesh((8,), (ALL,), axis_types=(AxisType.Auto,))
    on_all, split = PartitionSpec(), PartitionSpec(ALL)

    def step(params, state, batch):
        if check_vma:
            params, state = device_step(params, state, batch)
        else:
            grads = jax.lax.pmean(jax.grad(loss_fn)(params, batch), ALL)
            updates, state = mu2_auto().update(grads, state, params)
            params = optax.apply_updates(params, updates)
        of_each = jax.tree.map(lambda a: a[None], (params, state))
        return params, state, of_each

    stepped = jax.jit(
        jax.shard_map(
            step,
            mesh=mesh,
            in_specs=(on_all, on_all, split),
            out_specs=(on_all, on_all, split),
            check_vma=check_vma,
        )
    )
    params, state = START, AUTO.init(START)
    for batch in batches():
        params, state, of_each = jax.block_until_ready(stepped(params, state, batch))
    assert_bitwise_equal_replicas(of_each)
    assert_same(params, expected[0])
    assert_same(average(state, params), expected[2])


@pytest.mark.parametrize("kind", [AxisType.Explicit, AxisType.Auto])
def test_sharded_params_have_an_average_that_is_sharded_alike(kind, expected):
    mesh = jax.make_mesh((8,), (ALL,), axis_types=(kind,))
    specs = {"kernel": PartitionSpec(None, ALL), "bias": PartitionSpec(ALL)}
    whole = {"kernel": PartitionSpec(), "bias": PartitionSpec()}
    shardings = jax.tree.map(
        lambda spec: NamedSharding(mesh, spec),
        {"body": specs, "head": whole},
        is_leaf=lambda node: isinstance(node, PartitionSpec),
    )
    start = jax.device_put(START, shardings)
    tx = mu2_auto()

    @jax.jit
    def train_all(params, data):
        def step(carry, batch):
            params, state = carry
            features, targets = batch
            out = jax.sharding.auto_axes(apply, out_sharding=PartitionSpec())
            run = out if kind == AxisType.Explicit else apply
            loss = lambda params: jnp.mean((run(params, features) - targets) ** 2)
            updates, state = tx.update(jax.grad(loss)(params), state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, tx.init(params)), data)[0]

    with jax.set_mesh(mesh):
        data = jax.device_put((FEATURES, TARGETS), NamedSharding(mesh, PartitionSpec()))
        params, state = train_all(start, data)
        for found in (eval_params(state, params), jax.jit(eval_params)(state, params)):
            assert_same(found, expected[2])
            for a, p in zip(jax.tree.leaves(found), jax.tree.leaves(params), strict=True):
                assert a.sharding.is_equivalent_to(p.sharding, a.ndim)
    assert params["body"]["kernel"].sharding.is_equivalent_to(shardings["body"]["kernel"], 2)


def accumulated(params, batch, parts):
    """The gradient as big_vision accumulates it."""
    split = jax.tree.map(lambda a: a.reshape(parts, -1, a.shape[-1]), batch)
    part = lambda i: jax.tree.map(lambda a: a[i], split)
    add = lambda i, g: jax.tree.map(jnp.add, g, jax.grad(loss_fn)(params, part(i)))
    first = jax.grad(loss_fn)(params, part(0))
    return jax.tree.map(lambda g: g / parts, jax.lax.fori_loop(1, parts, add, first))


def test_the_call_of_big_vision_and_maxtext_follows_the_plain_loop(expected):
    """Donated params and state; gradients that are accumulated; and global norms in the metrics."""
    tx = optax.chain(optax.clip_by_global_norm(1e9), mu2_auto())

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def update_fn(params, opt, batch):
        grads = accumulated(params, batch, 4)
        updates, opt = tx.update(grads, opt, params)
        params = optax.apply_updates(params, updates)
        return params, opt, {"l2_updates": optax.tree.norm(updates), "rate": found_rate(opt)}

    params = jax.tree.map(jnp.copy, START)
    opt = jax.jit(tx.init)(params)
    for batch in batches():
        params, opt, _ = update_fn(params, opt, batch)
    assert_same(params, expected[0])
    assert_same(average(opt, params), expected[2])


@pytest.mark.parametrize("loop", ["easydel", "levanter"])
def test_the_call_of_easydel_and_levanter_follows_the_plain_loop(loop, expected):
    """By keyword; and with extra arguments, which change nothing."""
    tx = mu2_auto()

    @jax.jit
    def step(params, state, batch):
        obj_fn = lambda params: loss_fn(params, batch)
        loss, grads = jax.value_and_grad(obj_fn)(params)
        if loop == "easydel":
            updates, state = tx.update(updates=grads, state=state, params=params)
        else:
            updates, state = tx.update(grads, state, params=params, obj_fn=obj_fn, loss=loss)
        return optax.apply_updates(params, updates), state

    params, state = START, tx.init(START)
    for batch in batches():
        params, state = step(params, state, batch)
    assert_same(params, expected[0])


def test_an_update_without_params_says_what_is_missing():
    """Brax calls ``update(grads, state)``."""
    tx = mu2_auto()
    with pytest.raises(
        ValueError, match=r"`params` must be given.*tx.update\(grads, state, params"
    ):
        tx.update(START, tx.init(START))  # which are as good as gradients


def test_a_gradient_function_that_is_passed_is_not_called():
    """One loop can serve the optimizers that evaluate again, and this one."""
    tx = mu2_auto()
    update = lambda **more: tx.update(START, tx.init(START), START, **more)[0]
    given = jax.jit(lambda: update(grad_fn=None, batch=None, value=1.0))()
    assert_same(given, jax.jit(update)(), atol=0)


# PPO as PureJaxRL writes it, on a bandit whose best arm the observation tells


# What is found where


def test_no_average_or_several_are_named_in_the_error():
    one, two = mu2_auto().init(START), mu2_optax.mu2_sgd(0.1).init(START)
    with pytest.raises(ValueError, match=r"exactly one average of the params, got 0 in a tuple"):
        eval_params(optax.adam(0.1).init(START), START)
    with pytest.raises(ValueError, match=r"exactly one average of the params, got 2 in a list"):
        eval_params([one, two], START)
    with pytest.raises(ValueError, match=r"exactly one learning rate that was found, got 0"):
        found_rate(two)
    with pytest.raises(ValueError, match=r"exactly one learning rate that was found, got 2"):
        found_rate((one, one))
    with pytest.raises(ValueError, match=r"`params` must be the tree that `state` was made for"):
        eval_params(one, START["body"])


@pytest.mark.parametrize(
    "tx",
    [
        mu2_optax.mu2_sgd(0.1),
        mu2_optax.mu2_extra_sgd(0.1),
        mu2_optax.mu2_adam(0.1),
        mu2_optax.anytime_sgd(0.1, mu2_optax.polynomial_momentum(0)),
        optax.chain(mu2_optax.reject_nonfinite(mu2_optax.mu2_sgd(0.1))),
    ],
)
def test_params_that_are_the_average_already_are_returned(tx):
    assert eval_params(tx.init(START), START) is START


def test_plain_numbers_as_params_have_an_average():
    tx = mu2_auto()
    params = {"a": 1.0, "b": jnp.ones(2)}
    assert_same(eval_params(tx.init(params), params), params, atol=1e-6)
