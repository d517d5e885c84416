"""β measured, and the error bar: what they are in known cases, and in bad ones."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from problems import full_precision, jitted_step, join, numpy_grad, run, samples, split

import mu2_optax
from mu2_optax import estimates, stopping

MEASURED = mu2_optax.linear_momentum(beta=mu2_optax.measured_beta())


class StepGradients(NamedTuple):
    """What a β of one's own is asked with."""

    grads: Any
    prev_grads: Any
    d: Any
    share: float = 1.0


def norm_bound(state):
    return mu2_optax.error_bar(state).norm_bound


def feed(tx, params, pairs):
    """The state after (grads, prev_grads) pairs at params that stand still, and the estimates."""
    state, found = tx.init(params), []
    update = jax.jit(lambda g, p, s: tx.update(g, s, params, prev_grads=p))
    for grads, prev_grads in pairs:
        d, state = update(grads, prev_grads, state)
        found.append(d)
    return state, found


def test_measured_beta_of_a_point_at_rest_is_the_mean():
    """β_t = 1/t, so d_t is the plain mean, if the noise is as large as its estimate says.

    All innovations have the size that the filter expects: ±1 in turn around the mean so far would
    not; these are vectors whose innovations have E‖ν‖² = σ² + P in high dimension.
    """
    grads = np.random.default_rng(0).normal(size=(200, 20_000)).astype(np.float32)
    tx = mu2_optax.corrected_momentum(mu2_optax.measured_beta())
    state, found = feed(tx, jnp.zeros(20_000), [(g, g) for g in grads])
    for t in (2, 10, 50, 200):
        mean = grads[:t].mean(axis=0)
        error = np.sum((np.asarray(found[t - 1]) - mean) ** 2)
        assert error < 0.02 * 20_000 / t  # of the variance of the mean itself
    # σ²/t; the noise is itself estimated, from ten innovations at a time.
    assert float(mu2_optax.error_bar(state).error) == pytest.approx(20_000 / 200, rel=0.1)
    assert float(mu2_optax.error_bar(state).noise) == pytest.approx(20_000, rel=0.05)


def test_measured_beta_of_expected_innovations_is_one_over_t():
    """Where nothing moves and ‖ν_t‖² = σ² + P_{t-1} in every step: β_t = 1/t and P_t = σ²/t."""
    beta = mu2_optax.measured_beta()
    with full_precision("float64"):
        memory, zero = beta.first([jnp.zeros(1)]), [jnp.zeros(1)]
        step = jax.jit(lambda memory, count, g: beta.step(memory, count, StepGradients(g, g, zero)))
        _, memory = step(memory, 0, [jnp.ones(1)])
        for t in range(2, 300):
            grads = [jnp.sqrt(jnp.array([1 + 1 / (t - 1)]))]
            weight, memory = step(memory, t - 1, grads)
            assert float(weight[0]) == pytest.approx(1 / t, rel=1e-12)
            assert float(memory.error[0]) == pytest.approx(1 / t, rel=1e-12)


def test_measured_beta_has_the_smallest_bar():
    """The gain minimises the one-step bound, so iterated it is never above that of another β."""
    rng = np.random.default_rng(0)
    seen = StepGradients(*([jnp.array(a)] for a in rng.normal(size=(3, 10))))
    beta = mu2_optax.measured_beta()
    roots = jnp.sqrt(jnp.array([[20.0], [9.0], [1.0]]))
    memory = beta.first(seen.d)._replace(roots=roots)
    _, best = beta.step(memory, jnp.array(7), seen)
    after = lambda share: mu2_optax.with_error_bar(share).step(memory, jnp.array(7), seen)[1].error
    bars = np.asarray(jax.jit(jax.vmap(after))(jnp.linspace(0, 1, 101)))[:, 0]
    assert float(best.error[0]) <= bars.min() * (1 + 1e-6)
    assert bars.min() < 0.9 * min(bars[0], bars[-1])  # a minimum inside
    # and a larger error before the step is a larger one after it
    more = memory._replace(roots=memory.roots.at[2].mul(2**0.5))
    _, larger = mu2_optax.with_error_bar(0.3).step(more, jnp.array(7), seen)
    _, smaller = mu2_optax.with_error_bar(0.3).step(memory, jnp.array(7), seen)
    assert float(larger.error[0]) > float(smaller.error[0])


def test_measured_beta_in_one_dimension_has_a_true_bar():
    """The square of one normal number varies by 140 %, and its smallest values must not count most.

    They would, if the noise were that of a few innovations: P is a sum of inverses.
    """
    grad_fn = jax.grad(lambda x, z: 0.5 * (x - z) ** 2)
    tx = mu2_optax.mu2_sgd(0.1, MEASURED)

    def one(key):
        _, state = run(tx, jnp.array(1.0), jax.random.normal(key, (3000,)), grad_fn)
        return mu2_optax.error_bar(state).error, (state.d - state.x) ** 2  # ∇f(x) = x

    bars, errors = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 200))
    # The mean of 200 squared errors is uncertain by 10 %.
    assert 0.6 < float(jnp.mean(bars) / jnp.mean(errors)) < 1.7


