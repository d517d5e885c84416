"""What an optimizer with nothing to choose promises: its invariances, and where it stands still."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import test_linen
import test_nnx
from cnn import assert_close, batches, nnx_model
from flax import nnx
from problems import grad_fn, join, loss, run, samples, split, x64

import mu2_optax

X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
ZS = samples(300, seed=2)


def steps(tx, params, grad_fn, batches):
    """The params and state at the end of a run, and the rate of each step."""

    def step(carry, batch):
        params, state = carry
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return (optax.apply_updates(params, updates), state), state.inner_state.rate

    scan = jax.jit(lambda carry, batches: jax.lax.scan(step, carry, batches))
    (params, state), rates = scan((params, tx.init(params)), batches)
    return params, state, rates


def points_in_float64(tx, start=X1, grad_fn=grad_fn, batches=ZS):
    with x64():
        return join(run(tx, split(jnp.array(start)), jnp.array(batches), grad_fn)[0])


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scaling_the_loss_changes_nothing(scale):
    scaled = jax.grad(lambda params, z: scale * loss(params, z))
    same = points_in_float64(mu2_optax.mu2_auto(), grad_fn=scaled)
    # Not to the last place: 10⁻¹⁷ is added to the root of v.
    np.testing.assert_allclose(same, points_in_float64(mu2_optax.mu2_auto()), rtol=0, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_scaling_the_params_changes_nothing_but_the_role_of_the_floor(scale):
    """The first rate is 10⁻⁴ (size + 10⁻⁴); with a factor that undoes the sum, the run scales."""
    composed = jax.grad(lambda p, z: loss(jax.tree.map(lambda a: a / scale, p), z))
    size = np.sqrt(np.mean(X1**2))
    tx = mu2_optax.mu2_auto(scale * (size + 1e-4) / (scale * size + 1e-4))
    same = points_in_float64(tx, scale * X1, composed)
    expected = scale * points_in_float64(mu2_optax.mu2_auto())
    np.testing.assert_allclose(same, expected, rtol=0, atol=1e-8 * scale)


def test_a_shorter_run_is_the_beginning_of_a_longer_one():
    short = points_in_float64(mu2_optax.mu2_auto(), batches=ZS[:100])
    np.testing.assert_array_equal(short, points_in_float64(mu2_optax.mu2_auto())[:100])


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e12])
def test_the_first_step_moves_each_coordinate_by_a_ten_thousandth_of_the_params_size(size):
    """It moves w by that, and the average by two thirds of it, whatever the gradient's size."""
    slopes = size * jnp.array([1.0, -2.0, 1e3])
    params = jnp.array([3.0, -4.0, 12.0])  # a root mean square of 13/√3
    after, _, _ = steps(mu2_optax.mu2_auto(), params, lambda params, z: z * slopes, jnp.ones(1))
    expected = -2 / 3 * 1e-4 * (13 / np.sqrt(3) + 1e-4) * np.sign(slopes)
    np.testing.assert_allclose(after - params, expected, rtol=2e-3)


@pytest.mark.parametrize("size", [1e-36, 1e-22, 1e-18, 1e-17])
def test_gradients_whose_squares_are_zero_do_not_blow_up(size):
    params, _, rates = steps(
        mu2_optax.mu2_auto(), jnp.ones(3), lambda params, z: size * params, jnp.ones(20)
    )
    assert np.abs(params - 1).max() <= 20 * rates.max()


@pytest.mark.parametrize("params", [jnp.ones(3), jnp.zeros(3), jnp.array(2.0)])
def test_zero_gradients_move_nothing(params):
    zero = lambda params, z: z * jnp.zeros_like(params)
    after, state, rates = steps(mu2_optax.mu2_auto(), params, zero, jnp.ones(10_000))
    np.testing.assert_array_equal(after, params)
    np.testing.assert_array_equal(state.w, params)
    assert len(set(rates.tolist())) == 1


def test_a_run_from_the_minimum_stays_there():
    minimum = jnp.array([1.0, 2.0, 3.0])
    gradient = lambda x, z: z * (x - minimum)
    after, _, _ = steps(mu2_optax.mu2_auto(), minimum, gradient, jnp.ones(1000))
    np.testing.assert_array_equal(after, minimum)


