"""Cases in which an optimizer must reduce to something simpler."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import grad_fn, jitted_step, join, loss, run, samples, split, x64

import mu2_optax
from mu2_optax import (
    DoubleMomentum,
    anytime,
    anytime_sgd,
    corrected_momentum,
    distance_rate,
    fixed_momentum,
    linear_momentum,
    mu2,
    mu2_auto,
    mu2_extra_sgd,
    mu2_sgd,
    onto_l2_ball,
    per_tensor,
    polynomial_momentum,
    projected,
    query_point,
    storm,
    unit_directions,
)

X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
ZS = samples(50, seed=1)
NO_MOMENTUM = DoubleMomentum(alpha=1.0, beta=1.0, gamma=1.0)
MOMENTA = [linear_momentum(1), linear_momentum(-1), polynomial_momentum(0), fixed_momentum()]


@pytest.fixture(autouse=True)
def double_precision():
    with x64():
        yield


def trajectory(tx, batches=ZS, grad_fn=grad_fn):
    points, state = run(tx, split(jnp.array(X1)), jnp.array(batches), grad_fn)
    return join(points), state


def assert_same(tx, other, atol=1e-13):
    np.testing.assert_allclose(trajectory(tx)[0], trajectory(other)[0], rtol=0, atol=atol)


@pytest.mark.filterwarnings("ignore:`inner` should have no momentum")  # γ = 1: no averaging
@pytest.mark.parametrize("inner", [optax.sgd(0.3), optax.adam(0.05), optax.sgd(0.1, momentum=0.9)])
def test_mu2_without_momentum_is_the_inner_optimizer(inner):
    assert_same(mu2(inner, NO_MOMENTUM), inner)


def test_mu2_sgd_beta_one_is_anytime_sgd():
    momentum = DoubleMomentum(1.0, 1.0, polynomial_momentum(0).gamma)
    assert_same(mu2_sgd(0.3, momentum), anytime_sgd(0.3, momentum))


def test_storm_beta_one_is_plain_sgd():
    assert_same(storm(0.3, 1.0), optax.sgd(0.3))


def test_mu2_sgd_at_rate_one_ends_up_as_fast_as_sgd_with_momentum_at_a_tenth():
    slope = lambda params, batch: jax.tree.map(jnp.ones_like, params)
    for tx in (mu2_sgd(1.0), optax.sgd(0.1, momentum=0.9)):
        points, _ = run(tx, split(jnp.array(X1)), jnp.zeros((200, 1)), slope)
        np.testing.assert_allclose(np.diff(join(points), axis=0)[-1], -1.0, rtol=1e-3)


def test_mu2_sgd_gamma_one_is_storm():
    assert_same(mu2_sgd(0.3, DoubleMomentum(1.0, 0.2, 1.0)), storm(0.3, 0.2))


def test_anytime_gamma_one_does_not_average():
    assert_same(anytime(optax.adam(0.1), 1.0), optax.adam(0.1))


def test_mu2_extra_sgd_gamma_and_beta_one_is_extragradient():
    gradient = jax.jit(grad_fn)
    step = lambda x, z: 0.3 * join(gradient(split(jnp.array(x)), z))
    # With γ = 1, x_t = w_t and x̂_t = y_{t-1}; y takes the step with the gradient found at w.
    y, expected = X1, []
    for z in ZS:
        expected.append(y - step(y, z))
        y = y - step(expected[-1], z)
    points, state = trajectory(mu2_extra_sgd(0.3, NO_MOMENTUM, weighted_steps=False))
    np.testing.assert_allclose(points, np.array(expected), rtol=0, atol=1e-13)
    np.testing.assert_allclose(join(state.y), y, rtol=0, atol=1e-13)


@pytest.mark.parametrize("momentum", MOMENTA)
def test_mu2_sgd_d_is_the_gradient_of_a_constant_batch(momentum):
    same = np.broadcast_to(ZS[0], ZS.shape)
    _, state = trajectory(mu2_sgd(0.3, momentum), same)
    exact = grad_fn(state.x, jnp.array(ZS[0]))
    np.testing.assert_allclose(join(state.d), join(exact), rtol=0, atol=1e-14)


@pytest.mark.parametrize("offset", [1, 0, -1])
def test_mu2_sgd_x_is_the_alpha_weighted_mean_of_w(offset):
    tx = mu2_sgd(0.3, linear_momentum(offset))
    params = split(jnp.array(X1))
    state = tx.init(params)
    ws = [X1]
    step = jitted_step(tx)
    for z in jnp.array(ZS):
        params, state = step(params, state, z)
        ws.append(join(state.w))
    alpha = np.arange(1, len(ws) + 1) + offset
    np.testing.assert_allclose(join(params), alpha @ np.array(ws) / alpha.sum(), rtol=1e-13)


@pytest.mark.parametrize("momentum", MOMENTA)
@pytest.mark.parametrize("optimizer", [mu2_sgd, mu2_extra_sgd, anytime_sgd])
def test_onto_l2_ball_holds_w_and_x_and_rate_zero_stands_still(optimizer, momentum):
    radius = 0.65  # the start lies just inside

    def points_and_iterate(rate):
        tx = optimizer(rate, momentum, projection=onto_l2_ball(radius))
        points, state = run(tx, split(jnp.array(X1)), jnp.array(ZS))
        return points, state.w if hasattr(state, "w") else state.y

    points, iterate = map(join, jax.vmap(points_and_iterate)(jnp.array([0.0, 0.1, 1e4])))
    np.testing.assert_array_equal(points[0], np.broadcast_to(X1, points[0].shape))
    assert np.linalg.norm(points, axis=-1).max() <= radius * (1 + 1e-12)
    assert np.linalg.norm(iterate, axis=-1).max() <= radius * (1 + 1e-12)


@pytest.mark.parametrize("optimizer", [mu2_sgd, mu2_extra_sgd, anytime_sgd])
def test_mu2_sgd_depends_on_rate_times_loss_alone(optimizer):
    c = 64.0  # a power of two, so that the scaling itself does not round
    scaled = jax.grad(lambda params, z: c * loss(params, z))
    momentum = linear_momentum()
    points, _ = trajectory(optimizer(0.3, momentum))
    again, _ = trajectory(optimizer(0.3 / c, momentum), grad_fn=scaled)
    # XLA may fuse a product into another sum where c stands beside it; that rounding, 4e-16 of
    # points up to 2.5, is multiplied along the path, to 1.06e-13 with the newest Python.
    np.testing.assert_allclose(points, again, rtol=0, atol=1e-12)


@pytest.mark.parametrize("momentum", MOMENTA)
def test_mu2_of_sgd_is_mu2_sgd(momentum):
    projection = onto_l2_ball(0.6)
    assert_same(
        mu2(optax.sgd(0.3), momentum, projection=projection),
        mu2_sgd(0.3, momentum, projection=projection),
        atol=0,
    )


@pytest.mark.parametrize("momentum", MOMENTA)
def test_mu2_sgd_is_the_chain_of_both_mechanisms(momentum):
    chain = optax.chain(corrected_momentum(momentum.beta), anytime(optax.sgd(0.3), momentum.gamma))
    assert_same(chain, mu2_sgd(0.3, momentum), atol=0)


def test_mu2_sgd_takes_prev_grads():
    tx = mu2_sgd(0.3, linear_momentum())
    params = split(jnp.array(X1))
    state = tx.init(params)
    for z in ZS[:2]:
        grads, prev_grads = grad_fn(params, z), grad_fn(state.x, z)
        one, _ = tx.update(grads, state, params, prev_grads=prev_grads)
        two, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=z)
        np.testing.assert_allclose(join(one), join(two), rtol=0, atol=1e-15)
        params = optax.apply_updates(params, two)


def test_projected_projects_params():
    projection = per_tensor(onto_l2_ball(0.2))
    points, _ = trajectory(projected(optax.sgd(0.5), projection))
    assert np.linalg.norm(points[:, :4], axis=-1).max() <= 0.2 * (1 + 1e-12)
    assert np.abs(points[:, 4]).max() <= 0.2 * (1 + 1e-12)
    x, expected = X1, []
    gradient, project = jax.jit(grad_fn), jax.jit(projection)
    for z in ZS:
        step = split(jnp.array(x - 0.5 * join(gradient(split(jnp.array(x)), z))))
        x = join(project(step))
        expected.append(x)
    np.testing.assert_allclose(points, np.array(expected), rtol=0, atol=1e-14)


def test_onto_l2_ball_around_a_centre_is_the_shifted_ball():
    center = {"a": jnp.array([1.0, 2.0]), "b": jnp.array(3.0)}
    far = {"a": jnp.array([1.0, 6.0]), "b": jnp.array(0.0)}  # at distance 5
    inside = onto_l2_ball(1.0, center)(far)
    np.testing.assert_allclose(inside["a"], [1.0, 2.8], rtol=1e-14)
    np.testing.assert_allclose(inside["b"], 2.4, rtol=1e-14)
    near = onto_l2_ball(6.0, center)(far)
    np.testing.assert_allclose(near["a"], far["a"], rtol=1e-15)


def test_onto_l2_ball_leaves_its_centre():
    params = {"a": jnp.zeros(3)}
    np.testing.assert_array_equal(onto_l2_ball(1.0, params)(params)["a"], np.zeros(3))


@pytest.mark.parametrize("momentum", MOMENTA)
def test_anytime_hardly_ahead_is_anytime_sgd(momentum):
    near = anytime(optax.sgd(0.3), momentum.gamma, ahead=1e-7)  # w is rounded like y, times 10⁷
    assert_same(near, anytime_sgd(0.3, momentum), atol=1e-5)


def test_anytime_ahead_by_a_function_of_the_inner_state_follows_the_equations():
    gamma, rate = polynomial_momentum(2.0).gamma, 0.1
    ahead = lambda state: 0.5 / (1 + optax.tree.get(state, "count"))
    points, state = trajectory(anytime(optax.sgd(lambda count: rate), gamma, ahead=ahead))
    x = w = y = X1
    for t, z in enumerate(ZS, start=1):
        w = w - rate * join(grad_fn(split(jnp.array(y)), jnp.array(z)))
        x = x + float(gamma(t)) * (w - x)
        y = x + 0.5 / (1 + t) * (w - x)
        np.testing.assert_allclose(points[t - 1], y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(join(state.x), x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("momentum", MOMENTA)
def test_anytime_ahead_by_almost_one_is_the_inner_optimizer(momentum):
    sgd, _ = trajectory(optax.sgd(0.3))
    points, _ = trajectory(anytime(optax.sgd(0.3), momentum.gamma, ahead=1 - 1e-14))
    np.testing.assert_allclose(points[-1], sgd[-1], rtol=0, atol=1e-10)


def test_mu2_auto_is_its_composition():
    rate = distance_rate(unit_directions())
    composed = anytime(rate, polynomial_momentum(2.0).gamma, ahead=query_point())
    assert_same(composed, mu2_auto(), atol=0)


def test_distance_rate_of_a_constant_distance_is_one_over_root_t():
    """Steps back and forth lead nowhere: ρ is constant, and so are directions of size one."""
    tx = anytime(distance_rate(optax.identity()), polynomial_momentum(2.0).gamma)
    back_and_forth = (-1.0) ** jnp.arange(100)[:, None] * jnp.ones(3)
    _, state = run(tx, jnp.ones(3), back_and_forth, lambda params, grads: grads)
    np.testing.assert_allclose(state.inner_state.reach, 0.1, rtol=1e-6)
    np.testing.assert_allclose(mu2_optax.found_rate(state), np.sqrt(7) / 3 * 0.1 / 10, rtol=1e-5)