def test_measured_beta_of_large_steps_is_the_plain_gradient():
    """The gradient itself changes by 10³ a step, the noise of a batch is 1."""
    rng = np.random.default_rng(0)
    exact = 1e3 * rng.normal(size=(21, 50))
    noise = rng.normal(size=(20, 50))
    pairs = list(zip(exact[1:] + noise, exact[:-1] + noise, strict=True))
    tx = mu2_optax.corrected_momentum(mu2_optax.measured_beta())
    _, found = feed(tx, jnp.zeros(50), pairs)
    np.testing.assert_allclose(found[-1], pairs[-1][0], rtol=0, atol=1e-2)


@pytest.mark.parametrize("algorithm", ["mu2_sgd", "mu2_extra_sgd", "storm"])
def test_error_bar_is_that_of_the_oracle(algorithm):
    weights = reference.MeasuredWeights(50, [slice(0, 4), slice(4, 5)])
    zs = samples(50)
    x1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
    getattr(reference, algorithm)(numpy_grad, x1, zs, 0.1, weights, lambda x: x, False)
    with full_precision("float64"):
        tx = {
            "mu2_sgd": lambda: mu2_optax.mu2_sgd(0.1, MEASURED),
            "mu2_extra_sgd": lambda: mu2_optax.mu2_extra_sgd(0.1, MEASURED, weighted_steps=False),
            "storm": lambda: mu2_optax.storm(0.1, mu2_optax.measured_beta()),
        }[algorithm]()
        _, state = run(tx, split(jnp.array(x1)), jnp.array(zs))
        bar = mu2_optax.error_bar(state)
        found = [float(v) for v in (bar.errors["matrix"], bar.errors["rest"][0])]
        np.testing.assert_allclose(found, weights.errors[50], rtol=1e-10)
        found = [float(v) for v in (bar.noises["matrix"], bar.noises["rest"][0])]
        np.testing.assert_allclose(found, weights.noises[50], rtol=1e-10)
        assert float(bar.error) == pytest.approx(sum(weights.errors[50]), rel=1e-10)


def test_with_error_bar_changes_nothing_but_the_memory():
    zs, start = jnp.array(samples(100), jnp.float32), split(jnp.zeros(5))
    plain, _ = run(mu2_optax.storm(0.1, 0.2), start, zs)
    barred, state = run(mu2_optax.storm(0.1, mu2_optax.with_error_bar(0.2)), start, zs)
    np.testing.assert_allclose(join(plain), join(barred), rtol=0, atol=1e-5)
    assert float(mu2_optax.error_bar(state).error) > 0


def test_with_error_bar_is_that_of_an_exponential_mean():
    """Where nothing moves, an exponential mean of white noise has the error σ²β/(2 - β)."""
    grads = np.random.default_rng(0).normal(size=(300, 5000)).astype(np.float32)
    tx = mu2_optax.corrected_momentum(mu2_optax.with_error_bar(0.1))
    state, _ = feed(tx, jnp.zeros(5000), [(g, g) for g in grads])
    # The noise is itself estimated, from ten innovations.
    assert float(mu2_optax.error_bar(state).error) == pytest.approx(5000 * 0.1 / 1.9, rel=0.1)