@pytest.mark.parametrize(("noise", "distance"), [(0.01, 0.0), (1.0, 0.0), (1.0, 3.0)])
def test_with_noise_the_error_is_that_of_an_average_of_the_samples(noise, distance):
    """For ½ ‖x - z‖² the best estimate is the mean of z, with an error of noise²/T a coordinate.

    A run that starts at the minimum may only do better. Four thirds of it are the price of weights
    that grow like t, and the rest that of query points which are not the average.
    """
    T, seeds, dim = 1000, 32, 10
    z = 1 + noise * jax.random.normal(jax.random.key(0), (seeds, T, dim))
    gradient = lambda x, z: x - z
    final = lambda z: steps(mu2_optax.mu2_auto(), jnp.ones(dim) + distance, gradient, z)[0]
    error = np.mean((jax.jit(jax.vmap(final))(z) - 1) ** 2)
    assert error < 5 * noise**2 / T


def test_noise_alone_does_not_make_the_rate_grow():
    z = jax.random.normal(jax.random.key(0), (64, 1000, 10))
    run = lambda z: steps(mu2_optax.mu2_auto(), jnp.ones(10), lambda x, z: z, z)  # a flat loss
    rates = jax.jit(jax.vmap(lambda z: run(z)[2]))(z)
    grown = rates[:, -1] / rates[:, 0]
    # If the sum only had to be below zero, not by two standard errors, the median would be 6e8.
    assert np.median(grown) < 2
    assert np.max(grown) < 1e4


def test_a_noise_free_quadratic_is_solved_whatever_its_condition():
    curvatures = jnp.logspace(-6, 0, 10)
    gradient = lambda x, z: z * curvatures * x
    x, _, _ = steps(mu2_optax.mu2_auto(), jnp.ones(10), gradient, jnp.ones(10_000))
    assert np.abs(x).max() < 1e-3


def test_a_linear_loss_goes_down_and_stays_finite():
    params = jnp.array([1.0, -1.0])
    x, state, rates = steps(
        mu2_optax.mu2_auto(), params, lambda params, z: z * jnp.ones(2), jnp.ones(10_000)
    )
    assert np.isfinite(x).all()
    assert (x < -1e6).all()
    assert 5e5 < rates[-1] <= state.inner_state.most


@pytest.mark.parametrize("batch", [1, 100])
def test_a_separable_classification_is_learned_and_stays_finite(batch):
    """The loss has no minimum, and its gradients end below what float32 can square."""
    features = jax.random.normal(jax.random.key(1), (100, 5))
    labels = jnp.sign(features @ jnp.arange(1.0, 6.0))
    each = lambda x, rows: jax.nn.softplus(-labels[rows] * (features[rows] @ x))
    gradient = jax.grad(lambda x, rows: jnp.mean(each(x, rows)))
    if batch == 1:
        rows = jax.random.randint(jax.random.key(2), (100_000, 1), 0, 100)
    else:
        rows = jnp.broadcast_to(jnp.arange(100), (100_000, 100))
    x, state, rates = steps(mu2_optax.mu2_auto(), jnp.zeros(5), gradient, rows)
    assert np.mean(each(x, jnp.arange(100))) < 1e-3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((x, state)))
    assert rates[-1] < 100


def test_one_sample_and_one_parameter_are_enough():
    gradient = lambda x, z: x - z
    x, _, _ = steps(mu2_optax.mu2_auto(), jnp.array(0.0), gradient, jnp.full(3000, 7.0))
    np.testing.assert_allclose(x, 7.0, atol=0.02)


def test_a_leaf_without_gradients_stays_where_it_is():
    start = {"free": jnp.array([1.0, -1.0]), "frozen": jnp.array([5.0, 0.0])}
    gradient = lambda p, z: {"free": p["free"] - z, "frozen": jnp.zeros(2)}
    after, _, _ = steps(mu2_optax.mu2_auto(), start, gradient, jnp.full(3000, 2.0))
    np.testing.assert_array_equal(after["frozen"], start["frozen"])
    np.testing.assert_allclose(after["free"], 2.0, atol=0.02)


def test_a_rejected_batch_leaves_no_trace():
    with x64():
        tx = mu2_optax.reject_nonfinite(mu2_optax.mu2_auto())
        broken = jnp.array(ZS).at[jnp.array([0, 7, 150])].set(jnp.nan)
        points, state = run(tx, split(jnp.array(X1)), broken)
        kept = np.delete(ZS, [0, 7, 150], axis=0)
        clean, _ = run(mu2_optax.mu2_auto(), split(jnp.array(X1)), jnp.array(kept))
        np.testing.assert_allclose(join(points)[-1], join(clean)[-1], rtol=0, atol=1e-12)
    assert int(state.total) == 3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_params_come_as_near_as_their_dtype_allows(dtype):
    z = 1 + 0.1 * jax.random.normal(jax.random.key(0), (3000, 4))
    gradient = lambda x, z: x - z.astype(x.dtype)
    x, state, _ = steps(mu2_optax.mu2_auto(), jnp.full(4, 3.0, dtype), gradient, z)
    assert x.dtype == dtype
    np.testing.assert_allclose(state.x, 1.0, atol=0.02)


