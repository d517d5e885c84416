"""Theory helpers against exact values, measured constants, dynamic batch sizes."""

import decimal
import functools
import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from problems import jitted_step, over_microbatches, run

import mu2_optax
from mu2_optax import theory

A = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
B = np.random.default_rng(1).normal(size=40).astype(np.float32)
SQUARES = {"a": jnp.asarray(A), "b": jnp.asarray(B)}
KEY = jax.random.key(0)


def square_grad(x, z):
    return jax.grad(lambda x: 0.5 * (z["a"] @ x["w"] + x["c"] - z["b"]) ** 2)(x)


def tree_hessians():
    extended = np.concatenate([np.ones((40, 1)), A.astype(np.float64)], axis=1)  # c before w
    return np.einsum("ni,nj->nij", extended, extended)


PARAMS = {"c": jnp.zeros(()), "w": jnp.ones(6)}


def test_max_learning_rate_is_that_of_the_theorems():
    expected = {
        "mu2_sgd": 1 / (8 * 2 * 50),
        "mu2_extra_sgd": 1 / 4,
        "uniform": 1 / (16 * 2 * (1 + math.log(50))),
    }
    for method, rate in expected.items():
        found = theory.max_learning_rate(smoothness=2.0, steps=50, method=method)
        assert float(found) == pytest.approx(rate), method
    traced = jax.jit(lambda L, T: theory.max_learning_rate(smoothness=L, steps=T))(2.0, 50)
    assert float(traced) == pytest.approx(1 / 800)


def test_max_learning_rate_moves_its_optimizer():
    """On L/2 (x - 1)² from 0, in 1000 steps; the rate of mu2_sgd is for weighted steps alone."""
    L, T = 2.0, 1000
    gradient = lambda x, batch: L * (x - 1)
    rate = lambda method: theory.max_learning_rate(smoothness=L, steps=T, method=method)
    linear, uniform = mu2_optax.linear_momentum(offset=1), mu2_optax.polynomial_momentum(0)
    optimizers = {
        "mu2_sgd": mu2_optax.mu2_sgd(rate("mu2_sgd"), linear, weighted_steps=True),
        "mu2_extra_sgd": mu2_optax.mu2_extra_sgd(rate("mu2_extra_sgd")),
        "uniform": mu2_optax.mu2_sgd(rate("uniform"), uniform),
        "not weighted": mu2_optax.mu2_sgd(rate("mu2_sgd")),
    }
    end = {}
    for name, tx in optimizers.items():
        points, _ = run(tx, jnp.zeros([]), jnp.zeros(T), gradient)
        end[name] = float(points[-1])
    for name in ("mu2_sgd", "mu2_extra_sgd", "uniform"):
        assert end[name] == pytest.approx(1, abs=0.2), name
    assert end["not weighted"] < 0.15


OF_METHODS = (theory.max_learning_rate, theory.excess_loss_bound, theory.stable_rates)
FORMULAS = [
    (theory.error_bound, {}),
    (theory.high_probability_error_bound, {"failure": 0.05}),
    (theory.frank_wolfe_bound, {}),
    (theory.effective_variance, {}),
    *[
        (f, {"method": name})
        for f in OF_METHODS
        for name in ("mu2_sgd", "mu2_extra_sgd", "uniform")
    ],
    *[(theory.stable_rates, {"method": name}) for name in ("sgd", "accelerated_sgd")],
]


@pytest.mark.parametrize(("function", "options"), FORMULAS)
def test_theory_of_tracers_in_float32_is_that_of_known_numbers(function, options):
    """For the numbers that docs/guarantees.md names; known ones are computed with in float64."""
    rng = np.random.default_rng(0)
    drawn = lambda low, high: np.float32(10 ** rng.uniform(low, high, 300))
    parameters = inspect.signature(function).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.name not in options]
    given = {name: drawn(-8, 8) for name in needed}
    given |= {name: np.floor(drawn(1, 9)) for name in {"steps"} & set(needed)}
    given |= {name: np.floor(drawn(0, 1)) for name in {"t"} & set(needed)}
    known = function(**given, **options)
    traced = jax.jit(lambda given: function(**given, **options))(given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4), traced, known)


