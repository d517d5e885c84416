"""The correction on a part of the batch: exact, unbiased, and as cheap as it says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from problems import (
    full_precision,
    grad_in_parts,
    join,
    loss,
    numpy_grad,
    run,
    samples,
    split,
)

import mu2_optax as m
from mu2_optax import lmo

T, SIZE, SHARE = 120, 8, 1 / 4
TAKEN = 2  # samples: a quarter of eight
RADIUS = 0.7
X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
BATCHES = samples(T * SIZE).reshape(T, SIZE, -1)


def mean_loss(params, z):
    return jnp.mean(jax.vmap(loss, (None, 0))(params, z))


mean_grad = jax.jit(jax.grad(mean_loss))


def numpy_mean_grad(x, z):
    return np.mean([numpy_grad(x, row) for row in z], axis=0)


def first(z):
    return z[:TAKEN]


def storm(learning_rate, momentum, *, projection, weighted_steps):
    del weighted_steps
    return m.storm(learning_rate, momentum.beta, projection=projection)


ALGORITHMS = {
    "mu2_sgd": (m.mu2_sgd, reference.mu2_sgd),
    "storm": (storm, reference.storm),
    "mu2_extra_sgd": (m.mu2_extra_sgd, reference.mu2_extra_sgd_in_parts),
    "mu2_extra_sgd, hint": (
        functools.partial(m.mu2_extra_sgd, hint=1 / 2),
        functools.partial(reference.mu2_extra_sgd_in_parts, hint=TAKEN),
    ),
}
PRESETS = {
    "linear": (m.linear_momentum(1), reference.linear(1, T)),
    "fixed": (m.fixed_momentum(), reference.fixed(0.1, 0.9, T)),
    "measured": (
        m.linear_momentum(beta=m.measured_beta()),
        reference.MeasuredWeights(T, [slice(0, 4), slice(4, 5)]),
    ),
}


def project_numpy(x):
    norm = np.linalg.norm(x)
    return x if norm <= RADIUS else x * (RADIUS / norm)


@functools.cache
def oracle(algorithm, preset, projected):
    _, in_numpy = ALGORITHMS[algorithm]
    proj = project_numpy if projected else (lambda x: x)
    weights = PRESETS[preset][1]
    return in_numpy(numpy_mean_grad, X1, BATCHES, 0.5, weights, proj, False, part=first)


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize(
    ("projected", "dtype", "tolerance"),
    [
        (False, "float64", 1e-12),
        (True, "float64", 1e-12),
        pytest.param(True, "float32", 1e-4, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_part_oracle_is_followed_by_each_optimizer(algorithm, preset, projected, dtype, tolerance):
    expected = oracle(algorithm, preset, projected)
    make, _ = ALGORITHMS[algorithm]
    part = 2 * SHARE if "hint" in algorithm else SHARE  # half of it is the hint's
    with full_precision(dtype):
        tx = make(
            0.5,
            PRESETS[preset][0],
            projection=m.onto_l2_ball(RADIUS) if projected else None,
            weighted_steps=False,
        )
        params = split(jnp.array(X1, dtype))
        points, _ = run(tx, params, jnp.array(BATCHES, dtype), mean_grad, part)
        np.testing.assert_allclose(join(points), expected, rtol=0, atol=tolerance)


def test_part_oracle_differs_from_that_of_the_whole():
    """Otherwise agreeing with the oracle would prove nothing."""
    whole = reference.mu2_sgd(
        numpy_mean_grad, X1, BATCHES, 0.5, PRESETS["linear"][1], lambda x: x, False
    )
    assert np.abs(whole - oracle("mu2_sgd", "linear", False)).max() > 1e-2
    without = oracle("mu2_extra_sgd", "linear", False)
    assert np.abs(without - oracle("mu2_extra_sgd, hint", "linear", False)).max() > 1e-2


PARAMS = split(jnp.array(X1, jnp.float32))
Z1, Z2 = jnp.array(BATCHES[:2], jnp.float32)

EVERY = {
    "corrected_momentum": m.corrected_momentum(0.3),
    "mu2": m.mu2(optax.rmsprop(0.1)),
    "mu2_sgd": m.mu2_sgd(0.1),
    "mu2_sgd measured": m.mu2_sgd(0.1, m.linear_momentum(beta=m.measured_beta())),
    "mu2_adam": m.mu2_adam(0.1),
    "mu2_adam, decayed": m.mu2_adam(0.1, weight_decay=1e-4),
    "mu2_frank_wolfe": m.mu2_frank_wolfe(lmo.l2_ball(1.0)),
    "storm": m.storm(0.1, 0.3),
    "mu2_extra_sgd": m.mu2_extra_sgd(0.1),
}
every_optimizer = pytest.mark.parametrize("tx", EVERY.values(), ids=EVERY)


def two_steps(tx, part=None, gradient=mean_grad, batches=(Z1, Z2)):
    """The params and the state after two steps."""
    params, state = PARAMS, tx.init(PARAMS)
    for z in batches:
        if part is None:
            grads, again = gradient(params, z), {"grad_fn": gradient, "batch": z}
        else:
            grads, again = grad_in_parts(gradient, part)(params, z)
        updates, state = tx.update(grads, state, params, **again)
        params = optax.apply_updates(params, updates)
    return params, state


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), a, b)


@every_optimizer
def test_part_of_everything_is_the_plain_correction(tx):
    plain = two_steps(tx)
    assert_close(two_steps(tx, 1), plain, rtol=0)
    # A function that returns the batch: the same, up to the rounding of float32.
    assert_close(two_steps(tx, lambda z: z), plain, rtol=1e-5, atol=1e-6)


@every_optimizer
def test_part_by_share_is_part_by_function(tx):
    by_share = two_steps(tx, SHARE)
    assert_close(by_share, two_steps(tx, first), rtol=1e-5, atol=1e-6)  # sums in another order
    assert np.any(join(by_share[0]) != join(two_steps(tx)[0]))


def test_part_gives_an_unbiased_estimate():
    """Over the disjoint parts of a batch, the mean of d is the d of the whole batch."""
    tx = m.corrected_momentum(0.3)
    _, state = tx.update(mean_grad(PARAMS, Z1), tx.init(PARAMS), PARAMS, prev_grads=PARAMS)
    moved = jax.tree.map(lambda p: p + 0.1, PARAMS)

    def d(part):
        grads, again = grad_in_parts(mean_grad, part)(moved, Z2)
        return tx.update(grads, state, moved, **again)[0]

    parts = [d(lambda z, k=k: z[k : k + 2]) for k in range(0, SIZE, 2)]
    assert_close(jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *parts), d(1), rtol=1e-5)
    assert not np.allclose(join(parts[0]), join(parts[1]), rtol=1e-2)


def counted(lengths):
    def count(params, z):
        lengths.append(len(z))
        return mean_grad(params, z)

    return count


@pytest.mark.parametrize(
    ("tx", "part", "gradients"),
    [
        (m.mu2_sgd(0.1), SHARE, 1 + SHARE),
        (m.storm(0.1, 0.3), SHARE, 1 + SHARE),
        (m.mu2_sgd(0.1), first, 1 + 2 * SHARE),
        (m.mu2_extra_sgd(0.1), SHARE, 1 + 2 * SHARE),
        (m.mu2_extra_sgd(0.1, hint=SHARE), None, 3),
        (m.mu2_extra_sgd(0.1, hint=1 / 2), SHARE, 1 + 2 * SHARE),
    ],
)
def test_part_costs_the_stated_number_of_gradients(tx, part, gradients):
    lengths = []
    two_steps(tx, part, counted(lengths))
    assert sum(lengths) == 2 * SIZE * gradients


@pytest.mark.parametrize("has_aux", [False, True])
def test_part_of_a_loss_with_aux_is_evaluated_whole(has_aux):
    lengths = []

    def of_mean(params, z):
        lengths.append(len(z))
        value = mean_loss(params, z)
        return (value, len(z)) if has_aux else value

    out, grads, again = m.value_and_grad(of_mean, has_aux=has_aux, part=SHARE)(PARAMS, Z1)
    assert sum(lengths) == (SIZE + TAKEN if has_aux else SIZE)
    assert_close(
        out[0] if has_aux else out,
        of_mean(PARAMS, Z1)[0] if has_aux else of_mean(PARAMS, Z1),
        rtol=1e-6,
    )
    assert_close(grads, mean_grad(PARAMS, Z1), rtol=1e-5, atol=1e-6)
    elsewhere = jax.tree.map(lambda p: p + 0.1, PARAMS)
    by_grad_fn = grad_in_parts(mean_grad, SHARE)(PARAMS, Z1)[1]
    expected = by_grad_fn["grad_fn"](elsewhere, by_grad_fn["batch"])
    assert_close(again["grad_fn"](elsewhere, again["batch"]), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("hint", "part"), [(SHARE, None), (1 / 2, 2 * SHARE)])
def test_part_takes_no_sample_of_the_hint(hint, part):
    tx = m.mu2_extra_sgd(0.1, hint=hint)
    points = []

    def watched(params, z):
        points.append((join(params), {float(row[-1]) for row in z}))
        return mean_grad(params, z)

    grads, again = grad_in_parts(mean_grad, part or 1)(PARAMS, Z1)
    _, state = tx.update(grads, tx.init(PARAMS), PARAMS, **again)
    params = jax.tree.map(lambda p: p + 0.1, PARAMS)  # so that the three points are three
    grads, again = grad_in_parts(watched, part or 1)(params, Z1)
    tx.update(grads, state, params, **again)
    used = {tuple(x): z for x, z in points if not np.allclose(x, join(params))}
    own, estimate = used.values()
    assert len(own) == TAKEN
    assert len(estimate) == (TAKEN if part else SIZE - TAKEN)
    assert not own & estimate


def test_part_by_share_refuses_ragged_batches():
    def noisy(params, batch):
        scale = jax.random.uniform(batch["key"])
        return jax.tree.map(lambda g: scale * g, mean_grad(params, batch["z"]))

    grad_in_parts(noisy, SHARE)(PARAMS, {"z": Z1, "key": jax.random.key(0)})

    ragged = {"z": Z1, "lengths": jnp.arange(3)}
    by_z = lambda params, batch: mean_grad(params, batch["z"])
    with pytest.raises(ValueError, match=r"one length in all arrays .* shapes \[\(3,"):
        grad_in_parts(by_z, SHARE)(PARAMS, ragged)
    halved = lambda batch: {"z": batch["z"][:4], "lengths": batch["lengths"]}
    two_steps(EVERY["mu2_sgd measured"], halved, by_z, (ragged, ragged))


@pytest.mark.parametrize("part", [0, -0.5, 1.5, float("nan")])
def test_part_must_lie_between_zero_and_one(part):
    with pytest.raises(ValueError, match=r"`part` must lie in \(0, 1\], got"):
        m.value_and_grad(loss, part=part)
    with pytest.raises(ValueError, match=r"`hint` must lie in \(0, 1\], got"):
        m.mu2_extra_sgd(0.1, hint=part)


def test_part_must_be_a_static_number_or_a_function():
    with pytest.raises(TypeError, match=r"share of the batch such as 1/8, or a function .*'half'"):
        m.value_and_grad(loss, part="half")
    with pytest.raises(TypeError, match=r"`part` must be a Python number .*static_args=\(.part."):
        m.value_and_grad(loss, part=jnp.array(0.5))
    with pytest.raises(TypeError, match=r"`hint` must be a Python number such as 1/8"):
        m.mu2_extra_sgd(0.1, hint=first)


def test_part_must_have_a_sample():
    with pytest.raises(ValueError, match=r"at least one sample, got 0\.05 of a batch of 8; take a"):
        two_steps(m.mu2_sgd(0.1), 0.05)
    with pytest.raises(ValueError, match=r"`hint` must leave at least one sample for the estimate"):
        two_steps(m.mu2_extra_sgd(0.1, hint=0.99))


def test_part_of_a_batch_without_samples_is_refused():
    with pytest.raises(ValueError, match=r"got arrays of shapes \[\]; pass a function"):
        grad_in_parts(lambda p, z: p, SHARE)(PARAMS, ())


@pytest.mark.parametrize("tx", [m.mu2_sgd(0.1), m.mu2_extra_sgd(0.1, hint=0.5)])
def test_part_needs_a_batch(tx):
    with pytest.raises(ValueError, match=r"`batch` was not given: call"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS, grad_fn=mean_grad)


def test_part_of_small_batches_is_added_up_over_calls():
    """Two calls of four samples with one of each, against one of eight and the same two."""
    small = m.accumulate_gradients(EVERY["mu2_sgd"], 2)
    params, _ = two_steps(small, SHARE, batches=(Z1[:4], Z1[4:], Z2[:4], Z2[4:]))
    at_once, _ = two_steps(EVERY["mu2_sgd"], lambda z: z[::4])
    assert_close(params, at_once, rtol=1e-5, atol=1e-6)


def test_part_of_microbatches_is_some_of_them():
    tx, evaluate = EVERY["mu2_sgd"], m.value_and_grad(mean_loss, accumulate=True, part=1 / 4)
    params, state = PARAMS, tx.init(PARAMS)
    for z in (Z1, Z2):
        _, grads, again = evaluate(params, z.reshape(4, 2, -1))
        assert again["batch"][0][0].shape[:2] == (1, 2)
        updates, state = tx.update(grads, state, params, **again)
        params = optax.apply_updates(params, updates)
    assert_close((params, state), two_steps(tx, first), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["mu2_sgd", "mu2_sgd measured"])
def test_part_leaves_held_leaves_alone(name):
    def only_rest(params, z):
        return mean_grad({"matrix": PARAMS["matrix"], "rest": params["rest"]}, z)

    lengths = []
    frozen = m.hold_fixed(EVERY[name], {"matrix": True, "rest": False})
    params, state = two_steps(frozen, SHARE, counted(lengths))
    assert sum(lengths) == 2 * SIZE * (1 + SHARE)
    assert_close(params["matrix"], PARAMS["matrix"], rtol=0)
    # β sees the part, as it does where nothing but the rest is there.
    alone, alone_state = {"rest": PARAMS["rest"]}, EVERY[name].init({"rest": PARAMS["rest"]})
    gradient = lambda params, z: {"rest": only_rest(params, z)["rest"]}
    for z in (Z1, Z2):
        grads, again = grad_in_parts(gradient, SHARE)(alone, z)
        updates, alone_state = EVERY[name].update(grads, alone_state, alone, **again)
        alone = optax.apply_updates(alone, updates)
    assert_close(params["rest"], alone["rest"], rtol=1e-6)
    assert_close(state.corrected.beta_memory, alone_state.corrected.beta_memory, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_part_adds_narrow_gradients_in_float32(dtype):
    """ξ(B) - ξ(S) must not be rounded: with S = B it is zero, and d is the plain one."""
    params = jax.tree.map(lambda p: p.astype(dtype), PARAMS)
    batches = jnp.array(BATCHES, dtype)
    tx = m.mu2_sgd(0.5, m.linear_momentum())
    plain, _ = run(tx, params, batches, mean_grad)
    points, state = run(tx, params, batches, mean_grad, lambda z: z)
    assert state.d["matrix"].dtype == jnp.float32
    # One place of a bfloat16 of order one: g - (g - g̃) is g̃ up to float32.
    assert_close(points, plain, rtol=0, atol=2.0**-7)


@pytest.mark.slow
def test_part_is_known_to_the_error_bar():
    """On quadratics whose samples differ in curvature and minimum, against the exact gradient."""
    dim, size, seeds, steps = 50, 16, 24, 300

    def quadratic(params, batch):
        curvature, minimum = batch
        return jnp.mean(curvature * (params - minimum), axis=0)

    def sample(key):
        one, two = jax.random.split(key)
        curvature = jnp.exp(0.5 * jax.random.normal(one, (size, dim)) - 0.125)  # of mean one
        return curvature, jax.random.normal(two, (size, dim))

    def final(key):
        ball = m.onto_l2_ball(3.0)
        momentum = m.linear_momentum(beta=m.measured_beta())
        tx = m.mu2_sgd(10.0, momentum, projection=ball)

        def step(carry, key):
            params, state = carry
            grads, again = grad_in_parts(quadratic, 1 / 8)(params, sample(key))
            updates, state = tx.update(grads, state, params, **again)
            error = jnp.sum((state.d - params) ** 2)  # the exact gradient at params is params
            return (optax.apply_updates(params, updates), state), error

        params = jnp.full(dim, 0.2)
        keys = jax.random.split(key, steps)
        (_, state), errors = jax.lax.scan(step, (params, tx.init(params)), keys)
        bar = m.error_bar(state)
        return errors[-1], bar.error, bar.noise

    keys = jax.random.split(jax.random.key(0), seeds)
    true, bar, noise = (np.mean(a) for a in jax.jit(jax.vmap(final))(keys))
    # Noise of a batch near the minimum: E c² E z² / size in each of the coordinates.
    expected = dim * np.exp(0.25) / size
    assert 0.7 < noise / expected < 1.4
    assert 0.7 < bar / true < 3
    assert true < expected / 20


def test_part_is_taken_by_each_device_of_its_own_share():
    """Eight devices with two samples each and one of them in the part, against every other one."""
    mesh = jax.make_mesh((8,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    tx = EVERY["mu2_sgd measured"]
    mean_loss = lambda params, z: jnp.mean(jax.vmap(loss, (None, 0))(params, z))

    def step(carry, z, **options):
        params, state = carry
        _, grads, again = m.value_and_grad(mean_loss, **options)(params, z)
        updates, state = tx.update(grads, state, params, **again)
        return optax.apply_updates(params, updates), state

    on_eight = jax.shard_map(
        functools.partial(step, axis_name="all", part=1 / 2),
        mesh=mesh,
        in_specs=(spec(), spec("all")),
        out_specs=spec(),
    )
    on_one = functools.partial(step, part=lambda z: (z[::2],))
    eight = one = (PARAMS, tx.init(PARAMS))
    for z in jnp.array(BATCHES[:6].reshape(3, 16, -1), jnp.float32):
        eight, one = jax.jit(on_eight)(eight, z), jax.jit(on_one)(one, z)
    assert_close(eight, one, rtol=1e-4, atol=1e-6)
