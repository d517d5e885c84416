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


UNEVEN = reference.Weights(uneven, lambda t: 0.3, None, T)
PRESETS = {
    "linear, offset 1": (mu2_optax.linear_momentum(1), reference.linear(1, T)),
    "linear, offset 0": (mu2_optax.linear_momentum(), reference.linear(0, T)),
    "linear, offset -1": (mu2_optax.linear_momentum(-1), reference.linear(-1, T)),
    "uniform": (mu2_optax.polynomial_momentum(0), reference.uniform(T)),
    "polynomial, power 2": (mu2_optax.polynomial_momentum(2), reference.polynomial(2, T)),
    "polynomial, power 0.5": (mu2_optax.polynomial_momentum(0.5), reference.polynomial(0.5, T)),
    "fixed": (mu2_optax.fixed_momentum(), reference.fixed(0.1, 0.9, T)),
    "weights of one's own": (
        mu2_optax.DoubleMomentum(
            lambda count: uneven(jnp.asarray(count, float) + 1),
            0.3,
            lambda count: jnp.array([UNEVEN.gamma(t) for t in range(1, T + 2)])[count],
        ),
        UNEVEN,
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
    "mu2_sgd lean": (functools.partial(mu2_optax.mu2_sgd, lean=True), reference.mu2_sgd),
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


# Each algorithm with each preset, with and without projection and weighted steps; only `mu2_sgd`
# with all four ways to combine these two.
WAYS = {(False, True), (True, False)}
RUNS = [
    (algorithm, preset, weighted, projected)
    for algorithm, preset, weighted, projected in itertools.product(
        ALGORITHMS, PRESETS, [False, True], [False, True]
    )
    if (weighted, projected) in WAYS or algorithm == "mu2_sgd"
    if not (algorithm == "storm" and weighted)  # STORM has no weighted steps
    if not ("lean" in algorithm and preset == "linear, offset -1")  # γ would be 1
]


# The fast tests have all weights with `mu2_sgd`, and one of each kind with the others.
OF_EACH_KIND = {"linear, offset 1", "polynomial, power 0.5", "weights of one's own", "measured"}


def case(run, dtype, tolerance, fast=()):
    marks = () if run[0].startswith("mu2_sgd") or run[1] in fast else pytest.mark.slow
    return pytest.param(*run, dtype, tolerance, marks=marks)


# Rounding is a matter of the algorithm and its weights: float32 with the projection is enough.
IN_FLOAT64 = [case(run, "float64", 1e-12, OF_EACH_KIND) for run in RUNS]
IN_FLOAT32 = [case(run, "float32", 1e-4) for run in RUNS if run[2:] == (False, True)]


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize(
    ("algorithm", "preset", "weighted", "projected", "dtype", "tolerance"),
    IN_FLOAT64 + IN_FLOAT32,
)
def test_oracle_is_followed_by_each_optimizer(
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


def test_oracle_runs_move_and_reach_the_boundary():
    """Otherwise agreeing with them would prove nothing."""
    free, _ = oracle("mu2_sgd", "linear, offset 0", False, False)
    inside, _ = oracle("mu2_sgd", "linear, offset 0", False, True)
    assert np.linalg.norm(free[-1] - X1) > 0.3
    assert np.linalg.norm(free[-1] - inside[-1]) > 0.1
    assert np.abs(free).max() < 10


SIZE = np.sqrt(np.mean(X1[:4] ** 2)) ** 0.8 * np.abs(X1[4]) ** 0.2  # of the tensors of `split`


@functools.cache
def auto_oracle(projected, decay, factor):
    proj = project_numpy if projected else (lambda x: x)
    unit = reference.unit_together() if projected else reference.unit_by_coordinate()
    return reference.mu2_auto(numpy_grad, X1, ZS, proj, SIZE, factor, decay, unit=unit)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-4)])
@pytest.mark.parametrize("factor", [1.0, 30.0])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("projected", [False, True])
def test_mu2_auto_follows_its_oracle(projected, decay, factor, dtype, tolerance):
    xs, ys, rates = auto_oracle(projected, decay, factor)
    projection = mu2_optax.onto_l2_ball(RADIUS) if projected else None
    with full_precision(dtype):
        tx = mu2_optax.mu2_auto(
            first_step=factor, weight_decay=decay or None, projection=projection
        )
        points, state = run(tx, split(jnp.array(X1, dtype)), jnp.array(ZS, dtype))
        np.testing.assert_allclose(join(points), ys, rtol=0, atol=tolerance)
        last = jax.tree.map(lambda a: a[-1], points)
        average = mu2_optax.eval_params(state, last)
        np.testing.assert_allclose(join(average), xs[-1], rtol=0, atol=tolerance)
        np.testing.assert_allclose(mu2_optax.found_rate(state), rates[-1], rtol=10 * tolerance)


def test_oracle_of_mu2_auto_moves_its_rate():
    for projected, decay in itertools.product([False, True], [0.0, 0.1]):
        xs, ys, rates = auto_oracle(projected, decay, 1.0)
        assert max(rates) > 2 * rates[0]
        assert rates[-1] < max(rates)
        assert np.linalg.norm(xs[-1] - X1) > 0.1
        assert np.linalg.norm(xs[-1] - ys[-1]) > 1e-3
    free, inside = auto_oracle(False, 0.0, 1.0)[0], auto_oracle(True, 0.0, 1.0)[0]
    assert np.linalg.norm(free[-1] - inside[-1]) > 0.1