def test_batch_size_takes_ints_arrays_and_tracers():
    steps = 1000
    exact = [math.ceil(steps / t) for t in range(1, steps + 1)]
    assert [theory.batch_size(t=t, steps=steps) for t in range(1, steps + 1)] == exact
    times = jnp.arange(1, steps + 1)
    assert jax.jit(lambda t: theory.batch_size(t=t, steps=steps))(times).tolist() == exact
    assert theory.batch_size(t=np.int32(3), steps=10) == 4
    assert sum(exact) <= steps * (2 + math.log(steps))  # T log T samples


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int64])
def test_batch_size_is_exact_for_any_integer(dtype):
    for t, steps in ((3, 10), (1, 120), (120, 120), (7, 98)):
        exact = math.ceil(steps / t)
        assert int(theory.batch_size(t=dtype(t), steps=dtype(steps))) == exact
        array = theory.batch_size(t=np.asarray([t], dtype), steps=dtype(steps))
        assert array.tolist() == [exact]
        traced = jax.jit(lambda t, steps: theory.batch_size(t=t, steps=steps))
        assert int(traced(dtype(t), dtype(steps))) == exact
    assert int(theory.batch_size(t=dtype(3), steps=1000)) == 334  # more than a narrow one holds
    assert int(jax.jit(lambda t: theory.batch_size(t=t, steps=1000))(dtype(3))) == 334


def test_theory_takes_numbers_by_name():
    for name in dir(theory):
        function = getattr(theory, name)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        parameters = inspect.signature(function).parameters.values()
        by_place = {p.name for p in parameters if p.kind is not p.KEYWORD_ONLY}
        objects = {"grad_fn", "params", "batch", "samples", "sample", "key", "tx"}
        assert by_place <= objects, name


def test_theory_bounds_are_the_last_lines_of_the_proofs():
    eta, T, D, variance = 0.01, 100, 2.0, 9.0
    weights = sum(t + 1 for t in range(1, T + 1))  # alpha_{1:T}
    sgd = (D**2 / eta + 4 * D * 3 * T**1.5) / weights + 2 * eta * variance
    extra = (4 * D**2 / eta + 2 * D * 3 * T**1.5) / weights
    uniform = (D**2 / eta + 2 * eta * variance * (1 + math.log(T)) + 4 * D * 3 * T**0.5) / T
    for method, expected in (("mu2_sgd", sgd), ("mu2_extra_sgd", extra), ("uniform", uniform)):
        found = theory.excess_loss_bound(
            learning_rate=eta, steps=T, diameter=D, variance=variance, method=method
        )
        assert float(found) == pytest.approx(expected, rel=1e-5)
    wolfe = (2 * 0.7 + 99 * 3.0 * D**2 + 2 * D * 3 * T**1.5) / weights
    assert float(
        theory.frank_wolfe_bound(
            steps=T, smoothness=3.0, diameter=D, variance=variance, initial_gap=0.7
        )
    ) == pytest.approx(wolfe)
    default = theory.frank_wolfe_bound(steps=T, smoothness=3.0, diameter=D, variance=variance)
    assert float(default) == pytest.approx(wolfe + 2 * (6.0 - 0.7) / weights)
    assert float(
        theory.effective_variance(gradient_variance=2.0, smoothness_variance=0.25, diameter=3.0)
    ) == pytest.approx(32 * 9 * 0.25 + 4)
    np.testing.assert_allclose(theory.error_bound(t=jnp.array([1, 3]), variance=8.0), [4.0, 2.0])
    np.testing.assert_allclose(
        theory.error_bound(t=jnp.array([1, 4]), variance=8.0, method="uniform"), [8.0, 2.0]
    )
    high = theory.high_probability_error_bound(
        t=10,
        steps=100,
        variance=8.0,
        smoothness=3.0,
        diameter=2.0,
        gradient_bound=5.0,
        failure=0.1,
        constant=2.0,
    )
    exact = 2 * (8 / 10 + (8 * 3 * 2 + 2 * 5) ** 2 / 100) * math.log(1000)
    assert float(high) == pytest.approx(exact, rel=1e-6)


