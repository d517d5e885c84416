"""The two inequalities that docs/nothing_to_choose.md proves, step by step on a noisy run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import x64

import mu2_optax

T, AHEAD, NEUTRAL = 2000, 0.3, 7**0.5 / 3
FEATURES = np.random.default_rng(0).normal(size=(40, 4))
BEST = np.array([0.5, -0.2, 0.4, 0.1])  # inside the ball; the loss there is 0


def loss(x, features):
    """The mean absolute error, which is convex and has bounded gradients, but is not smooth."""
    return jnp.mean(jnp.abs(features @ (x - BEST)))


@pytest.fixture(scope="module", params=[0.01, 1.0])
def run(request):
    """The w, stochastic g and ρ of a run on a ball, and loss and gradient there."""
    with x64():
        start = 1e-2 * jnp.ones(4)
        rate = mu2_optax.distance_rate(optax.identity(), first_step=request.param)
        tx = mu2_optax.anytime(
            rate,
            mu2_optax.polynomial_momentum(2.0).gamma,
            ahead=AHEAD,
            projection=mu2_optax.onto_l2_ball(1.0),
        )

        def step(carry, features):
            y, state = carry
            g = jax.grad(loss)(y, features)
            updates, after = tx.update(g, state, y)
            x = mu2_optax.eval_params(state, y)
            reach = after.inner_state.size * after.inner_state.reach
            seen = (x + (y - x) / AHEAD, y, x, g, reach)
            return (optax.apply_updates(y, updates), after), seen

        rows = np.random.default_rng(1).integers(40, size=(T + 1, 2))
        _, seen = jax.lax.scan(step, (start, tx.init(start)), jnp.array(FEATURES[rows]))
        w, y, x, g, reach = seen
        losses = jax.vmap(loss, (0, None))(x, FEATURES)
        slopes = jax.vmap(jax.grad(loss), (0, None))(y, FEATURES)
        return tuple(np.asarray(a) for a in (w, g, reach, losses, slopes))


def test_distance_bound_average_is_as_good_as_the_regret(run):
    w, _, _, losses, slopes = run
    t = np.arange(1, T + 2)
    weights, sums = t * (t + 1) / 2, t * (t + 1) * (t + 2) / 6
    gained = sums * losses - np.append(0, (sums * losses)[:-1])
    rounding = 1e-15 * sums  # of the difference of two numbers of that size
    assert np.all(gained <= weights * np.sum(slopes * (w - BEST), axis=1) + rounding)


def test_distance_bound_holds_for_the_regret_of_every_path(run):
    w, g, reach, _, _ = run
    w, g, reach = w[:T], g[:T], reach[:T]
    t = np.arange(1, T + 1)
    weights = t * (t + 1) / 2
    squares = lambda a: np.mean(a**2, axis=1)  # the norm of distance_rate, and its inner product
    regret = np.cumsum(weights * np.mean(g * (w - BEST), axis=1))
    products = weights * np.sqrt(np.cumsum(reach**2 * squares(g)))
    furthest = np.maximum.accumulate(squares(w - BEST))
    variation = np.cumsum(np.diff(products, prepend=0) / reach**2) / NEUTRAL
    bound = furthest * variation / 2 + NEUTRAL * products
    assert np.all(regret <= bound)
    # And with the largest gradient in the place of all of them, from the last doubling on:
    largest = np.sqrt(squares(g).max())
    tau = np.sum(reach < reach[-1] / 2)
    early = 3.5 * furthest[-1] * reach[max(tau - 1, 0)] / reach[0] ** 2 * tau**2.5 / T**3
    stated = (6.9 * furthest[-1] / reach[-1] + np.sqrt(7) * reach[-1]) / np.sqrt(T) + early
    assert bound[-1] / (T * (T + 1) * (T + 2) / 6) <= largest * stated


def test_distance_rate_grows_a_thousandfold_in_forty_steps():
    """It grows ever more slowly, as the mean lags behind: 370 times in 30 steps, 5800 in 50."""
    with x64():
        rate = mu2_optax.distance_rate(optax.identity())
        tx = mu2_optax.anytime(rate, mu2_optax.polynomial_momentum(2.0).gamma)

        def step(carry, _):
            w, state = carry
            updates, state = tx.update(jnp.ones(4), state, w)
            return (optax.apply_updates(w, updates), state), mu2_optax.found_rate(state)

        w = jnp.ones(4)
        rates = np.asarray(jax.lax.scan(step, (w, tx.init(w)), length=50)[1])
    assert np.all(rates[3:] > rates[2:-1])
    assert rates[29] < 1000 * rates[0] < rates[39]
    assert np.max(rates[1:] / rates[:-1]) < 1.6