def test_with_error_bar_shows_a_beta_that_is_too_small():
    """Noisy changes that are hardly forgotten add up: worse than one batch, and the bar says so."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(300):
        grads = rng.normal(size=1000)
        pairs.append((grads, grads + rng.normal(size=1000)))
    tx = mu2_optax.corrected_momentum(mu2_optax.with_error_bar(0.01))
    state, found = feed(tx, jnp.zeros(1000), pairs)
    bar = mu2_optax.error_bar(state)
    truth = float(np.sum(np.asarray(found[-1]) ** 2))  # the true gradient is 0
    assert bar.error > 3 * 1000
    assert 0.5 < float(bar.error) / truth < 2


def test_measured_beta_of_zero_gradients_is_finite():
    zeros = jnp.zeros(3)
    state, found = feed(mu2_optax.mu2_sgd(0.1, MEASURED), zeros, [(zeros, zeros)] * 5)
    for leaf in jax.tree.leaves((state, found)):
        assert np.all(np.isfinite(leaf))
    assert float(mu2_optax.error_bar(state).error) == 0
    assert float(mu2_optax.error_bar(state).noise_scale) == 0


def test_measured_beta_without_noise_has_no_error():
    grad_fn = jax.grad(lambda p, _: 0.5 * jnp.sum((p["a"] - 1) ** 2) + p["b"] ** 4)
    params = {"a": jnp.zeros(4), "b": jnp.array(2.0)}
    points, state = run(mu2_optax.mu2_sgd(0.05, MEASURED), params, jnp.zeros(200), grad_fn)
    exact = grad_fn(state.x, None)
    jax.tree.map(lambda d, g: np.testing.assert_allclose(d, g, atol=1e-5), state.d, exact)
    assert float(mu2_optax.error_bar(state).error) < 1e-10
    assert np.all(np.isfinite(points["a"]))


def test_error_bar_is_of_each_tensor():
    rng = np.random.default_rng(0)
    clean = jnp.array([2.0])
    pairs = [({"a": clean, "b": jnp.array(g)},) * 2 for g in rng.normal(size=(50, 100))]
    params = {"a": jnp.zeros(1), "b": jnp.zeros(100)}
    state, found = feed(mu2_optax.corrected_momentum(mu2_optax.measured_beta()), params, pairs)
    bar = mu2_optax.error_bar(state)
    assert float(bar.errors["a"]) == 0
    # In 100 dimensions the mean square of ten innovations is uncertain by 5 %, and errors add up.
    assert float(bar.errors["b"]) == pytest.approx(100 / 50, rel=0.3)
    np.testing.assert_array_equal(found[-1]["a"], clean)


def test_measured_beta_follows_a_jump_and_raises_the_bar():
    rng = np.random.default_rng(0)
    before = [(g, g) for g in rng.normal(size=(300, 100))]
    after = [(g, g) for g in 10 + rng.normal(size=(15, 100))]
    beta = mu2_optax.measured_beta()
    calm, _ = feed(mu2_optax.corrected_momentum(beta), jnp.zeros(100), before)
    shaken, _ = feed(mu2_optax.corrected_momentum(beta), jnp.zeros(100), before + after[:2])
    _, found = feed(mu2_optax.corrected_momentum(beta), jnp.zeros(100), before + after)
    shaken, calm = (float(mu2_optax.error_bar(state).error) for state in (shaken, calm))
    assert shaken > 100 * calm
    assert float(jnp.mean(found[-1])) == pytest.approx(10, rel=0.1)  # with β = 1/t it were 0.5


def test_measured_beta_refuses_a_state_of_a_fixed_one():
    params = jnp.zeros(3)
    state = mu2_optax.mu2_sgd(0.1).init(params)
    with pytest.raises(ValueError, match="memory of a measured β, got None"):
        mu2_optax.mu2_sgd(0.1, MEASURED).update(params, state, params, prev_grads=params)
    with pytest.raises(ValueError, match="has no error bar"):
        mu2_optax.error_bar(state)


def test_measured_beta_does_not_drift_in_ten_million_steps():
    """White noise at a point that stands still: P = σ²/t at t = 10⁷, from the memory of t = 10⁷."""
    beta = mu2_optax.measured_beta()
    t = 10**7
    seen = StepGradients(*([jnp.array([v])] for v in (1.0, 1.0, 0.0)))
    memory = beta.first(seen.d)._replace(roots=jnp.sqrt(jnp.array([[1.0], [1.0], [1 / t]])))

    def body(i, carry):
        return beta.step(carry[1], i, seen)

    gain, memory = jax.jit(lambda m: jax.lax.fori_loop(t, t + 10_000, body, (jnp.ones(1), m)))(
        memory
    )
    assert float(gain[0]) == pytest.approx(1 / (t + 10_000), rel=1e-2)
    assert float(memory.error[0]) == pytest.approx(1 / (t + 10_000), rel=1e-2)


def test_noise_scale_of_a_known_problem_is_exact():
    """Gradients of mean (3, 4, 0, ...) and unit noise in 1000 dimensions: 1000/25 batches."""
    rng = np.random.default_rng(0)
    mean = np.zeros(1000)
    mean[:2] = 3, 4
    pairs = [(g, g) for g in mean + rng.normal(size=(2000, 1000))]
    tx = optax.chain(mu2_optax.corrected_momentum(mu2_optax.measured_beta()), optax.clip(1e9))
    state, _ = feed(tx, jnp.zeros(1000), pairs)
    # ‖d‖² - P is 25 ± 2 after 2000 steps.
    assert float(mu2_optax.error_bar(state).noise_scale) == pytest.approx(40, rel=0.15)


def test_noise_scale_is_infinite_after_one_step():
    tx = mu2_optax.storm(0.1, mu2_optax.measured_beta())
    params = jnp.zeros(2)
    state = tx.init(params)
    assert float(mu2_optax.error_bar(state).noise_scale) == np.inf
    _, state = tx.update(jnp.ones(2), state, params, prev_grads=jnp.ones(2))
    assert float(mu2_optax.error_bar(state).noise_scale) == np.inf


def test_noise_scale_of_a_drowned_gradient_is_infinite():
    tx = mu2_optax.corrected_momentum(mu2_optax.measured_beta())
    state, _ = feed(tx, jnp.zeros(1), [(jnp.ones(1),) * 2, (-jnp.ones(1),) * 2])
    assert float(mu2_optax.error_bar(state).noise_scale) == np.inf


def test_error_bar_norm_bound_stops_at_a_smaller_gradient():
    """The mean of 16 vmapped runs: ‖d‖ alone stops too early as often as not."""
    grad_fn = jax.grad(lambda x, z: 0.5 * jnp.sum((x - z) ** 2))
    tx = mu2_optax.mu2_sgd(0.05, MEASURED)
    step = jitted_step(tx, grad_fn)

    def run_one(key, norm):
        draw = lambda count: jax.random.normal(jax.random.fold_in(key, count), (10,))
        start = jnp.full(10, 2.0)
        result = stopping.run_until(
            step, start, tx.init(start), draw, tolerance=0.4, max_steps=5000, patience=1, norm=norm
        )
        return result.steps, jnp.linalg.norm(result.state.x), result.reason

    keys = jax.random.split(jax.random.key(0), 16)
    found = {
        norm: jax.jit(jax.vmap(lambda key, norm=norm: run_one(key, norm)))(keys)
        for norm in (stopping.estimate_norm, norm_bound)
    }
    plain, bound = found[stopping.estimate_norm], found[norm_bound]
    assert np.all(bound[2] == stopping.StopReason.TOLERANCE)
    assert np.mean(bound[0]) > np.mean(plain[0])
    assert np.mean(bound[1] <= 0.4) > 0.9  # ∇f(x) = x here
    assert np.mean(bound[1]) < np.mean(plain[1])


def test_error_bar_norm_bound_is_unknown_after_one_step():
    tx = mu2_optax.storm(0.1, mu2_optax.measured_beta())
    state, _ = feed(tx, jnp.zeros(2), [(jnp.zeros(2), jnp.zeros(2))])
    assert float(mu2_optax.error_bar(state).norm_bound) > 1e30


def test_corrected_estimate_of_the_loss_has_a_true_bar():
    loss = lambda x, z: jnp.mean((x - z) ** 2)  # its mean over z is x² + 1
    tracked = estimates.corrected_estimate(loss, mu2_optax.measured_beta())
    trajectory = 1 / jnp.arange(1.0, 1001.0)

    def one(key):
        batches = jax.random.normal(key, (1000, 4))

        def update(state, inputs):
            return tracked.update(state, *inputs)[1], None

        state, _ = jax.lax.scan(update, tracked.init(0.0, batches[0]), (trajectory, batches))
        return (state.d - 1 - trajectory[-1] ** 2) ** 2, mu2_optax.error_bar(state).error

    errors, bars = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), 200))
    assert float(jnp.mean(errors)) < 0.5 / 50  # one batch has 0.5
    assert 0.3 < float(jnp.mean(bars) / jnp.mean(errors)) < 3  # the bar, seeds averaged


@pytest.mark.parametrize("scale", [1e-30, 1e-21, 1e21, 1e30])
def test_measured_beta_ignores_the_scale_of_gradients(scale):
    """Their squares are no floats in float32; β is a ratio."""
    zs = jax.random.normal(jax.random.key(0), (60, 8))
    beta = mu2_optax.measured_beta()

    def betas(scale):
        def body(carry, inputs):
            memory, d = carry
            count, z = inputs
            now, before = scale * (z + 0.1 / (count + 1)), scale * z
            share, memory = beta.step(memory, count, StepGradients([now], [before], [d]))
            d = now + jnp.where(count == 0, 0, 1 - share[0]) * (d - before)
            return (memory, d), (share, memory.roots / scale)

        first = (beta.first([zs[0]]), jnp.zeros(8))
        return jax.lax.scan(body, first, (jnp.arange(60), zs))[1]

    for found, expected in zip(betas(jnp.float32(scale)), betas(jnp.float32(1)), strict=True):
        np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-4)


def test_measured_beta_without_noise_has_a_derivative():
    """The roots of the errors are those of zero there."""

    @jax.jit
    def last(rate):
        tx = mu2_optax.mu2_sgd(rate, MEASURED)
        params = {"still": jnp.zeros(3), "moving": jnp.ones(2)}
        points, _ = run(tx, params, jnp.zeros(4), lambda params, batch: params)
        return jnp.sum(points["moving"][-1])

    expected = (last(0.101) - last(0.099)) / 0.002
    assert float(jax.grad(last)(0.1)) == pytest.approx(float(expected), rel=1e-3)