def test_narrow_params_are_queried_ahead_of_the_average_in_full_precision():
    """Otherwise the rounding of params would be a part of the slope, and not of the step."""
    gradient = lambda x, z: x - z.astype(x.dtype)
    tx = mu2_optax.mu2_auto()
    params, state, _ = steps(tx, jnp.full(4, 3.0, "bfloat16"), gradient, jnp.arange(20.0) / 20)
    z = jnp.array(0.5)
    _, after = tx.update(gradient(params, z), state, params, grad_fn=gradient, batch=z)
    assert np.abs(state.x - params.astype("float32")).max() > 1e-3
    expected = state.x + 0.3 * (state.w - state.x)
    np.testing.assert_allclose(after.inner_state.y, expected, rtol=1e-6)


def test_only_w_takes_the_dtype_of_the_state():
    state = mu2_optax.mu2_auto(state_dtype=jnp.bfloat16).init(jnp.ones(3))
    assert state.w.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(state.inner_state)} == {
        jnp.dtype("float32"),
        jnp.dtype("int32"),
    }


def test_vmapped_factors_equal_separate_runs_and_hardly_matter():
    with x64():
        batches, params = jnp.array(samples(750 * 16)).reshape(750, 16, 6), split(jnp.array(X1))
        mean_loss = lambda params, batch: jnp.mean(jax.vmap(loss, (None, 0))(params, batch))
        gradient = jax.grad(mean_loss)
        final = lambda factor: steps(mu2_optax.mu2_auto(factor), params, gradient, batches)[0]
        factors = jnp.logspace(-2, 2, 5)
        together = jax.jit(jax.vmap(final))(factors)
        everything = batches.reshape(-1, 6)
        losses = [float(mean_loss(params, everything))]
        for i, factor in enumerate(factors):
            alone = final(float(factor))
            np.testing.assert_allclose(join(together)[i], join(alone), rtol=0, atol=1e-10)
            losses.append(float(mean_loss(alone, everything)))
    first, *rest = losses
    assert np.ptp(rest) < 0.05 * (first - min(rest))


def test_a_constant_schedule_of_weight_decay_is_the_number():
    number = points_in_float64(mu2_optax.mu2_auto(weight_decay=0.1))
    schedule = mu2_optax.mu2_auto(weight_decay=optax.constant_schedule(0.1))
    np.testing.assert_allclose(points_in_float64(schedule), number, rtol=0, atol=1e-12)
    assert not np.allclose(number, points_in_float64(mu2_optax.mu2_auto()), atol=1e-3)


# The price of a step.


def network(params, inputs):
    for kernel in params[:-1]:
        inputs = jax.nn.relu(inputs @ kernel)
    return inputs @ params[-1]


def network_loss(params, batch):
    inputs, labels = batch
    logits = network(params, inputs)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def products(function, *args):
    """How many products of matrices the compiled function has."""
    compiled = jax.jit(function).lower(*args).compile().as_text()
    return sum(" dot(" in line or "matmul" in line for line in compiled.splitlines())


@pytest.mark.slow
def test_a_compiled_step_evaluates_one_gradient():
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = [(64, 48), (48, 32), (32, 10)]
    params = [jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True)]
    batch = (jnp.ones((16, 64)), jnp.zeros(16, jnp.int32))
    gradient = jax.grad(network_loss)

    def step(tx, logged, params, state, batch):
        value, grads = jax.value_and_grad(network_loss)(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=gradient, batch=batch)
        params = optax.apply_updates(params, updates)
        return (params, state, value) if logged else (params, state)

    def count(tx, logged):
        return products(functools.partial(step, tx, logged), params, tx.init(params), batch)

    one, forward = products(gradient, params, batch), products(network_loss, params, batch)
    assert (one, forward) == (8, 3)  # three forward, and two less one backward for each layer
    assert count(mu2_optax.mu2_auto(), False) == one
    assert count(mu2_optax.mu2_auto(), True) == one + forward
    assert count(mu2_optax.mu2_sgd(0.1), False) == 2 * one


def test_the_state_is_three_copies_of_the_params():
    sizes = [leaf.size for leaf in jax.tree.leaves(mu2_optax.mu2_auto().init(jnp.ones(1000)))]
    assert sum(sizes) - 3 * 1000 == 7  # t, the count of v, the rate, its bound, E, N and e


# Flax.


