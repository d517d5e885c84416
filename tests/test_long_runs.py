"""Weights and counts stay right however long a run is, and the averages keep moving."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from problems import join, numpy_grad, run, samples, split

import mu2_optax

TIMES = [1, 2, 3, 10, 1000, 10**5, 10**7]


def exact_linear(offset):
    def weights(t):
        alpha = Fraction(t + offset)
        total = Fraction(t * (t + 1), 2) + offset * t
        gamma = alpha / total if total else Fraction(1)
        return alpha, Fraction(1, t + max(offset, 0)), gamma

    return weights


def exact_polynomial(power):
    def weights(t):  # Σ_{s ≤ t} C(s + p - 1, p) = C(t + p, p + 1)
        alpha = Fraction(math.comb(t + power - 1, power))
        return alpha, Fraction(1, t), alpha / math.comb(t + power, power + 1)

    return weights


EXACT = [
    (mu2_optax.linear_momentum(1), exact_linear(1)),
    (mu2_optax.linear_momentum(0), exact_linear(0)),
    (mu2_optax.linear_momentum(-1), exact_linear(-1)),
    (mu2_optax.polynomial_momentum(0), exact_polynomial(0)),
    (mu2_optax.polynomial_momentum(1), exact_polynomial(1)),
    (mu2_optax.polynomial_momentum(2), exact_polynomial(2)),
    (mu2_optax.polynomial_momentum(3), exact_polynomial(3)),
]


@pytest.mark.parametrize(("momentum", "exact"), EXACT)
def test_weights_match_exact_rational_arithmetic(momentum, exact):
    for t in TIMES:
        count = jnp.array(t - 1, jnp.int32)
        got = [momentum.alpha(count), momentum.beta(count), momentum.gamma(count)]
        want = [float(w) for w in exact(t)]
        np.testing.assert_allclose([float(g) for g in got], want, rtol=1e-6)


def test_a_fractional_power_matches_the_gamma_function():
    momentum = mu2_optax.polynomial_momentum(2.5)
    for t in [1, 2, 7, 60]:
        exact = math.gamma(t + 2.5) / math.gamma(t) / math.gamma(3.5)
        np.testing.assert_allclose(float(momentum.alpha(t - 1)), exact, rtol=1e-6)
    ratio = float(momentum.alpha(10**7 - 1)) / (1e7**2.5 / math.gamma(3.5))
    assert abs(ratio - 1) < 1e-6  # 1 + p(p - 1)/(2t) + ...


def test_integer_counts_do_not_wrap_around_in_a_schedule():
    """β = 1/t² of an integer t is negative at t = 46,341."""
    tx = mu2_optax.corrected_momentum(lambda count: 1 / (count + 1) ** 2)
    params = jnp.array(1.0)
    state = tx.init(params)._replace(t=jnp.array(60_000, jnp.int32), d=jnp.array(5.0))
    d, _ = tx.update(jnp.array(1.0), state, params, prev_grads=jnp.array(1.0))
    np.testing.assert_allclose(d, 5.0, rtol=1e-6)  # β is 3e-10


OPTIMIZERS = [
    mu2_optax.mu2_sgd(0.1, mu2_optax.linear_momentum()),
    mu2_optax.mu2_extra_sgd(0.1),
    mu2_optax.anytime_sgd(0.1, mu2_optax.polynomial_momentum(2.0)),
    mu2_optax.storm(0.1, mu2_optax.polynomial_momentum(0).beta),
]


@pytest.mark.parametrize("tx", OPTIMIZERS)
def test_counts_saturate(tx):
    last = jnp.iinfo(jnp.int32).max
    params = jnp.array([1.0, 2.0])
    grad_fn = lambda params, batch: params - batch
    state = jax.tree.map(
        lambda s: jnp.full_like(s, last) if s.dtype == jnp.int32 else s, tx.init(params)
    )
    updates, state = tx.update(params, state, params, grad_fn=grad_fn, batch=0.0)
    counts = [s for s in jax.tree.leaves(state) if s.dtype == jnp.int32]
    assert counts
    assert all(int(c) == last for c in counts)
    assert bool(jnp.all(jnp.isfinite(updates)))


@pytest.mark.parametrize(
    "optimizer", [mu2_optax.mu2_sgd, mu2_optax.anytime_sgd, mu2_optax.mu2_extra_sgd]
)
@pytest.mark.parametrize("narrow", ["bfloat16", "float16"])
def test_a_narrow_average_follows_the_float32_one(optimizer, narrow):
    """At t = 10⁴, γ is 2e-4, far below the last place of bfloat16 (2⁻⁸ relative)."""
    steps = 10**4
    tx = optimizer(0.002, mu2_optax.linear_momentum(), weighted_steps=False)

    def points(dtype):
        params = jnp.array([3.0, -2.0, 1.0], dtype)
        targets = jax.random.normal(jax.random.key(0), (steps, 3)) + 5.0
        grad_fn = lambda params, batch: params - batch.astype(params.dtype)
        return run(tx, params, targets, grad_fn)[0].astype(jnp.float32)

    wide, found = points(jnp.float32), points(narrow)
    # The last place of a bfloat16 number near 5 is 2⁻⁵, and gradients are rounded to it as well.
    np.testing.assert_allclose(found[-1], wide[-1], atol=2**-5)
    # An average kept in the params alone would have stalled long before the half of the run.
    moved = jnp.abs(wide[-1] - wide[1000])
    assert bool(jnp.all(moved > 2**-4)), moved
    assert bool(jnp.all(found[-1] != found[1000]))


def test_a_narrow_state_is_shaped_by_eval_shape_and_not_by_map_params():
    """The documented limit: where params are bfloat16 the state has one tree more."""
    tx = mu2_optax.mu2_sgd(0.1)
    params = {"w": jnp.ones(3, jnp.bfloat16)}
    state = tx.init(params)
    shapes = jax.eval_shape(tx.init, params)
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    assert state.averaged.x["w"].dtype == jnp.float32
    with pytest.raises(ValueError, match=r"structure|Expected None"):
        optax.tree.map_params(tx, lambda leaf: leaf, state)


@pytest.mark.slow
def test_float32_stays_with_the_float64_oracle_for_twenty_thousand_steps():
    """The rounding errors of an average are a random walk: ε √t, times the size of x."""
    steps, eta = 20_000, 0.1
    x1, zs = np.zeros(5), samples(steps).astype(np.float32)
    weights = reference.linear(0, steps)
    exact = reference.mu2_sgd(numpy_grad, x1, zs.astype(float), eta, weights, lambda x: x, False)
    tx = mu2_optax.mu2_sgd(eta, mu2_optax.linear_momentum())
    points, _ = run(tx, split(jnp.array(x1, jnp.float32)), jnp.array(zs))
    apart = np.abs(join(points) - exact).max(axis=1)
    explained = np.finfo(np.float32).eps * np.sqrt(1 + np.arange(steps)) * np.abs(exact).max()
    assert (apart < 10 * explained).all()
