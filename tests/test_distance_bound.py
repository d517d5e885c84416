"""The two inequalities that docs/nothing_to_choose.md proves, step by step on a noisy run."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import x64

import mu2_optax

T, AHEAD, NEUTRAL = 2000, 0.3, 0.5**0.5
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
        rate = mu2_optax.distance_rate(optax.identity(), factor=request.param)
        tx = mu2_optax.anytime(
            rate,
            mu2_optax.linear_momentum().gamma,
            ahead=AHEAD,
            projection=mu2_optax.onto_l2_ball(1.0),
        )

        def step(carry, features):
            y, state = carry
            g = jax.grad(loss)(y, features)
            updates, after = tx.update(g, state, y)
            seen = (state.w, y, mu2_optax.eval_params(state, y), g, after.inner_state.reach)
            return (optax.apply_updates(y, updates), after), seen

        rows = np.random.default_rng(1).integers(40, size=(T + 1, 2))
        _, seen = jax.lax.scan(step, (start, tx.init(start)), jnp.array(FEATURES[rows]))
        w, y, x, g, reach = seen
        losses = jax.vmap(loss, (0, None))(x, FEATURES)
        slopes = jax.vmap(jax.grad(loss), (0, None))(y, FEATURES)
        return tuple(np.asarray(a) for a in (w, g, reach, losses, slopes))


def test_the_average_is_as_good_as_the_weighted_regret(run):
    w, _, _, losses, slopes = run
    t = np.arange(1, T + 2)
    sums = t * (t + 1) / 2
    gained = sums * losses - np.append(0, (sums * losses)[:-1])
    assert np.all(gained <= t * np.sum(slopes * (w - BEST), axis=1) + 1e-9)


def test_the_weighted_regret_is_bounded_on_every_path(run):
    w, g, reach, _, _ = run
    t = np.arange(1, T + 1)
    squares = lambda a: np.mean(a**2, axis=1)  # the norm of distance_rate, and its inner product
    regret = np.cumsum(t * np.mean(g * (w - BEST), axis=1)[:T])
    roots = np.sqrt(np.cumsum(reach[:T] ** 2 * squares(g[:T])))
    distance = np.sqrt(np.maximum.accumulate(squares(w - BEST)))[1:]
    variation = np.cumsum(np.diff(t * roots, prepend=0) / reach[:T] ** 2) / NEUTRAL
    bound = 4 * distance * reach[1:] * variation + NEUTRAL * t * roots
    assert np.all(regret <= bound)
    assert np.all(reach[1:] <= (1 + NEUTRAL) * reach[:-1] * (1 + 1e-12))
    # And with the largest gradient in the place of all of them, from the last doubling on:
    largest = np.sqrt(squares(g).max())
    tau = np.sum(reach[:T] < reach[T - 1] / 2)
    early = reach[T - 1] * reach[max(tau - 1, 0)] / reach[0] ** 2 * (tau / T) ** 1.5
    stated = distance[-1] * (78 + 20 * early) + np.sqrt(2) * reach[T - 1]
    assert 2 * bound[-1] / (T * (T + 1)) <= largest / np.sqrt(T) * stated


def test_steps_that_agree_make_the_rate_grow_by_the_root_of_its_equation():
    with x64():
        tx = mu2_optax.distance_rate(optax.identity())
        w = jnp.ones(4)
        state = tx.init(w)
        rates = []
        for _ in range(20):
            updates, state = tx.update(jnp.ones(4), state, w)
            w = optax.apply_updates(w, updates)
            rates.append(float(mu2_optax.found_rate(state)))
    (root,) = [r.real for r in np.roots([1, -1, -0.5, -0.5]) if r.imag == 0]
    assert root == pytest.approx(1.537, abs=1e-3)
    assert rates[-1] / rates[-2] == pytest.approx(root, abs=1e-3)