def test_error_bound_follows_from_the_recursion():
    # E|a_t e_t|^2 = sum of the squares of the martingale's steps: at most 4 sigma^2 for the first,
    # because a_1 = 2 and d_1 = g_1, and sigma_tilde^2 for each of the others
    variance, own = 7.0, 7.0 / 2  # sigma_tilde^2 >= 2 sigma^2, the worst case
    for t in range(1, 50):
        worst = (4 * own + (t - 1) * variance) / (t + 1) ** 2
        assert worst <= float(theory.error_bound(t=t, variance=variance)) * (1 + 1e-6)


def grid_range(bound, top):
    etas = np.logspace(np.log10(top) - 9, np.log10(top), 200_001)
    values = bound(etas)
    good = etas[values <= 2 * values.min()]
    return good[0], etas[values.argmin()], good[-1]


@pytest.mark.parametrize("steps", [10, 1000, 100_000])
@pytest.mark.parametrize("variance", [0.01, 4.0])
@pytest.mark.parametrize(
    "method", ["mu2_sgd", "mu2_extra_sgd", "uniform", "sgd", "accelerated_sgd"]
)
def test_stable_rates_solve_their_definition(method, variance, steps):
    L, T, D, s, log = 2.0, steps, 1.5, math.sqrt(variance), 1 + math.log(steps)
    bound, top = {
        "mu2_sgd": (
            lambda e: D**2 / (e * T**2) + 2 * e * variance + 4 * D * s / T**0.5,
            1 / (8 * L * T),
        ),
        "mu2_extra_sgd": (lambda e: D**2 / (e * T**2) + s * D / T**0.5, 1 / (2 * L)),
        "uniform": (
            lambda e: D**2 / (e * T) + 2 * e * variance * log / T + 4 * D * s / T**0.5,
            1 / (16 * L * log),
        ),
        "sgd": (lambda e: D**2 / (e * T) + e * variance, 1 / (2 * L)),
        "accelerated_sgd": (lambda e: D**2 / (e * T**2) + e * variance * T, 1 / (2 * L)),
    }[method]
    low, best, high = grid_range(bound, top)
    found = theory.stable_rates(smoothness=L, steps=T, diameter=D, variance=variance, method=method)
    np.testing.assert_allclose([found.low, found.best, found.high], [low, best, high], rtol=2e-3)
    assert float(found.ratio) == pytest.approx(high / low, rel=4e-3)
    if method in ("sgd", "accelerated_sgd"):
        assert float(found.ratio) <= 15


@pytest.mark.parametrize("diameter", [1e-18, 1e-12, 1e12, 1e15, 1e18])
@pytest.mark.parametrize(
    "method", ["mu2_sgd", "mu2_extra_sgd", "uniform", "sgd", "accelerated_sgd"]
)
def test_stable_rates_depend_on_noise_over_diameter_alone(method, diameter):
    known = {"smoothness": 2.0, "steps": 1000, "method": method}
    one = theory.stable_rates(diameter=1.0, variance=4.0, **known)
    far = theory.stable_rates(diameter=diameter, variance=4.0 * diameter**2, **known)
    np.testing.assert_allclose(far, one, rtol=1e-5)
    for variance in (1e-20, 1.0, 1e20):  # and without such a ratio they are numbers all the same
        found = theory.stable_rates(diameter=diameter, variance=variance, **known)
        assert np.all(np.isfinite(found))
        assert 0 < found.low <= found.best <= found.high


def exact_excess_loss(learning_rate, steps, diameter, variance, method):
    """The last lines of the proofs, in 50 digits."""
    eta, T, D, variance = map(decimal.Decimal, (learning_rate, steps, diameter, variance))
    noise, weights = variance.sqrt(), T * (T + 3) / 2
    return {
        "mu2_sgd": (D**2 / eta + 4 * D * noise * T * T.sqrt()) / weights + 2 * eta * variance,
        "mu2_extra_sgd": (4 * D**2 / eta + 2 * D * noise * T * T.sqrt()) / weights,
        "uniform": (D**2 / eta + 2 * eta * variance * (1 + T.ln()) + 4 * D * noise * T.sqrt()) / T,
    }[method]


