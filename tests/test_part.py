"""The correction on a part of the batch: exact, unbiased, and as cheap as it says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from problems import full_precision, join, loss, numpy_grad, run, samples, split

import mu2_optax as m
from mu2_optax import lmo

T, SIZE, SHARE = 120, 8, 1 / 4
TAKEN = 2  # samples: a quarter of eight
RADIUS = 0.7
X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
BATCHES = samples(T * SIZE).reshape(T, SIZE, -1)

mean_grad = jax.jit(jax.grad(lambda params, z: jnp.mean(jax.vmap(loss, (None, 0))(params, z))))


def numpy_mean_grad(x, z):
    return np.mean([numpy_grad(x, row) for row in z], axis=0)


def first(z):
    return z[:TAKEN]


def storm(learning_rate, momentum, *, projection, weighted_steps, part):
    del weighted_steps
    return m.storm(learning_rate, momentum.beta, projection=projection, part=part)


ALGORITHMS = {
    "mu2_sgd": (m.mu2_sgd, reference.mu2_sgd),
    "storm": (storm, reference.storm),
    "mu2_extra_sgd": (m.mu2_extra_sgd, reference.mu2_extra_sgd_in_parts),
    "mu2_extra_sgd, hint": (
        functools.partial(m.mu2_extra_sgd, hint=1 / 4),
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


@pytest.mark.parametrize(
    ("projected", "dtype", "tolerance"),
    [(False, "float64", 1e-12), (True, "float64", 1e-12), (True, "float32", 1e-4)],
)
@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_optimizer_follows_its_oracle(algorithm, preset, projected, dtype, tolerance):
    expected = oracle(algorithm, preset, projected)
    make, _ = ALGORITHMS[algorithm]
    # With a hint, two of the six that it leaves.
    part = TAKEN / (SIZE - TAKEN) if "hint" in algorithm else SHARE
    with full_precision(dtype):
        tx = make(
            0.5,
            PRESETS[preset][0],
            projection=m.onto_l2_ball(RADIUS) if projected else None,
            weighted_steps=False,
            part=part,
        )
        params = split(jnp.array(X1, dtype))
        points, _ = run(tx, params, jnp.array(BATCHES, dtype), mean_grad)
        np.testing.assert_allclose(join(points), expected, rtol=0, atol=tolerance)


def test_a_part_makes_another_run():
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
    "corrected_momentum": lambda **part: m.corrected_momentum(0.3, **part),
    "mu2": lambda **part: m.mu2(optax.rmsprop(0.1), **part),
    "mu2_sgd": lambda **part: m.mu2_sgd(0.1, **part),
    "mu2_sgd measured": lambda **part: m.mu2_sgd(
        0.1, m.linear_momentum(beta=m.measured_beta()), **part
    ),
    "mu2_adam": lambda **part: m.mu2_adam(0.1, **part),
    "mu2_adamw": lambda **part: m.mu2_adamw(0.1, **part),
    "mu2_frank_wolfe": lambda **part: m.mu2_frank_wolfe(lmo.l2_ball(1.0), **part),
    "storm": lambda **part: m.storm(0.1, 0.3, **part),
    "mu2_extra_sgd": lambda **part: m.mu2_extra_sgd(0.1, **part),
}
every_optimizer = pytest.mark.parametrize("make", EVERY.values(), ids=EVERY)


def two_steps(tx, gradient=None, params=PARAMS):
    """The params and the state after two steps; ``gradient`` returns (grads, again)."""
    state = tx.init(params)
    for z in (Z1, Z2):
        if gradient is None:
            grads, again = mean_grad(params, z), {"grad_fn": mean_grad, "batch": z}
        else:
            grads, again = gradient(params, z)
        updates, state = tx.update(grads, state, params, **again)
        params = optax.apply_updates(params, updates)
    return params, state


def assert_close(a, b, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), a, b)


@every_optimizer
def test_the_whole_batch_as_its_part_is_the_plain_correction(make):
    plain = two_steps(make())
    assert_close(two_steps(make(part=1)), plain, rtol=0)
    # A function that returns the batch: the same, up to the rounding of float32.
    assert_close(two_steps(make(part=lambda z: z)), plain, rtol=1e-5, atol=1e-6)


@every_optimizer
def test_a_share_and_a_function_that_takes_it_are_the_same(make):
    by_share, by_function = two_steps(make(part=SHARE)), two_steps(make(part=first))
    assert_close(by_share, by_function, rtol=0)
    assert np.any(join(by_share[0]) != join(two_steps(make())[0]))


@every_optimizer
def test_a_batch_in_two_parts_is_the_same_step(make):
    inside = two_steps(make(part=SHARE))
    outside = two_steps(make(), m.grad_in_parts(mean_grad, SHARE))
    assert_close(outside, inside, rtol=1e-5, atol=1e-6)  # sums in another order


def test_the_estimate_is_unbiased():
    """Over the disjoint parts of a batch, the mean of d is the d of the whole batch."""
    momentum = lambda part: m.corrected_momentum(0.3, part=part)
    _, state = momentum(None).update(
        mean_grad(PARAMS, Z1), momentum(None).init(PARAMS), PARAMS, grad_fn=mean_grad, batch=Z1
    )
    moved = jax.tree.map(lambda p: p + 0.1, PARAMS)

    def d(part):
        grads = mean_grad(moved, Z2)
        return momentum(part).update(grads, state, moved, grad_fn=mean_grad, batch=Z2)[0]

    parts = [d(lambda z, k=k: z[k : k + 2]) for k in range(0, SIZE, 2)]
    assert_close(
        jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *parts), d(None), rtol=1e-5
    )
    assert not np.allclose(join(parts[0]), join(parts[1]), rtol=1e-2)


def counted(lengths):
    def count(params, z):
        lengths.append(len(z))
        return mean_grad(params, z)

    return count


@pytest.mark.parametrize(
    ("make", "outside", "inside"),
    [
        (EVERY["mu2_sgd"], 1 + SHARE, 1 + 2 * SHARE),
        (EVERY["storm"], 1 + SHARE, 1 + 2 * SHARE),
        (EVERY["mu2_extra_sgd"], 1 + 2 * SHARE, 1 + 3 * SHARE),
    ],
)
def test_a_step_costs_as_many_gradients_as_it_says(make, outside, inside):
    lengths = []
    two_steps(make(), m.grad_in_parts(counted(lengths), SHARE))
    assert sum(lengths) == 2 * SIZE * outside
    lengths.clear()
    both = lambda params, z: (
        counted(lengths)(params, z),
        {"grad_fn": counted(lengths), "batch": z},
    )
    two_steps(make(part=SHARE), both)
    assert sum(lengths) == 2 * SIZE * inside


@pytest.mark.parametrize(
    ("part", "gradients"), [(None, 3), (1 / 2, 1 + 2 * SHARE + 2 * (1 - SHARE) / 2)]
)
def test_a_hint_of_its_own_costs_no_more_than_the_papers(part, gradients):
    lengths = []
    both = lambda params, z: (
        counted(lengths)(params, z),
        {"grad_fn": counted(lengths), "batch": z},
    )
    two_steps(m.mu2_extra_sgd(0.1, part=part, hint=SHARE), both)
    assert sum(lengths) == 2 * SIZE * gradients


def test_the_estimate_takes_no_sample_of_the_hint():
    tx = m.mu2_extra_sgd(0.1, hint=SHARE)
    points = []

    def watched(params, z):
        points.append((join(params), {float(row[-1]) for row in z}))
        return mean_grad(params, z)

    state = tx.init(PARAMS)
    params = jax.tree.map(lambda p: p + 0.1, PARAMS)  # so that the three points are three
    tx.update(mean_grad(params, Z1), state, params, grad_fn=watched, batch=Z1)
    used = {tuple(x): z for x, z in points if not np.allclose(x, join(params))}
    hint, estimate = used.values()
    assert len(hint) == TAKEN
    assert len(estimate) == SIZE - TAKEN
    assert not hint & estimate


def test_keys_belong_to_every_sample_and_ragged_batches_need_a_function():
    def noisy(params, batch):
        scale = jax.random.uniform(batch["key"])
        return jax.tree.map(lambda g: scale * g, mean_grad(params, batch["z"]))

    batch = {"z": Z1, "key": jax.random.key(0)}
    tx = m.mu2_sgd(0.1, part=SHARE)
    tx.update(noisy(PARAMS, batch), tx.init(PARAMS), PARAMS, grad_fn=noisy, batch=batch)

    ragged = {"z": Z1, "lengths": jnp.arange(3)}
    by_z = lambda params, batch: mean_grad(params, batch["z"])
    call = lambda tx: tx.update(
        by_z(PARAMS, ragged), tx.init(PARAMS), PARAMS, grad_fn=by_z, batch=ragged
    )
    with pytest.raises(ValueError, match=r"one length in all arrays .* shapes \[\(3,"):
        call(tx)
    halved = lambda batch: {"z": batch["z"][:4], "lengths": batch["lengths"]}
    call(m.mu2_sgd(0.1, m.linear_momentum(beta=m.measured_beta()), part=halved))


@pytest.mark.parametrize("part", [0, -0.5, 1.5, float("nan")])
def test_a_share_lies_between_zero_and_one(part):
    for make in EVERY.values():
        with pytest.raises(ValueError, match=r"`part` must lie in \(0, 1\], got"):
            make(part=part)
    with pytest.raises(ValueError, match=r"`hint` must lie in \(0, 1\], got"):
        m.mu2_extra_sgd(0.1, hint=part)


def test_a_part_is_a_static_number_or_a_function():
    with pytest.raises(TypeError, match=r"share of the batch such as 1/8, or a function .*'half'"):
        m.mu2_sgd(0.1, part="half")
    with pytest.raises(TypeError, match=r"`part` must be a Python number .*static_args=\(.part."):
        m.mu2_sgd(0.1, part=jnp.array(0.5))
    with pytest.raises(TypeError, match=r"`part` must be a Python number such as 1/8"):
        m.grad_in_parts(mean_grad, first)
    with pytest.raises(TypeError, match=r"`hint` must be a Python number such as 1/8"):
        m.mu2_extra_sgd(0.1, hint=first)


def test_a_part_has_a_sample_and_so_has_what_a_hint_leaves():
    with pytest.raises(ValueError, match=r"at least one sample, got 0\.05 of a batch of 8; take a"):
        two_steps(m.mu2_sgd(0.1, part=0.05))
    with pytest.raises(ValueError, match=r"`hint` must leave at least one sample to the rest"):
        two_steps(m.mu2_extra_sgd(0.1, hint=0.99))


def test_a_batch_without_samples_has_no_share():
    tx = m.mu2_sgd(0.1, part=SHARE)
    with pytest.raises(ValueError, match=r"got arrays of shapes \[\]; pass a function"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS, grad_fn=lambda p, z: p, batch=())


@pytest.mark.parametrize("tx", [m.mu2_sgd(0.1, part=0.5), m.mu2_extra_sgd(0.1, hint=0.5)])
def test_a_part_of_a_part_is_refused(tx):
    with pytest.raises(ValueError, match=r"got a part of one; drop it from"):
        two_steps(tx, m.grad_in_parts(mean_grad, SHARE))


@pytest.mark.parametrize("tx", [m.mu2_sgd(0.1, part=0.5), m.mu2_extra_sgd(0.1, hint=0.5)])
def test_a_missing_batch_is_said_as_ever(tx):
    with pytest.raises(ValueError, match=r"`batch` was not given: call"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS, grad_fn=mean_grad)


def test_a_part_and_given_previous_gradients_exclude_each_other():
    tx = m.mu2_sgd(0.1, part=SHARE)
    with pytest.raises(ValueError, match=r"`prev_grads` must not be given .* got both; drop one"):
        tx.update(PARAMS, tx.init(PARAMS), PARAMS, prev_grads=PARAMS)
    with pytest.raises(ValueError, match=r"\(`multi_steps` gives it\), got both"):
        two_steps(m.multi_steps(tx, 2))


def test_multi_steps_adds_up_the_parts_of_its_small_batches():
    """Two calls of four samples with one of each, against one of eight and the same two."""
    small = m.multi_steps(EVERY["mu2_sgd"](), 2)
    params, state = PARAMS, small.init(PARAMS)
    for z in (Z1[:4], Z1[4:], Z2[:4], Z2[4:]):
        grads, again = m.grad_in_parts(mean_grad, SHARE)(params, z)
        updates, state = small.update(grads, state, params, **again)
        params = optax.apply_updates(params, updates)
    at_once, _ = two_steps(EVERY["mu2_sgd"](part=lambda z: z[::4]))
    assert_close(params, at_once, rtol=1e-5, atol=1e-6)


def test_accumulated_microbatches_are_the_natural_parts():
    accumulated = m.accumulate(mean_grad)
    stacked = lambda z: z.reshape(4, 2, -1)
    lengths = []

    def both(params, z):
        z = stacked(z)
        return accumulated(params, z), {"grad_fn": accumulated, "batch": z}

    def in_parts(params, z):
        gradient = lambda params, z: (lengths.append(len(z)), accumulated(params, z))[1]
        return m.grad_in_parts(gradient, 1 / 4)(params, stacked(z))

    expected = two_steps(EVERY["mu2_sgd"](part=first))
    assert_close(two_steps(EVERY["mu2_sgd"](part=1 / 4), both), expected, rtol=1e-5, atol=1e-6)
    assert_close(two_steps(EVERY["mu2_sgd"](), in_parts), expected, rtol=1e-5, atol=1e-6)
    assert lengths == [1, 3, 1] * 2


def test_frozen_leaves_stay_with_a_part():
    mask = {"matrix": True, "rest": False}
    inside, _ = two_steps(m.freeze(EVERY["mu2_sgd"](part=SHARE), mask))
    lengths = []
    gradient = m.grad_in_parts(counted(lengths), SHARE)
    outside, _ = two_steps(m.freeze(EVERY["mu2_sgd"](), mask), gradient)
    assert sum(lengths) == 2 * SIZE * (1 + SHARE)
    assert_close(outside, inside, rtol=1e-5, atol=1e-6)
    assert_close(inside["matrix"], PARAMS["matrix"], rtol=0)
    assert float(inside["rest"][0]) != float(PARAMS["rest"][0])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_gradients_are_added_up_in_float32(dtype):
    """ξ(B) - ξ(S) must not be rounded: with S = B it is zero, and d is the plain one."""
    params = jax.tree.map(lambda p: p.astype(dtype), PARAMS)
    batches = jnp.array(BATCHES, dtype)
    plain, _ = run(m.mu2_sgd(0.5, m.linear_momentum()), params, batches, mean_grad)
    whole = m.mu2_sgd(0.5, m.linear_momentum(), part=lambda z: z)
    points, state = run(whole, params, batches, mean_grad)
    assert state.d["matrix"].dtype == jnp.float32
    # One place of a bfloat16 of order one: g - (g - g̃) is g̃ up to float32.
    assert_close(points, plain, rtol=0, atol=2.0**-7)


def test_the_error_bar_knows_that_the_change_comes_from_a_part():
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
        tx = m.mu2_sgd(10.0, momentum, projection=ball, part=1 / 8)

        def step(carry, key):
            params, state = carry
            batch = sample(key)
            grads = quadratic(params, batch)
            updates, state = tx.update(grads, state, params, grad_fn=quadratic, batch=batch)
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


def test_each_device_takes_a_part_of_its_own_share():
    """Eight devices with two samples each and one of them in the part, against every other one."""
    mesh = jax.make_mesh((8,), ("all",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    tx = EVERY["mu2_sgd measured"]()
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