@pytest.mark.slow
def test_linen_and_nnx_train_alike_and_keep_the_statistics_of_the_average():
    """The loss at x makes the statistics; the gradient at y leaves no trace in them."""
    tx = mu2_optax.mu2_auto(100.0)
    model = nnx_model()
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)
    state = test_linen.make_state(tx)
    linen_step = jax.jit(test_linen.train_step)
    losses = []
    for batch in batches(60):
        alone = nnx.clone(model)
        alone(batch["image"])
        losses.append([float(test_nnx.train_step(model, optimizer, batch))])
        assert_close(nnx.state(model, nnx.BatchStat), nnx.state(alone, nnx.BatchStat), 1e-5)
        state, loss = linen_step(state, batch)
        losses[-1].append(float(loss))
    # A bias before BatchNorm has no gradient but rounding, which is scaled up like any other, so
    # that params differ; the function that they compute does not.
    np.testing.assert_allclose(*np.array(losses[:20]).T, atol=1e-3)
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])


# Bad arguments.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mu2_optax.mu2_auto(0.0), "`factor` must be finite and greater than 0, got 0"),
        (lambda: mu2_optax.mu2_auto(weight_decay=-1.0), "`weight_decay` .* got -1"),
        (
            lambda: mu2_optax.grown_rate(optax.identity(), growth=0.5),
            "`growth` must be finite and at least 1, got 0.5; the rate cannot shrink",
        ),
        (
            lambda: mu2_optax.query_ahead(mu2_optax.anytime(optax.sgd(0.1), 0.1), 2.0),
            "`share` must lie in .* got 2",
        ),
    ],
)
def test_bad_numbers_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("tx", [optax.adam(0.1), mu2_optax.mu2_sgd(0.1)])
def test_what_does_not_average_alone_is_refused(tx):
    with pytest.raises(TypeError, match=r"`averaging` must be .* an AnytimeState, got one with"):
        mu2_optax.query_ahead(tx).init(jnp.ones(2))


def test_a_step_without_its_sample_is_refused():
    tx = mu2_optax.mu2_auto()
    with pytest.raises(ValueError, match=r"`query_ahead` evaluates .* `grad_fn` was not given"):
        tx.update(jnp.ones(2), tx.init(jnp.ones(2)), jnp.ones(2))


def path_of(loss, start):
    """The points of the gradients of a run without noise, and what it sums up at each."""
    grad_fn = jax.grad(loss)
    tx = mu2_optax.mu2_auto()

    def step(carry, _):
        params, state = carry
        grads = grad_fn(params, ())
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=())
        seen = state.inner_state
        return (optax.apply_updates(params, updates), state), (seen.y, seen.slope, seen.rate)

    return jax.lax.scan(step, (start, tx.init(start)), None, length=200)[1]


def test_the_sum_is_the_decrease_of_a_quadratic_and_the_energy_of_the_path():
    with x64():
        hessian = jnp.diag(jnp.array([0.1, 1.0, 30.0]))
        loss = lambda x, _: 0.5 * x @ hessian @ x
        y, slopes, rates = path_of(loss, jnp.array([3.0, -2.0, 1.0]))
        s = jnp.diff(y, axis=0)
        energy = jnp.cumsum(0.5 * jnp.einsum("ti,ij,tj->t", s, hessian, s))
        decrease = jax.vmap(lambda x: loss(x, None))(y) - loss(y[0], None)
        np.testing.assert_allclose(slopes[1:], decrease[1:] + energy, rtol=0, atol=1e-9)
        assert rates[-1] == rates[100] > 100 * rates[0]


def test_the_rate_grows_only_where_a_convex_loss_is_below_its_start_and_within_an_energy():
    rng = np.random.default_rng(0)
    with x64():
        features = jnp.array(rng.normal(size=(40, 4)))
        labels = jnp.array(np.sign(rng.normal(size=40)))

        def loss(x, _):  # 0.01-strongly convex
            return jnp.mean(jnp.log1p(jnp.exp(-labels * (features @ x)))) + 0.005 * x @ x

        y, slopes, rates = path_of(loss, jnp.array([2.0, -1.0, 1.0, 3.0]))
        losses = jax.vmap(lambda x: loss(x, None))(y)
        energy = jnp.cumsum(jnp.sum(jnp.diff(y, axis=0) ** 2, axis=1))
        grown = np.flatnonzero(np.diff(rates) > 0) + 1
        assert len(grown) > 10
        assert np.all(slopes[1:] >= losses[1:] - losses[0] + 0.005 * energy - 1e-12)
        assert np.all(losses[grown] < losses[0])
        assert np.all(0.005 * energy[grown - 1] < losses[0] - losses[grown])
