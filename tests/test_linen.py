"""Training steps in Flax linen."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cnn import (
    LinenCNN,
    assert_close,
    batches,
    by_hand,
    linen_variables,
    split,
)
from flax import linen
from flax.linen.fp8_ops import OVERWRITE_WITH_GRADIENT
from flax.training import train_state
from linen_steps import FlaxState, auto_step, make_loss, train_step

import mu2_optax
import mu2_optax.linen as mu2_linen

pytestmark = pytest.mark.usefixtures("compiled_quickly")

EXTRA = mu2_optax.mu2_extra_sgd(0.1)  # which evaluates most often in a step


def make_state(tx, batch_norm=True, dropout=0.0):
    variables = linen_variables(batch_norm)
    return mu2_linen.TrainState.create(
        apply_fn=LinenCNN(dropout=dropout, batch_norm=batch_norm).apply,
        params=variables["params"],
        tx=tx,
        batch_stats=variables.get("batch_stats", {}),
    )


def test_linen_evaluations_at_one_point_share_dropout():
    state = make_state(mu2_optax.mu2_sgd(0.1), dropout=0.5)
    (batch,) = batches(1)

    @jax.jit
    def both(state, batch, key):
        evaluate = mu2_optax.value_and_grad(make_loss(state, key), has_aux=True)
        _, grads, again = evaluate(state.params, batch)
        return grads, again["grad_fn"](state.params, again["batch"])

    first, second = both(state, batch, jax.random.key(1))
    assert_close(first, second, 0.0)
    other_mask, _ = both(state, batch, jax.random.key(2))
    assert not np.allclose(first["dense"]["kernel"], other_mask["dense"]["kernel"])


def test_linen_statistics_come_from_the_evaluation_at_params():
    state = make_state(EXTRA)
    evaluate = jax.jit(lambda state, batch: make_loss(state)(state.params, batch))
    for batch in batches(3):
        _, (_, expected) = evaluate(state, batch)
        state, _ = jax.jit(train_step)(state, batch)
        assert_close(state.batch_stats, expected, 1e-6)  # jit fuses the reductions differently


def test_linen_donated_step_is_traced_once():
    traces = 0

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, batch, key):
        nonlocal traces
        traces += 1
        return train_step(state, batch, key)

    state = make_state(mu2_optax.mu2_sgd(0.5), dropout=0.5)
    start = state
    for i, batch in enumerate(batches(5)):
        state, loss = step(state, batch, jax.random.key(i))
    assert traces == 1
    assert np.isfinite(loss)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((start.params, start.opt_state)))
    assert int(state.step) == int(state.opt_state.t) == 5


def test_linen_microbatches_keep_keys_of_their_own():
    state = make_state(mu2_optax.mu2_sgd(0.1), batch_norm=False, dropout=0.5)
    (batch,) = batches(1)

    def loss_fn(params, batch, key):
        return make_loss(state, key)(params, batch)[0]

    @jax.jit
    def both(params, batches, keys):
        evaluate = mu2_optax.value_and_grad(loss_fn, accumulate=True)
        _, grads, again = evaluate(params, batches, keys)
        return grads, again["grad_fn"](params, again["batch"])

    keys = jax.random.split(jax.random.key(0), 4)
    first, second = both(state.params, split(batch, 4), keys)
    assert_close(first, second, 0.0)
    grad = jax.jit(jax.grad(loss_fn))
    one_by_one = [
        grad(state.params, jax.tree.map(lambda a, i=i: a[i], split(batch, 4)), key)
        for i, key in enumerate(keys)
    ]
    assert_close(first, jax.tree.map(lambda *g: sum(g) / 4, *one_by_one), 1e-6)


def test_linen_step_serves_plain_optimizers():
    state, loss = jax.jit(train_step)(make_state(optax.adam(0.1)), *batches(1))
    assert np.isfinite(loss)
    assert int(state.step) == 1


def test_linen_train_state_replaces_fields_of_a_subclass():
    class Counted(mu2_linen.TrainState):
        seen: int = 0

    params = {"w": jnp.ones(2)}
    state = Counted.create(apply_fn=None, params=params, tx=mu2_optax.mu2_sgd(0.1))
    state = state.apply_gradients(grads=params, prev_grads=params, seen=16)
    assert state.seen == 16


@pytest.mark.parametrize("given", ["grad_fn", "prev_grads"])
def test_linen_train_state_overwrites_with_gradient(given):
    params = {"params": {"w": jnp.ones(2)}, OVERWRITE_WITH_GRADIENT: {"scale": jnp.ones(1)}}
    tx = mu2_optax.mu2_sgd(0.1, mu2_optax.fixed_momentum(beta=0.3))
    state = mu2_linen.TrainState.create(apply_fn=None, params=params, tx=tx)
    plain, plain_state = params["params"], tx.init(params["params"])
    assert jax.tree.structure(state.opt_state) == jax.tree.structure(plain_state)

    def loss_fn(params, z):
        scale = params[OVERWRITE_WITH_GRADIENT]["scale"]
        moved = jnp.sum((params["params"]["w"] - z) ** 2)
        return moved + jnp.sum(scale * jax.lax.stop_gradient(scale + 1.0))

    grad_fn = jax.grad(lambda p, z: jnp.sum((p["w"] - z) ** 2))
    for number in range(1, 4):
        z = float(number)
        _, grads, again = mu2_optax.value_and_grad(loss_fn)(state.params, z)
        if given == "prev_grads":
            previous = {**state.params, "params": state.opt_state.x}
            again = {"prev_grads": jax.grad(loss_fn)(previous, z)}
        state = state.apply_gradients(grads=grads, **again)
        updates, plain_state = tx.update(
            grad_fn(plain, z), plain_state, plain, grad_fn=grad_fn, batch=z
        )
        plain = optax.apply_updates(plain, updates)
        assert_close(state.params["params"], plain, 1e-6)
        np.testing.assert_array_equal(state.params[OVERWRITE_WITH_GRADIENT]["scale"], number + 1.0)


def test_linen_train_state_takes_any_tree():
    for params in (jnp.ones(3), [jnp.ones(3)], (jnp.ones(3), None)):
        tx = mu2_optax.mu2_sgd(0.5)
        state = mu2_optax.linen.TrainState.create(apply_fn=None, params=params, tx=tx)
        square = lambda params: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))
        _, grads, again = mu2_optax.value_and_grad(square)(state.params)
        state = state.apply_gradients(grads=grads, **again)
        np.testing.assert_allclose(jax.tree.leaves(state.params)[0], 0.9)  # x + 0.1 (w - x), w = 0


def test_linen_train_state_refuses_a_misspelled_field():
    params = {"w": jnp.ones(2)}
    state = mu2_linen.TrainState.create(apply_fn=None, params=params, tx=optax.sgd(0.1))
    with pytest.raises(TypeError, match=r"got batch_stat; add a field"):
        state.apply_gradients(grads=params, batch_stat={})


def forward(variables, batch):
    return LinenCNN().apply(variables, batch["image"], mutable=["batch_stats"])


def test_linen_recalibrate_gives_the_mean_statistics():
    variables = linen_variables()
    data = list(batches(4))
    statistics = [by_hand(variables["params"], batch["image"])[1] for batch in data]
    mean, var = (sum(s) / 4 for s in zip(*statistics, strict=True))
    spoilt = {**variables, "batch_stats": jax.tree.map(lambda s: s + 1e6, variables["batch_stats"])}
    found = mu2_linen.recalibrate(forward, spoilt, data)
    assert_close(found, {"norm": {"mean": mean, "var": var}}, 1e-5)


def test_linen_recalibrate_is_the_mean_over_two_calls():
    class Twice(linen.Module):
        @linen.compact
        def __call__(self, x):
            norm = linen.BatchNorm(use_running_average=False)
            return norm(3 * norm(x) + 5)

    data = 1 + 2 * jax.random.normal(jax.random.key(0), (3, 64, 2))
    variables = Twice().init(jax.random.key(1), data[0])
    forward = lambda variables, batch: Twice().apply(variables, batch, mutable=["batch_stats"])
    found = mu2_linen.recalibrate(forward, variables, data)["BatchNorm_0"]
    first_mean, first_var = data.mean(1).mean(0), data.var(1).mean(0)
    np.testing.assert_allclose(found["mean"], (first_mean + 5) / 2, rtol=1e-4)
    np.testing.assert_allclose(found["var"], (first_var + 9) / 2, rtol=1e-4)


def test_linen_recalibrate_refuses_what_it_cannot_do():
    variables = linen_variables()
    with pytest.raises(ValueError, match="got none; pass a list"):
        mu2_linen.recalibrate(forward, variables, [])
    evaluating = lambda variables, batch: LinenCNN().apply(variables, batch["image"], train=False)
    with pytest.raises(ValueError, match="1 of 1 that kept its statistics"):
        mu2_linen.recalibrate(evaluating, variables, batches(1))
    plain = LinenCNN(batch_norm=False)
    without = lambda variables, batch: plain.apply(variables, batch["image"], mutable=[])
    with pytest.raises(ValueError, match="got a model without"):
        mu2_linen.recalibrate(without, linen_variables(batch_norm=False), batches(1))


@pytest.mark.parametrize("kind", [FlaxState, mu2_linen.TrainState])
def test_linen_eval_state_has_the_average(kind):
    state = kind.create(apply_fn=LinenCNN().apply, tx=mu2_optax.mu2_auto(), **linen_variables())
    step = jax.jit(auto_step)
    for batch in batches(12):
        state = step(state, batch)
    average = mu2_linen.eval_state(state)
    assert_close(average.params, mu2_optax.eval_params(state, state.params), 0.0)
    kernels = (some.params["dense"]["kernel"] for some in (average, state))
    assert not np.allclose(*kernels, atol=1e-4)
    assert_close(average.batch_stats, state.batch_stats, 0.0)
    assert int(average.step) == 12


def test_linen_eval_state_keeps_what_is_overwritten():
    params = {"params": {"w": jnp.ones(2)}, OVERWRITE_WITH_GRADIENT: {"scale": jnp.ones(1)}}
    for kind in (train_state.TrainState, mu2_linen.TrainState):
        state = kind.create(apply_fn=None, params=params, tx=mu2_optax.mu2_auto())
        for number in range(3):
            grads = {"params": {"w": jnp.ones(2)}, OVERWRITE_WITH_GRADIENT: {"scale": jnp.ones(1)}}
            state = state.apply_gradients(grads=jax.tree.map(lambda g, n=number: g + n, grads))
        average = mu2_linen.eval_state(state).params
        np.testing.assert_array_equal(average[OVERWRITE_WITH_GRADIENT]["scale"], 3.0)
        expected = mu2_optax.eval_params(state.opt_state, state.params["params"])
        np.testing.assert_array_equal(average["params"]["w"], expected["w"])
        assert not np.allclose(average["params"]["w"], state.params["params"]["w"])
