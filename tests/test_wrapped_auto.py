"""Around, before and inside of Optax's wrappers, ``mu2_auto`` does what Adam does there."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from auto_problem import (
    FEATURES,
    START,
    STEPS,
    TARGETS,
    apart,
    assert_same,
    average,
    batches,
    gradient,
    loss_fn,
    plain,
    train,
)
from problems import compiled

import mu2_optax
from mu2_optax import eval_params, found_rate, mu2_auto


def changed(change):
    """The gradient as the user would change it by hand."""
    return lambda params, batch: change(gradient(params, batch), params)


def clipped_to(bound):
    def clip(grads, params):
        scale = jnp.minimum(1, bound / optax.tree.norm(grads))
        return jax.tree.map(lambda g: scale * g, grads)

    return clip


def decayed(grads, params):
    return jax.tree.map(lambda g, p: g + 0.1 * p, grads, params)


# Each wrapper, and the plain run that it should equal.

SAME = {
    "chain": (optax.chain(mu2_auto()), {}),
    "named_chain": (optax.named_chain(("auto", mu2_auto())), {}),
    "with_extra_args_support": (optax.with_extra_args_support(mu2_auto()), {}),
    "conditionally_mask": (optax.conditionally_mask(mu2_auto(), lambda step: True), {}),
    "inject_hyperparams": (optax.inject_hyperparams(mu2_auto)(first_step=1.0), {}),
    "apply_if_finite": (optax.apply_if_finite(mu2_auto(), 5), {}),
    "reject_nonfinite": (mu2_optax.reject_nonfinite(mu2_auto()), {}),
    "MultiSteps of one": (optax.MultiSteps(mu2_auto(), 1), {}),
    "zero_nans": (optax.chain(optax.zero_nans(), mu2_auto()), {}),
    "split_real_and_imaginary": (optax.contrib.split_real_and_imaginary(mu2_auto()), {}),
    "clip_by_global_norm": (
        optax.chain(optax.clip_by_global_norm(0.3), mu2_auto()),
        {"grad_fn": changed(clipped_to(0.3))},
    ),
    "clip to almost nothing": (
        optax.chain(optax.clip_by_global_norm(1e-9), mu2_auto()),
        {"grad_fn": changed(clipped_to(1e-9))},
    ),
    "add_decayed_weights": (
        optax.chain(optax.add_decayed_weights(0.1), mu2_auto()),
        {"grad_fn": changed(decayed)},
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_a_wrapper_is_the_change_by_hand_and_the_average_is_found_in_it(name):
    tx, options = SAME[name]
    found, state = train(tx)
    params, alone = plain(**options)
    assert_same(found, params)
    assert_same(eval_params(state, found), eval_params(alone, params))
    assert float(found_rate(state)) == pytest.approx(float(found_rate(alone)), rel=1e-3)
    if options:
        assert apart(params, plain()[0]) > 1e-2  # and it is not as if nothing had been changed


def test_inside_of_flatten_the_average_cannot_be_found():
    found, state = train(optax.flatten(mu2_auto()))
    with pytest.raises(ValueError, match=r"`optax.flatten`"):
        eval_params(state, found)


@pytest.mark.parametrize(
    "wrap", [optax.MultiSteps, mu2_optax.accumulate_gradients], ids=["optax", "mu2_optax"]
)
def test_accumulation_is_the_mean_gradient_every_so_often(wrap):
    every = 3
    found, state = train(wrap(mu2_auto(), every))
    fewer = [
        jax.tree.map(lambda *parts: np.concatenate(parts), *batches()[i : i + every])
        for i in range(0, STEPS, every)
    ]
    params, alone = plain(data=fewer)
    assert_same(found, params)
    assert_same(eval_params(state, found), eval_params(alone, params))


def test_steps_that_are_not_finite_are_skipped_by_optax_too():
    """There is one gradient, and ``apply_if_finite`` looks at it."""
    data = batches()
    broken = [*data[:10], jax.tree.map(lambda a: a * np.float32(np.nan), data[0]), *data[10:]]
    for wrap in (lambda tx: optax.apply_if_finite(tx, 5), mu2_optax.reject_nonfinite):
        assert_same(train(wrap(mu2_auto()), data=broken)[0], plain()[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_gradient_that_is_not_finite_is_rejected_although_outliers_are_bounded(value):
    tx = compiled(mu2_optax.reject_nonfinite(mu2_auto()))
    params = {"w": jnp.ones(3)}
    _, before = tx.update({"w": jnp.array([1.0, 2.0, 3.0])}, tx.init(params), params)
    updates, after = tx.update({"w": jnp.array([1.0, value, 3.0])}, before, params)
    np.testing.assert_array_equal(updates["w"], 0)
    assert after.total == 1
    assert_same(after.inner_state, before.inner_state)


ONLY_THE_HEAD = {"body": False, "head": True}
LABELS = {"body": "adam", "head": "auto"}


@functools.cache
def frozen_body_by_hand():
    of_head = lambda head, batch: gradient({"body": START["body"], "head": head}, batch)["head"]
    return plain(start=START["head"], grad_fn=of_head)


@pytest.mark.parametrize("how", ["masked", "partition", "selective_transform", "freeze"])
def test_a_part_that_is_frozen_stays_and_the_rest_moves_as_if_alone(how):
    frozen = {"body": True, "head": False}
    tx = {
        "masked": lambda: optax.chain(
            optax.masked(mu2_auto(), ONLY_THE_HEAD), optax.masked(optax.set_to_zero(), frozen)
        ),
        "partition": lambda: optax.partition(
            {"auto": mu2_auto(), "adam": optax.set_to_zero()}, LABELS
        ),
        "selective_transform": lambda: optax.selective_transform(mu2_auto(), freeze_mask=frozen),
        "freeze": lambda: mu2_optax.hold_fixed(mu2_auto(), frozen),
    }[how]()
    params, state = train(tx)
    head, alone = frozen_body_by_hand()
    found = eval_params(state, params)
    for tree in (params, found):
        np.testing.assert_array_equal(tree["body"]["kernel"], START["body"]["kernel"])
    assert_same(params["head"], head)
    assert_same(found["head"], eval_params(alone, head))


def test_a_partition_with_adam_moves_each_part_and_the_averages_are_merged():
    params, state = train(optax.partition({"auto": mu2_auto(), "adam": optax.adam(1e-2)}, LABELS))
    auto, adam = mu2_auto(), optax.adam(1e-2)
    head, body = START["head"], START["body"]
    of_head, of_body = auto.init(head), adam.init(body)

    @jax.jit
    def by_hand(head, body, of_head, of_body, batch):
        grads = gradient({"body": body, "head": head}, batch)
        updates, of_head = auto.update(grads["head"], of_head, head)
        head = optax.apply_updates(head, updates)
        updates, of_body = adam.update(grads["body"], of_body, body)
        return head, optax.apply_updates(body, updates), of_head, of_body

    for batch in batches():
        head, body, of_head, of_body = by_hand(head, body, of_head, of_body, batch)
    assert_same(params, {"body": body, "head": head})
    found = eval_params(state, params)
    assert_same(found["head"], eval_params(of_head, head))
    assert_same(found["body"], params["body"], atol=0)


def test_two_of_them_in_a_partition_are_averaged_one_after_another():
    tx = optax.partition({"adam": mu2_auto(), "auto": mu2_auto()}, LABELS)
    params, state = train(tx)
    with pytest.raises(ValueError, match="exactly one average of the params, got 2"):
        eval_params(state, params)
    found = params
    for part in state.inner_states.values():
        found = eval_params(part, found)
    assert apart(found["body"], params["body"]) > 1e-4
    assert apart(found["head"], params["head"]) > 1e-4


def test_an_injected_factor_is_the_factor():
    found, state = train(optax.inject_hyperparams(mu2_auto)(first_step=10.0))
    params, _ = train(mu2_auto(first_step=10.0))
    assert_same(found, params)
    assert float(state.hyperparams["first_step"]) == 10


@jax.jit
def loss_at(params):
    return loss_fn(params, (FEATURES, TARGETS))  # batches of one size: the mean of their losses


def test_mechanize_scales_its_steps_and_there_is_no_average():
    """Around Adam mechanize does the same: params are what is evaluated."""
    rounds = batches() * 10
    params, state = train(optax.contrib.mechanize(mu2_auto()), data=rounds)
    adam, _ = train(optax.contrib.mechanize(optax.adam(1e-2)), data=rounds)
    assert loss_at(params) < 0.5 * loss_at(START)
    assert loss_at(params) < 1.5 * loss_at(adam)
    with pytest.raises(ValueError, match=r"inside a MechanicState.*at the params"):
        eval_params(state, params)


def test_schedule_free_around_it_is_refused_where_the_average_is_asked_for():
    tx = optax.contrib.schedule_free(mu2_auto(), 1.0)
    with pytest.raises(ValueError, match="inside a ScheduleFreeState"):
        eval_params(tx.init(START), START)


def narrowed(dtype):
    return jax.tree.map(lambda p: jnp.asarray(np.asarray(p).astype(jnp.dtype(dtype))), START)


@pytest.mark.parametrize(("dtype", "eps"), [("bfloat16", 2**-8), ("float16", 2**-11)])
def test_narrow_params_have_the_average_that_is_kept_for_them(dtype, eps):
    params, state = plain(start=narrowed(dtype))
    found = average(state, params)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, found))} == {jnp.dtype(dtype)}
    kept = optax.tree.get(state, "AnytimeState").x
    assert_same(found, kept, atol=4 * eps)  # where a step was too long to be exact, y tells x
    assert loss_at(found) < 0.8 * loss_at(START)


def test_a_constant_factor_before_it_changes_nothing():
    assert_same(train(optax.chain(optax.scale(1024.0), mu2_auto()))[0], plain()[0])


AFTER = {
    "scale": optax.scale(0.5),
    "scale_by_schedule": optax.scale_by_schedule(optax.cosine_decay_schedule(1.0, 90)),
    "clip": optax.clip(3e-3),
    "apply_every": optax.apply_every(3),
}


@pytest.mark.parametrize("after", AFTER.values(), ids=AFTER)
def test_what_comes_after_it_is_followed(after):
    """Steps of half the length, and steps that come late: the average learns as params do."""
    params, state = train(optax.chain(mu2_auto(), after), data=batches() * 3)
    assert loss_at(params) < 0.5 * loss_at(START)
    assert loss_at(eval_params(state, params)) < 0.5 * loss_at(START)
    assert found_rate(state) < 1


def test_lookahead_around_it_is_followed():
    """Slower: setting params back takes away a part of the iterate's lead."""
    tx = optax.lookahead(mu2_auto(), sync_period=5, slow_step_size=0.5)
    params = optax.LookaheadParams.init_synced(START)
    state = tx.init(params)

    @jax.jit
    def step(params, state, batch):
        updates, state = tx.update(gradient(params.fast, batch), state, params)
        return optax.apply_updates(params, updates), state

    for batch in batches() * 3:
        params, state = step(params, state, batch)
    assert loss_at(params.slow) < 0.5 * loss_at(START)
    assert loss_at(eval_params(state, params.fast)) < 0.5 * loss_at(START)
    assert found_rate(state) < 1


@pytest.mark.parametrize("momentum", [optax.trace(0.9), optax.ema(0.9)], ids=["trace", "ema"])
def test_a_momentum_before_it_makes_the_rate_far_too_long(momentum):
    """A limit that docs/wrappers.md names: the rate is that of directions that do not remember."""
    data = batches() * 20
    _, alone = train(mu2_auto(), data=data)
    _, state = train(optax.chain(momentum, mu2_auto()), data=data)
    assert found_rate(state) > 5 * found_rate(alone)  # 12 and 37 times


def test_freeze_after_it_holds_the_params_and_leaves_the_average_a_little_off():
    frozen = {"body": True, "head": False}
    params, state = train(optax.chain(mu2_auto(), optax.freeze(frozen)), data=batches() * 3)
    assert_same(params["body"], START["body"], atol=0)
    off = apart(eval_params(state, params)["body"], START["body"])
    assert 0 < off < 0.05
