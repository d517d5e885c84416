"""Loops that load, move, clip and reset params between steps, with Adam beside ``mu2_auto``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from auto_problem import START, assert_same, batches, jitted_step, loss_fn, train
from problems import compiled

import mu2_optax
from mu2_optax import eval_params, found_rate, mu2_auto

TARGET = jnp.array([1.0, -0.7, 3.0])
CURVATURES = jnp.array([1.0, 10.0, 0.3])
FREE = jnp.array([0.1, 0.2, 0.3])


def constrained(tx, project, noise, start=FREE, steps=1000):
    """Params and average of a quadratic whose params ``project`` moves after each step."""
    keys = jax.random.normal(jax.random.key(0), (steps, 3))

    def step(carry, z):
        params, state = carry
        grads = CURVATURES * (params - TARGET) + noise * z
        updates, state = tx.update(grads, state, params)
        params = project(optax.apply_updates(params, updates))
        return (params, state), None

    @jax.jit
    def whole():
        return jax.lax.scan(step, (start, tx.init(start)), keys)[0]

    return whole()


MASK = jnp.array([1.0, 0.0, 1.0])
LOOPS = {
    "clipped": lambda x: jnp.clip(x, -0.5, 0.5),
    "unit norm": lambda x: x / jnp.linalg.norm(x),
    "largest norm": lambda x: x * jnp.minimum(1, 0.5 / jnp.linalg.norm(x)),
    "mask": lambda x: MASK * x,
    "not negative": lambda x: jnp.maximum(x, 0),
}


@pytest.mark.parametrize("noise", [0.0, 1.0])
@pytest.mark.parametrize("name", LOOPS)
def test_moved_params_end_where_those_of_adam_do_and_so_does_their_average(name, noise):
    """It is not the constrained minimum, because each coordinate has a scale of its own.

    On the sphere both go to ±1/√3, where the scaled gradients are all of size one; after 1000 steps
    Adam, whose scales remember longer, is up to 0.115 from there.
    """
    adam, _ = constrained(optax.adam(1e-2), LOOPS[name], noise)
    params, state = constrained(mu2_auto(), LOOPS[name], noise)
    np.testing.assert_allclose(params, adam, rtol=0, atol=0.12)
    np.testing.assert_allclose(eval_params(state, params), adam, rtol=0, atol=0.12)
    assert found_rate(state) < 0.1


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_keep_params_nonnegative_after_it_is_followed(noise):
    tx = optax.chain(mu2_auto(), optax.keep_params_nonnegative())
    adam = optax.chain(optax.adam(1e-2), optax.keep_params_nonnegative())
    (params, state), (theirs, _) = (constrained(each, lambda x: x, noise) for each in (tx, adam))
    np.testing.assert_allclose(params, theirs, rtol=0, atol=0.1)
    np.testing.assert_allclose(eval_params(state, params), theirs, rtol=0, atol=0.1)
    assert found_rate(state) < 0.1


def test_reduce_on_plateau_after_it_is_followed():
    """As in Optax's own examples; the factor stays one for a while, and then scales the steps."""
    tx = optax.chain(mu2_auto(), optax.contrib.reduce_on_plateau(patience=5, cooldown=5))
    adam = optax.chain(optax.adam(1e-2), optax.contrib.reduce_on_plateau(patience=5, cooldown=5))

    def final(tx):
        @jax.jit
        def step(params, state, batch):
            value, grads = jax.value_and_grad(loss_fn)(params, batch)
            updates, state = tx.update(grads, state, params, value=value)
            return optax.apply_updates(params, updates), state

        params, state = START, tx.init(START)
        for batch in batches() * 10:
            params, state = step(params, state, batch)
        return params, state

    params, state = final(tx)
    theirs = mean_loss(final(adam)[0])
    assert mean_loss(params) < 1.5 * theirs
    assert mean_loss(eval_params(state, params)) < 1.5 * theirs


@jax.jit
def mean_loss(params):
    return jnp.mean(jnp.array([loss_fn(params, batch) for batch in batches()]))


TWO_GRADIENTS = {
    "mu2_sgd": lambda: mu2_optax.mu2_sgd(0.05),
    "mu2_sgd lean": lambda: mu2_optax.mu2_sgd(0.05, lean=True),
    "mu2_adam": lambda: mu2_optax.mu2_adam(1e-2),
    "anytime_sgd": lambda: mu2_optax.anytime_sgd(0.05, mu2_optax.linear_momentum()),
    "storm": lambda: mu2_optax.storm(0.05, 0.5),
    "mu2_extra_sgd": lambda: mu2_optax.mu2_extra_sgd(0.05),
}


