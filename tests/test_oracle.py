"""Every optimizer follows the paper's algorithm, written as a NumPy loop, step by step."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from problems import full_precision, join, numpy_grad, run, samples, split

import mu2_optax

T = 300
RADIUS = 0.7
X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
ZS = samples(T)


def uneven(t):
    """Weights that are neither monotone nor bounded: (1.5 + sin t) √t."""
    xp = jnp if isinstance(t, jax.Array) else np
    return (1.5 + xp.sin(t)) * xp.sqrt(t)


PRESETS = {
    "linear, offset 1": (mu2_optax.linear_momentum(1), reference.linear(1, T)),
    "linear, offset 0": (mu2_optax.linear_momentum(), reference.linear(0, T)),
    "linear, offset -1": (mu2_optax.linear_momentum(-1), reference.linear(-1, T)),
    "uniform": (mu2_optax.uniform_momentum(), reference.uniform(T)),
    "polynomial, power 2": (mu2_optax.polynomial_momentum(2), reference.polynomial(2, T)),
    "polynomial, power 0.5": (mu2_optax.polynomial_momentum(0.5), reference.polynomial(0.5, T)),
    "fixed": (mu2_optax.fixed_momentum(), reference.fixed(0.1, 0.9, T)),
    "weighted": (
        mu2_optax.weighted_momentum(lambda count: uneven(jnp.asarray(count, float) + 1), beta=0.3),
        reference.Weights(uneven, lambda t: 0.3, None, T),
    ),
    "measured": (
        mu2_optax.linear_momentum(beta=mu2_optax.measured_beta()),
        reference.MeasuredWeights(T, [slice(0, 4), slice(4, 5)]),
    ),
}


def storm(learning_rate, momentum, *, projection, weighted_steps):
    del weighted_steps
    return mu2_optax.storm(learning_rate, momentum.beta, projection=projection)


ALGORITHMS = {
    "mu2_sgd": (mu2_optax.mu2_sgd, reference.mu2_sgd),
    "mu2_extra_sgd": (mu2_optax.mu2_extra_sgd, reference.mu2_extra_sgd),
    "anytime_sgd": (mu2_optax.anytime_sgd, reference.anytime_sgd),
    "storm": (storm, reference.storm),
}


def project_numpy(x):
    norm = np.linalg.norm(x)
    return x if norm <= RADIUS else x * (RADIUS / norm)


@functools.cache
def oracle(algorithm, preset, weighted, projected):
    """The reference trajectory, and the learning rate that keeps its values of order one."""
    _, weights = PRESETS[preset]
    largest = max(weights.alpha(t) for t in range(1, T + 1)) if weighted else 1.0
    eta = 0.5 / largest
    _, algorithm_in_numpy = ALGORITHMS[algorithm]
    proj = project_numpy if projected else (lambda x: x)
    return algorithm_in_numpy(numpy_grad, X1, ZS, eta, weights, proj, weighted), eta


RUNS = [
    (algorithm, preset, weighted, projected)
    for algorithm, preset, weighted, projected in itertools.product(
        ALGORITHMS, PRESETS, [False, True], [False, True]
    )
    if not (algorithm == "storm" and weighted)  # STORM has no weighted steps
]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
@pytest.mark.parametrize(("algorithm", "preset", "weighted", "projected"), RUNS)
def test_each_optimizer_follows_its_oracle(
    algorithm, preset, weighted, projected, dtype, tolerance
):
    expected, eta = oracle(algorithm, preset, weighted, projected)
    optimizer, _ = ALGORITHMS[algorithm]
    momentum, _ = PRESETS[preset]
    projection = mu2_optax.onto_l2_ball(RADIUS) if projected else None
    with full_precision(dtype):
        tx = optimizer(eta, momentum, projection=projection, weighted_steps=weighted)
        points, _ = run(tx, split(jnp.array(X1, dtype)), jnp.array(ZS, dtype))
        assert points["matrix"].dtype == dtype
        np.testing.assert_allclose(join(points), expected, rtol=0, atol=tolerance)


def test_the_oracle_runs_move_and_reach_the_boundary():
    """Otherwise agreeing with them would prove nothing."""
    free, _ = oracle("mu2_sgd", "linear, offset 0", False, False)
    inside, _ = oracle("mu2_sgd", "linear, offset 0", False, True)
    assert np.linalg.norm(free[-1] - X1) > 0.3
    assert np.linalg.norm(free[-1] - inside[-1]) > 0.1
    assert np.abs(free).max() < 10


@functools.cache
def auto_oracle(projected, decay, factor):
    proj = project_numpy if projected else (lambda x: x)
    return reference.mu2_auto(numpy_grad, X1, ZS, proj, factor, decay)


# The rate is found by comparisons with zero, which rounding turns where a slope is near zero. In
# float64 that does not happen in these runs. In float32 it happens sooner or later, and the runs
# part for good: only the first steps can be compared.
@pytest.mark.parametrize(
    ("dtype", "steps", "tolerance"), [("float64", T, 1e-12), ("float32", 30, 1e-4)]
)
@pytest.mark.parametrize("factor", [1.0, 30.0])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("projected", [False, True])
def test_the_optimizer_with_nothing_to_choose_follows_its_oracle(
    projected, decay, factor, dtype, steps, tolerance
):
    expected, rates = auto_oracle(projected, decay, factor)
    projection = mu2_optax.onto_l2_ball(RADIUS) if projected else None
    with full_precision(dtype):
        tx = mu2_optax.mu2_auto(factor, weight_decay=decay or None, projection=projection)
        points, state = run(tx, split(jnp.array(X1, dtype)), jnp.array(ZS[:steps], dtype))
        np.testing.assert_allclose(join(points), expected[:steps], rtol=0, atol=tolerance)
        np.testing.assert_allclose(state.inner_state.rate, rates[steps - 1], rtol=tolerance)


def test_the_rate_of_the_oracle_runs_grows_and_stops_growing():
    for run_of_it in itertools.product([False, True], [0.0, 0.1], [1.0, 30.0]):
        points, rates = auto_oracle(*run_of_it)
        assert rates[-1] > 100 * rates[0] / run_of_it[2]
        assert rates[-1] == rates[T // 2]
        assert np.linalg.norm(points[-1] - X1) > 0.1
    free, inside = auto_oracle(False, 0.0, 1.0)[0], auto_oracle(True, 0.0, 1.0)[0]
    assert np.linalg.norm(free[-1] - inside[-1]) > 0.1