@pytest.mark.parametrize("method", ["mu2_sgd", "mu2_extra_sgd", "uniform"])
@pytest.mark.parametrize(
    "known",
    [
        {"learning_rate": 1e-3, "steps": 10**27, "diameter": 1e16, "variance": 1e-9},
        {"learning_rate": 1e25, "steps": 10**9, "diameter": 1e30, "variance": 1e-40},
        {"learning_rate": 1e-30, "steps": 10**12, "diameter": 1e-20, "variance": 1e-20},
    ],
)
def test_excess_loss_bound_is_exact_far_from_one(method, known):
    with decimal.localcontext(prec=50):
        exact = exact_excess_loss(**known, method=method)
    found = theory.excess_loss_bound(**known, method=method)
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(float(exact), rel=1e-6, abs=0)


@pytest.mark.parametrize("scale", [1e-19, 1.0, 1e19])
def test_theory_bounds_are_exact_where_squares_leave_float32(scale):
    """In other units of length, in which D² is beyond float32 and the results are not."""
    T, t, failure = 10**6, 1000, 1e-35
    with decimal.localcontext(prec=50):
        D = 3 * decimal.Decimal(scale)
        L, G, variance, spread = 18 / D**2, 1 / D, decimal.Decimal(4), 7 / D**2
        effective = 32 * D**2 * spread + 2 * variance
        log = (T / decimal.Decimal(failure)).ln()
        high = (variance / t + ((8 * L * D + 2 * G) / t) ** 2) * log
        total = T * L * D**2 + 2 * D * variance.sqrt() * T * decimal.Decimal(T).sqrt()
        wolfe = total / (T * (T + 3) // 2)
    known = {"diameter": float(D), "smoothness": float(L), "steps": T}
    found = {
        effective: theory.effective_variance(
            gradient_variance=float(variance), smoothness_variance=float(spread), diameter=float(D)
        ),
        high: theory.high_probability_error_bound(
            **known, t=t, variance=float(variance), gradient_bound=float(G), failure=failure
        ),
        wolfe: theory.frank_wolfe_bound(**known, variance=float(variance)),
    }
    for exact, value in found.items():
        assert float(value) == pytest.approx(float(exact), rel=1e-6, abs=0)


def test_measure_smoothness_is_the_largest_eigenvalue():
    mean_grad = over_microbatches(square_grad)
    exact = np.linalg.eigvalsh(tree_hessians().mean(0))[-1]
    found = theory.measure_smoothness(mean_grad, PARAMS, SQUARES, KEY, iterations=300)
    assert float(found) == pytest.approx(exact, rel=1e-4)
    assert float(theory.measure_smoothness(mean_grad, PARAMS, SQUARES, KEY, iterations=3)) < exact
    exact = max(np.linalg.eigvalsh(h)[-1] for h in tree_hessians())
    found = jax.jit(lambda: theory.measure_sample_smoothness(square_grad, PARAMS, SQUARES, KEY))()
    assert float(found) == pytest.approx(exact, rel=1e-5)


def test_measure_smoothness_takes_saddles_and_flat_losses():
    saddle = jax.grad(lambda x, z: 0.5 * (x[0] ** 2 - 3 * x[1] ** 2))
    assert float(theory.measure_smoothness(saddle, jnp.ones(2), 0, KEY)) == pytest.approx(
        3, rel=1e-5
    )
    flat = jax.grad(lambda x, z: jnp.sum(x))
    assert float(theory.measure_smoothness(flat, jnp.ones(2), 0, KEY)) == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-25, 1e-19, 1e19, 1e25, 1e30])
def test_measure_smoothness_of_any_size(scale):
    curved = jax.grad(lambda x, z: scale * (0.5 * x["a"] ** 2 - 1.5 * jnp.sum(x["b"] ** 2)))
    params = {"a": jnp.zeros(()), "b": jnp.zeros(2)}
    found = theory.measure_smoothness(curved, params, 0, KEY)
    assert float(found) == pytest.approx(3 * scale, rel=1e-5)
    found = theory.measure_sample_smoothness(curved, params, jnp.zeros(2), KEY)
    assert float(found) == pytest.approx(3 * scale, rel=1e-5)