def trained(tx, state, params, steps=5):
    gradient = jax.grad(loss_fn)

    @jax.jit
    def step(params, state, batch):
        grads = gradient(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=gradient, batch=batch)
        return optax.apply_updates(params, updates), state

    tx = optax.with_extra_args_support(tx)
    for batch in batches()[:steps]:
        params, state = step(params, state, batch)
    return params, state


@pytest.mark.parametrize("name", TWO_GRADIENTS)
def test_moved_params_that_are_loaded_before_the_first_step_are_the_start(name):
    """``TrainState.replace(params=restored)``, or weights that are loaded after ``init``."""
    loaded = train(optax.adam(1e-2), data=batches() * 3)[0]
    other = jax.tree.map(lambda p: 3 * p + 1, START)
    tx = TWO_GRADIENTS[name]()
    expected = trained(tx, tx.init(loaded), loaded)
    found = trained(tx, tx.init(other), loaded)
    assert_same(found[0], expected[0], atol=0)
    assert_same(found[1], expected[1], atol=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_moved_params_that_are_loaded_before_the_first_step_are_the_start_of_mu2_auto(dtype):
    """The first step is the same, and the average is within it; later steps are as good."""
    loaded = jax.tree.map(lambda p: p.astype(dtype), train(optax.adam(1e-2), data=batches() * 3)[0])
    other = jax.tree.map(lambda p: (3 * p + 1).astype(dtype), START)
    tx = mu2_auto()
    assert_same(eval_params(tx.init(other), loaded), loaded, atol=0)
    expected = trained(tx, tx.init(loaded), loaded, 1)
    found = trained(tx, tx.init(other), loaded, 1)
    assert_same(found[0], expected[0], atol=0)
    assert_same(found[1].inner_state, expected[1].inner_state, atol=0)
    assert_same(found[1].x, expected[1].x, atol=0.1 * float(found_rate(expected[1])))
    expected = trained(tx, tx.init(loaded), loaded, len(batches()))
    found = trained(tx, tx.init(other), loaded, len(batches()))
    losses = [mean_loss(eval_params(state, params)) for params, state in (found, expected)]
    np.testing.assert_allclose(*losses, rtol=0.01)


def test_moved_params_that_are_loaded_in_a_narrower_dtype_keep_it():
    """Weights from a bfloat16 file, in a loop whose state was made for float32."""
    tx = mu2_auto()
    loaded = jax.tree.map(lambda p: p.astype(jnp.bfloat16), START)
    updates, _ = compiled(tx).update(loaded, tx.init(START), loaded)
    moved = jax.tree.map(jnp.add, loaded, updates)
    assert {p.dtype for p in jax.tree.leaves(moved)} == {jnp.dtype(jnp.bfloat16)}
    wide = jax.tree.map(lambda p: p.astype(jnp.float32), loaded)
    expected, _ = compiled(tx).update(wide, tx.init(wide), wide)
    assert_same(updates, expected, atol=1e-3)


def net_with_a_loop(tx, moved, steps=300):
    """The mean loss at the params and at the average, and the rate, in a loop that moves params."""
    step = jitted_step(tx, jax.grad(loss_fn))
    params, state = START, tx.init(START)
    for i, batch in enumerate(batches() * (steps // len(batches()))):
        params, state = step(params, state, batch)
        params = moved(i + 1, params, state)
    return params, state


OTHER = jax.tree.map(lambda p: jnp.flip(p), START)


@functools.cache
def checkpoint():
    return train(optax.adam(1e-2), data=batches() * 10)[0]


def permuted(params, i):
    order = np.random.default_rng(i).permutation(8)
    body, head = params["body"], params["head"]
    return {
        "body": {"kernel": body["kernel"][:, order], "bias": body["bias"][order]},
        "head": head | {"kernel": head["kernel"][order]},
    }


JUMPS = {
    "a layer is reset": lambda i, p: p | {"head": OTHER["head"]} if i == 150 else p,
    "copied from another": lambda i, p: OTHER if i == 150 else p,
    "loaded": lambda i, p: checkpoint() if i == 150 else p,
    "units permuted": lambda i, p: permuted(p, i) if i in (80, 160, 240) else p,
    "shrunk": lambda i, p: jax.tree.map(lambda a: 0.5 * a, p) if i in (80, 160) else p,
}


@pytest.mark.parametrize("spectral", [False, True])
@pytest.mark.parametrize("name", JUMPS)
def test_jumps_of_the_params_are_followed_by_their_average(name, spectral):
    moved = lambda i, params, state: JUMPS[name](i, params)
    theirs = mean_loss(net_with_a_loop(optax.adam(1e-2), moved)[0])
    params, state = net_with_a_loop(mu2_auto(spectral=spectral), moved)
    assert mean_loss(params) < 1.5 * theirs
    assert mean_loss(eval_params(state, params)) < 1.5 * theirs
    assert found_rate(state) < 0.2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jumps_of_low_rank_factors_that_are_merged_are_followed(dtype):
    """ReLoRA: the product is added to frozen weights every hundred steps, and starts anew."""
    target = jax.random.normal(jax.random.key(1), (16, 8))
    factors = lambda i: 0.3 * jax.random.normal(jax.random.key(i), (16, 2))
    start = {"base": jnp.zeros((16, 8)), "a": factors(0), "b": jnp.zeros((2, 8))}

    def loss(params, x):
        frozen = jax.lax.stop_gradient(params["base"])
        return jnp.mean((x @ (frozen + params["a"] @ params["b"] - target)) ** 2)

    def final(tx):
        step = jitted_step(tx, jax.grad(loss))
        params = jax.tree.map(lambda p: p.astype(dtype), start)
        state = tx.init(params)
        for i, x in enumerate(jax.random.normal(jax.random.key(2), (800, 32, 16), dtype)):
            if i % 100 == 0:
                base = params["base"] + params["a"] @ params["b"]
                params = {"base": base, "a": factors(i).astype(dtype), "b": 0 * params["b"]}
            params, state = step(params, state, x)
        return params, state

    theirs = loss(final(optax.adam(1e-2))[0], jnp.eye(16))
    params, state = final(mu2_auto())
    assert loss(params, jnp.eye(16)) < 1.5 * theirs
    assert loss(eval_params(state, params), jnp.eye(16)) < 1.5 * theirs


@pytest.mark.parametrize("size", [1e-20, 1.0, 1e30])
def test_jumps_of_params_of_any_size_end_at_the_minimum(size):
    tx = mu2_auto()

    @jax.jit
    def step(carry, z):
        params, state = carry
        params = jnp.where(state.t == 200, 9 * size * jnp.array([1.0, -1.0, 1.0]), params)
        grads = params / size - 2 + 0.1 * z
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    start = jnp.full(3, size)
    noise = jax.random.normal(jax.random.key(0), (600, 3))
    (params, state), _ = jax.lax.scan(step, (start, tx.init(start)), noise)
    np.testing.assert_allclose(eval_params(state, params) / size, 2, atol=0.1)


def test_jumps_of_one_replica_under_vmap_leave_the_others_as_they_are():
    tx = mu2_auto()

    def final(start, away):
        def step(carry, z):
            params, state = carry
            params = jnp.where(state.t == 50, params + away, params)
            updates, state = tx.update(CURVATURES * (params - TARGET) + z, state, params)
            return (optax.apply_updates(params, updates), state), None

        noise = jax.random.normal(jax.random.key(0), (200, 3))
        return jax.lax.scan(step, (start, tx.init(start)), noise)[0]

    starts, aways = jnp.stack([FREE, 2 * FREE, FREE]), jnp.array([0.0, 100.0, 0.0])
    whole = jax.jit(jax.vmap(final))
    together, untouched = whole(starts, aways), whole(starts, jnp.zeros(3))
    for i in (0, 2):
        assert_same(*(jax.tree.map(lambda a, i=i: a[i], t) for t in (together, untouched)), atol=0)
    params, state = jax.tree.map(lambda a: a[1], together)
    np.testing.assert_allclose(eval_params(state, params), TARGET, atol=1)


def noisy(params, z):
    return CURVATURES * (params - TARGET) + z[:3]


def masked(params, z):
    """Two numbers that no gradient moves, and that are not finite."""
    return jnp.concatenate([noisy(params[:3], z), jnp.zeros(2)])


UNTOUCHED = {
    "quadratic": (FREE, noisy),
    "without noise": (FREE, lambda p, z: noisy(p, 0 * z)),
    "rare gradients": (FREE, lambda p, z: jnp.where(z[0] > 2, noisy(p, z), 0)),
    "bfloat16": (FREE.astype("bfloat16"), lambda p, z: noisy(p, z).astype(p.dtype)),
    "not finite": (jnp.concatenate([FREE, jnp.array([-jnp.inf, jnp.nan])]), masked),
    "zeros": (jnp.zeros(3), noisy),
    "large": (1e30 * FREE, lambda p, z: noisy(p * 1e-30, z)),
    "far": (FREE, lambda p, z: jnp.ones(3)),
}


@pytest.mark.parametrize("name", [*UNTOUCHED, "network", "network, spectral", "network, decay"])
def test_jumps_are_not_seen_where_nothing_else_moves_the_params(name, monkeypatch):
    options = {"network, spectral": {"spectral": True}, "network, decay": {"weight_decay": 0.1}}

    def final():
        tx = mu2_auto(**options.get(name, {}))
        if name in UNTOUCHED:
            return steps_of(tx, *UNTOUCHED[name], steps=1000)
        return net_with_a_loop(tx, lambda i, params, state: params, steps=1000)

    found = final()
    monkeypatch.setattr("mu2_optax._paper.followed._JUMP", float("inf"))
    assert_same(final(), found, atol=0)


def test_moved_params_that_are_the_average_itself_stay_bounded():
    """``params = eval_params(state, params)`` in the loop: slower, because w loses its lead."""
    put_back = lambda i, params, state: eval_params(state, params)
    params, state = net_with_a_loop(mu2_auto(), put_back)
    assert mean_loss(params) < 0.5 * mean_loss(START)
    assert_same(params, eval_params(state, params), atol=1e-6)
    assert found_rate(state) < 1


def test_moved_params_that_are_averaged_over_replicas_agree_and_learn():
    """Local steps with the params averaged every ten: each replica keeps its own state."""
    halves = [[jax.tree.map(lambda a, h=h: a[h::2], b) for b in batches() * 10] for h in (0, 1)]

    def final(tx):
        step = jitted_step(tx, jax.grad(loss_fn))
        each = [(START, tx.init(START)) for _ in halves]
        for i in range(len(halves[0])):
            each = [step(p, s, data[i]) for (p, s), data in zip(each, halves, strict=True)]
            if i % 10 == 9:
                mean = jax.tree.map(lambda a, b: (a + b) / 2, each[0][0], each[1][0])
                each = [(mean, s) for _, s in each]
        return each

    theirs = mean_loss(final(optax.adam(1e-2))[0][0])
    for params, state in final(mu2_auto()):
        assert mean_loss(params) < 1.5 * theirs
        assert mean_loss(eval_params(state, params)) < 1.5 * theirs
        assert found_rate(state) < 0.5


# Numbers that never move.


def steps_of(tx, params, grad_fn, steps=300):
    def step(carry, z):
        params, state = carry
        updates, state = tx.update(grad_fn(params, z), state, params)
        return (optax.apply_updates(params, updates), state), found_rate(state)

    @jax.jit
    def whole(params):
        z = jax.random.normal(jax.random.key(0), (steps, 64))
        return jax.lax.scan(step, (params, tx.init(params)), z)

    (params, state), rates = whole(params)
    return params, state, rates


def pull(w, z):
    return w - 1 + 0.1 * z[: w.size].reshape(w.shape)


@pytest.mark.parametrize("projected", [False, True])
def test_numbers_without_a_gradient_count_in_nothing(projected):
    """The same run with a million frozen numbers of another size beside it."""
    project = (lambda x: jax.tree.map(lambda a: jnp.clip(a, -50, 50), x)) if projected else None
    tx = mu2_auto(projection=project)
    small = {"w": jnp.full(50, 0.1)}
    large = small | {"frozen": jnp.full((1000, 1000), 7.0)}
    grad = lambda p, z: {k: pull(v, z) if k == "w" else 0 * v for k, v in p.items()}
    alone, _, rates = steps_of(tx, small, grad)
    beside, _, found = steps_of(tx, large, grad)
    np.testing.assert_array_equal(beside["frozen"], 7.0)
    np.testing.assert_allclose(beside["w"], alone["w"], atol=1e-3)
    if not projected:  # there the scale of all directions is another, and the steps are the same
        np.testing.assert_allclose(found, rates, rtol=1e-3)


UNSEEN = {
    "the first hundred": (jnp.full(100_000, 0.1), lambda i: i < 100),
    "some rows": (jnp.full((50_000, 64), 0.1), lambda i: (i // 64 >= 101) & (i // 64 <= 130)),
    "the last fifty": (jnp.full(20_000, 0.1), lambda i: i >= 19_950),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_numbers_that_the_sample_misses_move(name):
    """The sample sees none of those that have a gradient; the rate then falls like 1/√t."""
    start, used = UNSEEN[name]
    mask = used(jnp.arange(start.size).reshape(start.shape))
    grad = lambda p, z: jnp.where(mask, p - 0.4, 0)
    params, state, rates = steps_of(mu2_auto(), start, grad, steps=1000)
    average = np.asarray(eval_params(state, params))
    np.testing.assert_array_equal(average[~np.asarray(mask)], np.float32(0.1))
    np.testing.assert_allclose(average[np.asarray(mask)], 0.4, atol=0.05)
    assert rates[-1] > 0


# Settings.


def test_a_state_of_another_setting_is_refused_by_name():
    params = {"w": jnp.ones((4, 3)), "b": jnp.ones(3)}
    for made, used in ((False, True), (True, False), ({"w": True, "b": False}, False)):
        state = mu2_auto(spectral=made).init(params)
        with pytest.raises(ValueError, match="the same `spectral` and `projection`"):
            mu2_auto(spectral=used).update(params, state, params)
    ball = mu2_optax.onto_l2_ball(1.0)
    with pytest.raises(ValueError, match="the same `spectral` and `projection`"):
        mu2_auto(projection=ball).update(params, mu2_auto().init(params), params)
    gamma = mu2_optax.linear_momentum().gamma
    ahead = mu2_optax.anytime(optax.sgd(0.1), gamma, ahead=0.3)
    with pytest.raises(ValueError, match="`state` must be one that the same `ahead` made"):
        mu2_optax.anytime(optax.sgd(0.1), gamma).update(params, ahead.init(params), params)


@pytest.mark.parametrize("nothing", [np.bool_(False), {"w": False, "b": False}])
def test_nothing_marked_is_no_orthogonal_step_bit_for_bit(nothing):
    params = {"w": jnp.ones((4, 3)), "b": jnp.full(3, 0.5)}
    grad = lambda p, z: jax.tree.map(lambda a: a + z[: a.size].reshape(a.shape), p)
    assert_same(
        steps_of(mu2_auto(spectral=nothing), params, grad, 50)[0],
        steps_of(mu2_auto(), params, grad, 50)[0],
        atol=0,
    )


def test_leaves_by_coordinate_have_no_momentum_beside_matrices_that_never_move():
    params = {"w": jnp.ones((4, 3)), "b": jnp.full(3, 0.5)}
    grad = lambda p, z: {"w": 0 * p["w"], "b": pull(p["b"], z)}
    mixed = steps_of(mu2_auto(spectral=True), params, grad)
    plain = steps_of(mu2_auto(), params, grad)
    np.testing.assert_allclose(mixed[2], plain[2], rtol=1e-5)


# Odd numbers.


def test_meta_gradients_through_the_start_are_finite_and_those_of_differences():
    def final(shift, tx):
        step = lambda c, z: (step_of(tx, c, z), None)
        params = jnp.array([0.5, -0.3]) + shift
        (params, state), _ = jax.lax.scan(step, (params, tx.init(params)), jnp.ones(5))
        return jnp.sum(eval_params(state, params) ** 2)

    def step_of(tx, carry, z):
        params, state = carry
        updates, state = tx.update(params * z * jnp.array([1.0, 0.3]), state, params)
        return optax.apply_updates(params, updates), state

    ball = mu2_optax.onto_l2_ball(10.0)
    for tx in (mu2_auto(), mu2_auto(weight_decay=0.1), mu2_auto(projection=ball)):
        with jax.enable_x64(True):
            whole = jax.jit(lambda s, tx=tx: final(s, tx))
            reverse = jax.jit(jax.grad(whole))(0.1)
            forward = jax.jit(jax.jacfwd(whole))(0.1)
            differences = (whole(0.1 + 1e-6) - whole(0.1 - 1e-6)) / 2e-6
        np.testing.assert_allclose([reverse, forward], differences, rtol=1e-5)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("size", [1e-30, 1e19, 3e19])
def test_gradients_of_any_size_move_as_far(size, projected):
    tx = compiled(mu2_auto(projection=(lambda x: x) if projected else None))
    params = jnp.array([3.0, -4.0, 12.0])
    grads = np.array([1.0, -2.0, 3.0], np.float32)
    expected, _ = tx.update(grads, tx.init(params), params)
    found, _ = tx.update(np.float32(size) * grads, tx.init(params), params)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("size", [1e-20, 1e30])
def test_params_of_any_size_move_by_a_share_of_it(size, projected):
    project = (lambda x: x) if projected else None
    grad = lambda p, z: p / size - 2 + 0.1 * z[:3]
    params, state, _ = steps_of(mu2_auto(projection=project), jnp.full(3, size), grad)
    np.testing.assert_allclose(eval_params(state, params) / size, 2, atol=0.1)


@pytest.mark.parametrize("spectral", [False, True])
def test_map_params_finds_what_is_like_params(spectral):
    params = {"w": jnp.ones((4, 3)), "b": jnp.ones(3)}
    tx = mu2_auto(spectral=spectral)
    state = tx.init(params)
    doubled = optax.tree.map_params(tx, lambda a: 2 * a, state, transform_non_params=lambda a: a)
    assert jax.tree.structure(doubled) == jax.tree.structure(state)
    assert_same(doubled.x, jax.tree.map(lambda a: 2 * a, state.x))
    assert doubled.t == state.t


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("spectral", [False, True])
def test_strict_dtype_promotion_changes_nothing_under_jit(spectral, dtype):
    tx = mu2_auto(spectral=spectral, weight_decay=0.1)
    params = {"w": jnp.full((4, 3), 0.5, dtype), "b": jnp.ones(3, dtype)}

    def two(params):
        state = tx.init(params)
        for _ in range(2):
            updates, state = jax.jit(tx.update)(params, state, params)
            params = optax.apply_updates(params, updates)
        return eval_params(state, params)

    expected = two(params)
    with jax.numpy_dtype_promotion("strict"):
        found = two(params)
    assert_same(found, expected, atol=0)


@pytest.mark.parametrize("spectral", [False, True])
@pytest.mark.parametrize("empty", [{}, (), {"a": jnp.zeros((0, 3))}])
def test_an_empty_tree_is_trained_by_every_choice(empty, spectral):
    tx = mu2_auto(spectral=spectral)
    updates, state = jax.jit(tx.update)(empty, tx.init(empty), empty)
    assert jax.tree.structure(updates) == jax.tree.structure(empty)
    assert found_rate(state) == 0
    assert jax.tree.structure(eval_params(state, empty)) == jax.tree.structure(empty)


def test_float8_params_keep_an_average_that_moves():
    params = jnp.full(4, 0.5, "float8_e4m3fn")
    grad = lambda p, z: (p.astype("float32") - 1).astype(p.dtype)
    tx = mu2_auto()

    @jax.jit
    def step(params, state):
        updates, state = tx.update(grad(params, None), state, params)
        wide = params.astype("float32") + updates.astype("float32")
        return wide.astype(params.dtype), state

    state = tx.init(params)
    for _ in range(300):
        params, state = step(params, state)
    np.testing.assert_allclose(state.x, 1, atol=0.1)


def test_someones_learning_rate_is_refused_by_name():
    with pytest.raises(TypeError, match=r"`mu2_auto` takes no learning rate, got 0\.001"):
        mu2_auto(1e-3)


def test_the_average_of_complex_params_is_found_in_split_real_and_imaginary():
    tx = optax.contrib.split_real_and_imaginary(mu2_auto())
    params = {"z": jnp.array([1 + 2j, -0.5j]), "b": jnp.ones(2)}
    state = tx.init(params)
    for _ in range(3):
        updates, state = jax.jit(tx.update)(params, state, params)
        params = optax.apply_updates(params, updates)
    average = eval_params(state, params)
    assert average["z"].dtype == params["z"].dtype
    assert 0.5 < abs(average["z"][0]) < abs(1 + 2j)
    held = optax.tree.get(state, "AnytimeState").x
    np.testing.assert_array_equal(average["z"].imag, held["z"].imaginary)


def test_the_average_is_found_without_params():
    params, state = train(mu2_auto())
    assert_same(eval_params(state), eval_params(state, params), atol=0)
    with pytest.raises(ValueError, match="`params` must be given, got None"):
        eval_params(mu2_optax.mu2_sgd(0.1).init(START))
