"""The theorems as measurements, on problems whose constants are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.theory import known_problems, measured_runs
from mu2_optax import theory

SQUARES, LOGISTIC = known_problems.least_squares(), known_problems.logistic()
HARD = known_problems.hard_quadratic()
QUIET = known_problems.noiseless(HARD)
STEPS, SEEDS = 1024, 24


def windows(errors):
    """t E|error|^2 for t around 64 and at the end."""
    t_times_error = errors.mean(0) * np.arange(1, errors.shape[1] + 1)
    return t_times_error[48:80].mean(), t_times_error[-256:].mean()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("mu2_sgd", SQUARES),
        ("mu2_sgd", LOGISTIC),
        ("uniform", SQUARES),
        ("mu2_extra_sgd", LOGISTIC),
        ("mu2_frank_wolfe", SQUARES),
    ],
)
def test_theorem_error_times_t_is_bounded(name, problem):
    rate = measured_runs.rate(problem, name, STEPS)
    errors = measured_runs.errors(problem, name, rate, STEPS, SEEDS)
    early, late = windows(errors)
    # t grows 14-fold between the windows, and so would the error of a plain gradient times t
    assert late < 2.5 * early
    method = "mu2_sgd" if name == "mu2_frank_wolfe" else name
    times = jnp.arange(1, STEPS + 1)
    bound = theory.error_bound(t=times, variance=measured_runs.variance(problem), method=method)
    assert np.all(errors.mean(0) <= np.asarray(bound))  # the theorem, at every t


def test_theorem_error_bound_holds_for_a_part_of_the_batch():
    problem = known_problems.batched(SQUARES, 8)
    rate = 1e4 * measured_runs.rate(problem, "mu2_sgd", STEPS)  # where the changes count
    errors = measured_runs.errors(problem, "mu2_sgd_part_8", rate, STEPS, SEEDS)
    early, late = windows(errors)
    assert late < 2.5 * early
    bound = theory.error_bound(
        t=jnp.arange(1, STEPS + 1), variance=measured_runs.variance(problem, part=1 / 8)
    )
    assert np.all(errors.mean(0) <= np.asarray(bound))
    whole = measured_runs.errors(problem, "mu2_sgd", rate, STEPS, SEEDS)
    assert late > 1.5 * windows(whole)[1]  # the price


@pytest.mark.parametrize("name", ["sgd", "anytime"])
def test_theorem_error_of_plain_gradients_does_not_fall(name):
    rate = measured_runs.rate(SQUARES, name, STEPS)
    early, late = windows(measured_runs.errors(SQUARES, name, rate, STEPS, SEEDS))
    assert late > 8 * early


def test_theorem_error_ignores_the_rate_by_averaging_alone():
    # steps of 16/L: STORM's differences between its points do not shrink, mu2_sgd's do
    rate = 16 / SQUARES.smoothness
    early, late = windows(measured_runs.errors(SQUARES, "storm", rate, STEPS, SEEDS))
    assert late > 5 * early
    averaged = measured_runs.errors(SQUARES, "mu2_sgd", rate, STEPS, SEEDS)  # 10^5 times 1/(8LT)
    early, late = windows(averaged)
    assert late < 2.5 * early
    bound = theory.error_bound(t=jnp.arange(1, STEPS + 1), variance=measured_runs.variance(SQUARES))
    assert np.all(averaged.mean(0) <= np.asarray(bound))


@pytest.mark.slow
def test_theorem_mu2_extra_sgd_hint_removes_the_bias():
    problem = known_problems.batched(SQUARES, 8)
    rate = 10 * measured_runs.rate(problem, "mu2_extra_sgd", 2 * STEPS)
    run = lambda name: windows(measured_runs.errors(problem, name, rate, 2 * STEPS, SEEDS))
    early, late = run("mu2_extra_sgd_hint")
    assert late < 2 * early
    assert run("mu2_extra_sgd")[1] > 2 * late


def test_theorem_mu2_extra_sgd_is_biased_by_curved_samples():
    # x_t of Algorithm 2 depends on z_t, so that its estimate is biased unless sigma_L = 0: at
    # 10 times the theorem's rate t E|error|^2 grows; with added noise alone it does not.
    rate = 10 * measured_runs.rate(SQUARES, "mu2_extra_sgd", STEPS)
    early, late = windows(measured_runs.errors(SQUARES, "mu2_extra_sgd", rate, STEPS, SEEDS))
    assert late > 2.5 * early
    rate = 10 * measured_runs.rate(HARD, "mu2_extra_sgd", STEPS)
    early, late = windows(measured_runs.errors(HARD, "mu2_extra_sgd", rate, STEPS, SEEDS))
    assert late < 1.5 * early


LENGTHS = (128, 256, 512, 1024)


def losses(problem, name, seeds):
    """Excess losses at the theorem's rate, checked against the theorem's bound at every T."""
    rates = [measured_runs.rate(HARD, name, steps) for steps in LENGTHS]
    values = np.stack(
        [
            measured_runs.final_excess(problem, name, [rate], steps, seeds)[0]
            for rate, steps in zip(rates, LENGTHS, strict=True)
        ]
    )
    bounds = [
        measured_runs.bound(problem, name, rate, steps)
        for rate, steps in zip(rates, LENGTHS, strict=True)
    ]
    assert np.all(values.mean(1) <= bounds)
    return values


@pytest.mark.parametrize(
    ("name", "slope"),
    [
        ("mu2_sgd", -1),
        pytest.param("mu2_extra_sgd", -2, marks=pytest.mark.slow),
        pytest.param("mu2_frank_wolfe", -1, marks=pytest.mark.slow),
    ],
)
def test_theorem_excess_loss_falls_at_the_proven_rate(name, slope):
    quiet = measured_runs.slope(LENGTHS, losses(QUIET, name, 1))
    assert quiet[0] == pytest.approx(slope, abs=0.1)
    fit, low, high = measured_runs.slope(LENGTHS, losses(HARD, name, 64), resamples=300)
    assert low - 0.05 < -0.5 < high + 0.05
    assert fit == pytest.approx(-0.5, abs=0.12)


MULTIPLES = 10 ** np.arange(-6, 0.01, 0.25)  # up to the theory's largest rate


def sweep(problem, name, steps):
    top = 1 / (2 * HARD.smoothness) if name == "sgd" else measured_runs.rate(HARD, name, steps)
    return measured_runs.final_excess(problem, name, MULTIPLES * top, steps, 16).mean(1)


@pytest.mark.slow
def test_theorem_one_rate_is_good_with_and_without_noise():
    def cost(name):
        quiet, noisy = (sweep(problem, name, STEPS) for problem in (QUIET, HARD))
        return noisy[quiet.argmin()] / noisy.min()  # the noiseless best rate, used under noise

    assert cost("mu2_sgd") < 1.2
    assert cost("mu2_extra_sgd") < 1.2
    assert cost("sgd") > 2


@pytest.mark.slow
def test_theorem_range_of_good_rates_grows_with_steps():
    def ratio(name, steps):
        return measured_runs.within_twice_best(MULTIPLES, sweep(HARD, name, steps))[2]

    # 16 times the steps: predicted are factors of 4, 64 and 1; the grid has 1.8-fold steps
    assert 2 < ratio("mu2_sgd", 1024) / ratio("mu2_sgd", 64) < 8
    assert 32 < ratio("mu2_extra_sgd", 1024) / ratio("mu2_extra_sgd", 64) < 128
    assert ratio("sgd", 1024) / ratio("sgd", 64) < 4
    assert ratio("mu2_extra_sgd", 1024) > 100 * ratio("sgd", 1024)


def test_theorem_high_probability_bound_holds_for_every_seed():
    errors = measured_runs.errors(SQUARES, "mu2_sgd", 0.01, STEPS, SEEDS)
    bound = theory.high_probability_error_bound(
        t=jnp.arange(1, STEPS + 1),
        steps=STEPS,
        variance=measured_runs.variance(SQUARES),
        smoothness=SQUARES.smoothness,
        diameter=SQUARES.diameter,
        gradient_bound=SQUARES.gradient_bound,
        failure=0.05,
    )
    assert np.all(errors <= np.asarray(bound))


@pytest.mark.parametrize("problem", [SQUARES, LOGISTIC], ids=lambda p: p.name)
def test_theorem_known_constants_are_the_measured_ones(problem):
    samples, key, x = jnp.arange(200), jax.random.key(0), jnp.full(problem.dim, 0.1)
    start = jnp.zeros(problem.dim)  # where every logistic sample curves most
    measured = theory.measure_sample_smoothness(problem.grad_fn, start, samples, key, iterations=5)
    assert float(measured) == pytest.approx(problem.smoothness, rel=1e-4)  # Hessians of rank one
    variance = theory.measure_gradient_variance(problem.grad_fn, x, samples)
    assert float(variance) <= problem.gradient_variance
    away = theory.measure_smoothness_variance(problem.grad_fn, x, samples, key, iterations=10)
    assert 0.1 * problem.smoothness_variance <= float(away)
    assert float(away) <= problem.smoothness_variance * 200 / 199 * (1 + 1e-4)
    mean = jax.vmap(problem.grad_fn, (None, 0))(x, samples).mean(0)
    np.testing.assert_allclose(mean, problem.gradient(x), atol=1e-5)
    np.testing.assert_allclose(jax.grad(problem.excess)(x), problem.gradient(x), atol=1e-5)