@pytest.mark.parametrize("scale", [1e-18, 1e-12, 1e12, 1e18])
def test_measure_smoothness_variance_of_any_size(scale):
    grad_fn = jax.grad(lambda x, z: 0.5 * scale * jnp.sum(z * x**2))
    samples = jnp.array([1.0, 2.0, 3.0])
    found = theory.measure_smoothness_variance(grad_fn, jnp.ones(3), samples, KEY)
    assert float(found) == pytest.approx(scale**2, rel=1e-5)


def test_measure_gradient_variance_is_that_of_the_samples():
    grads = np.stack(
        [np.concatenate([[r], r * a]) for a, r in zip(A, A @ np.ones(6) - B, strict=True)]
    )
    exact = np.sum(np.var(grads, axis=0, ddof=1))
    found = theory.measure_gradient_variance(square_grad, PARAMS, SQUARES)
    assert float(found) == pytest.approx(exact, rel=1e-4)
    away = tree_hessians() - tree_hessians().mean(0)
    exact = np.linalg.eigvalsh(np.einsum("nij,njk->ik", away, away) / 39)[-1]
    found = theory.measure_smoothness_variance(square_grad, PARAMS, SQUARES, KEY, iterations=200)
    assert float(found) == pytest.approx(exact, rel=1e-3)
    additive = jax.grad(lambda x, z: 0.5 * jnp.sum(x**2) + jnp.sum(x) * z["b"])
    found = theory.measure_smoothness_variance(additive, jnp.ones(3), SQUARES, KEY)
    assert float(found) == pytest.approx(0, abs=1e-5)  # rounding of Hessians of norm 1


def test_measure_gradient_variance_of_complex_params_is_real():
    loss = lambda x, z: 0.5 * jnp.abs(x["c"] - z) ** 2 + 0.5 * (x["r"] - jnp.real(z)) ** 2
    z = np.array([1 + 1j, 2, 3 - 2j], np.complex64)
    params = {"c": jnp.zeros((), jnp.complex64), "r": jnp.zeros(())}
    found = theory.measure_gradient_variance(jax.grad(loss), params, jnp.asarray(z))
    assert jnp.isrealobj(found)
    assert float(found) == pytest.approx(np.var(z, ddof=1) + np.var(z.real, ddof=1), rel=1e-5)


def test_dynamic_batches_are_means_over_the_same_samples():
    draw = lambda key: jax.random.normal(key, (2,))
    grad_fn = lambda x, z: {"g": x * z}
    mean = theory.dynamic_batches(grad_fn, draw)
    key = jax.random.key(4)
    for count in (1, 3, 10):
        samples = jnp.stack([draw(jax.random.fold_in(key, i)) for i in range(count)])
        found = jax.jit(mean)(2.0, (key, count))["g"]
        np.testing.assert_allclose(found, 2 * samples.mean(0), rtol=1e-5)
    stacked = theory.dynamic_batches(
        over_microbatches(lambda x, z: x * z), lambda key: jax.random.normal(key, (5, 2))
    )
    inner = [jax.random.normal(jax.random.fold_in(key, i), (5, 2)).mean(0) for i in range(3)]
    np.testing.assert_allclose(stacked(1.0, (key, 3)), np.mean(inner, 0), rtol=1e-5)


def test_run_dynamic_equals_a_python_loop_and_traces_once():
    traces = []

    def grad_fn(x, z):
        traces.append(1)
        return x - z

    tx = mu2_optax.mu2_sgd(
        0.3, mu2_optax.linear_momentum(1), projection=mu2_optax.onto_l2_ball(2.0)
    )
    draw = lambda key: jax.random.normal(key, (3,))
    key, steps = jax.random.key(0), 25
    run = theory.run_dynamic(
        tx, grad_fn, draw, jnp.ones(3), key, steps=steps, record=lambda x, state: state.d
    )
    # traced for shapes and in loops, at two points, however many steps: nothing grows with T
    few = len(traces)
    theory.run_dynamic(tx, grad_fn, draw, jnp.ones(3), key, steps=4 * steps)
    assert len(traces) == 2 * few
    assert int(run.samples) == sum(math.ceil(steps / t) for t in range(1, steps + 1))

    step = jitted_step(tx, lambda x, z: x - z)  # linear: the gradient at the mean of a batch
    x, state = jnp.ones(3), tx.init(jnp.ones(3))
    for t in range(1, steps + 1):
        keys = [jax.random.fold_in(jax.random.fold_in(key, t), i) for i in range(-(-steps // t))]
        x, state = step(x, state, np.mean([draw(k) for k in keys], axis=0))
        np.testing.assert_allclose(run.records[t - 1], state.d, atol=1e-5)
    np.testing.assert_allclose(run.params, x, atol=1e-5)


def test_run_dynamic_error_is_small_from_the_start():
    # f(x; z) = |x - z|^2 / 2 with z ~ N(0, 1) in 4 dimensions: sigma^2 = 4, sigma_L = 0, and the
    # error of d is that of a weighted mean of all samples so far: E|e_t|^2 ~ 4/T at every t
    steps, seeds, dim = 64, 64, 4
    tx = mu2_optax.mu2_sgd(
        0.1, mu2_optax.linear_momentum(1), projection=mu2_optax.onto_l2_ball(2.0)
    )
    draw = lambda key: jax.random.normal(key, (dim,))

    def errors(size, key):
        return theory.run_dynamic(
            tx,
            lambda x, z: x - z,
            draw,
            jnp.ones(dim),
            key,
            steps=steps,
            size=size,
            record=lambda x, state: jnp.sum((state.d - state.x) ** 2),
        ).records

    keys = jax.random.split(jax.random.key(0), seeds)
    dynamic = np.asarray(jax.jit(jax.vmap(lambda k: errors(None, k)))(keys)).mean(0)
    single = lambda t, T: jnp.ones_like(t)
    fixed = np.asarray(jax.jit(jax.vmap(lambda k: errors(single, k)))(keys)).mean(0)
    variance = float(
        theory.effective_variance(gradient_variance=dim, smoothness_variance=0.0, diameter=4.0)
    )
    assert np.all(dynamic <= variance / steps)  # the bound of the appendix, at every t
    assert dynamic[:8].mean() < 2 * dynamic[-8:].mean()  # flat
    assert fixed[:8].mean() > 8 * fixed[-8:].mean()  # with one sample a step it falls like 1/t
    assert fixed[:8].mean() > 8 * dynamic[:8].mean()


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_run_dynamic_refuses_a_batch_of_no_samples(transform):
    tx, draw = mu2_optax.mu2_sgd(0.1), lambda key: jax.random.normal(key, (2,))
    grad_fn = lambda x, z: x - z

    def run(size):
        call = lambda x: theory.run_dynamic(tx, grad_fn, draw, x, KEY, steps=5, size=size).params
        return transform(call)(jnp.ones(2))

    with pytest.raises(ValueError, match="`size` must return whole numbers of at least 1, got 0 "):
        run(lambda t, T: T - t)
    with pytest.raises(ValueError, match=r"got 2\.5 for step 2"):
        run(lambda t, T: T / t)
    np.testing.assert_array_equal(run(lambda t, T: 2), run(lambda t, T: jnp.full_like(t, 2.0)))


VALID = {
    theory.max_learning_rate: {"smoothness": 1.0, "steps": 10},
    theory.batch_size: {"t": 1, "steps": 10},
    theory.effective_variance: {
        "gradient_variance": 1.0,
        "smoothness_variance": 0.0,
        "diameter": 1.0,
    },
    theory.excess_loss_bound: {
        "learning_rate": 0.1,
        "steps": 10,
        "diameter": 1.0,
        "variance": 1.0,
    },
    theory.stable_rates: {"smoothness": 1.0, "steps": 10, "diameter": 1.0, "variance": 1.0},
    theory.frank_wolfe_bound: {"steps": 10, "smoothness": 1.0, "diameter": 1.0, "variance": 1.0},
    theory.high_probability_error_bound: {
        "t": 1,
        "steps": 10,
        "variance": 1.0,
        "smoothness": 1.0,
        "diameter": 1.0,
        "gradient_bound": 1.0,
        "failure": 0.1,
    },
    theory.measure_gradient_variance: {
        "grad_fn": square_grad,
        "params": PARAMS,
        "samples": SQUARES,
    },
    theory.measure_smoothness: {
        "grad_fn": over_microbatches(square_grad),
        "params": PARAMS,
        "batch": SQUARES,
        "key": KEY,
    },
    theory.run_dynamic: {
        "tx": mu2_optax.mu2_sgd(0.1),
        "grad_fn": square_grad,
        "sample": lambda key: {"a": jnp.ones(6), "b": jnp.ones(())},
        "params": PARAMS,
        "key": KEY,
        "steps": 5,
    },
}


@pytest.mark.parametrize("function", VALID)
def test_theory_accepts_valid_arguments(function):
    jax.eval_shape(lambda: function(**VALID[function]))


@pytest.mark.parametrize(
    ("function", "argument", "value", "message"),
    [
        (theory.max_learning_rate, "smoothness", 0.0, "must be finite and greater than"),
        (theory.max_learning_rate, "smoothness", -1.0, "must .* got -1.0"),
        (theory.max_learning_rate, "smoothness", "1", "must be a number, got '1'"),
        (theory.max_learning_rate, "steps", 0, "must be a whole number of at least 1"),
        (theory.max_learning_rate, "steps", 2.5, r"must .* got 2\.5"),
        (theory.max_learning_rate, "method", "adam", "must be one of .*'adam'"),
        (theory.batch_size, "t", 0, "must be a whole number of at least 1, got 0"),
        (theory.batch_size, "steps", -3, "must be a whole number"),
        (theory.batch_size, "t", 11, "must be at most `steps`, got 11 of 10"),
        (theory.high_probability_error_bound, "t", jnp.arange(1, 12), "must be at most `steps`"),
        (theory.effective_variance, "gradient_variance", -1.0, "must be finite"),
        (theory.effective_variance, "diameter", 0.0, "a bounded set"),
        (theory.excess_loss_bound, "learning_rate", 0.0, r"must .* got 0\.0"),
        (theory.stable_rates, "method", "x", "must .*'sgd'"),
        (theory.frank_wolfe_bound, "initial_gap", -2.0, r"got -2\.0"),
        (
            theory.high_probability_error_bound,
            "failure",
            1.0,
            r"must lie strictly between 0 and 1, got 1\.0",
        ),
        (
            theory.measure_gradient_variance,
            "samples",
            jnp.ones((1, 3)),
            "must have a leading axis, of the same length of at least 2",
        ),
        (theory.measure_smoothness, "iterations", 0, "must be an integer of at least 1, got 0"),
        (
            theory.measure_smoothness,
            "grad_fn",
            lambda x, z: (1.0, x),
            r"must be the gradients alone, got a pair \(value, grads\)",
        ),
        (theory.run_dynamic, "grad_fn", None, "must be a function"),
        (theory.run_dynamic, "sample", KEY, "must be a function"),
    ],
)
def test_theory_refuses_bad_arguments(function, argument, value, message):
    with pytest.raises((ValueError, TypeError), match=rf"`{argument}\b.*{message}"):
        function(**VALID[function] | {argument: value})


def test_effective_variance_grows_with_a_part_of_the_batch():
    variance = functools.partial(theory.effective_variance, gradient_variance=3.0, diameter=2.0)
    assert float(variance(smoothness_variance=0.5)) == 32 * 4 * 0.5 + 2 * 3
    assert float(variance(smoothness_variance=0.5, part=1 / 8)) == 8 * 32 * 4 * 0.5 + 2 * 3
    assert float(variance(smoothness_variance=0.0, part=1 / 8)) == 2 * 3
    for wrong in (0.0, 1.5):
        with pytest.raises(ValueError, match="`part` must"):
            variance(smoothness_variance=0.5, part=wrong)
