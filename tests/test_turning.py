"""Noise or curvature: the correlation of directions, what follows it, and explosions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import compiled

from mu2_optax import eval_params, found_rate, mu2_auto

CURVATURES = jnp.array([1.0, 3.0, 10.0])


def run(tx, grad, noise, start=None):
    """The params, the state and the rates of a run, one step for each row of noise."""
    start = jnp.zeros(noise.shape[1:]) if start is None else start

    def step(carry, z):
        params, state = carry
        updates, state = tx.update(grad(params, z), state, params)
        return (optax.apply_updates(params, updates), state), (state.ahead, found_rate(state))

    whole = jax.jit(lambda z: jax.lax.scan(step, (start, tx.init(start)), z))
    (params, state), (aheads, rates) = whole(noise)
    return params, state, np.asarray(aheads), np.asarray(rates)


def normal(*shape):
    return jax.random.normal(jax.random.key(0), shape)


def towards_three(params, z):
    return CURVATURES * (params - 3) + z


@pytest.mark.parametrize("spectral", [False, True])
def test_query_point_stays_ahead_under_noise_and_comes_back_without(spectral):
    matrix = lambda params, z: jnp.linspace(0.5, 2, 12).reshape(4, 3) * (params - 3) + z
    aheads = []
    for noise in (0.0, 300.0):
        tx = mu2_auto(spectral=spectral)
        *_, found, _ = run(tx, matrix, noise * normal(1000, 4, 3), jnp.ones((4, 3)))
        aheads.append(found[-1])
    assert aheads[0] < 0.1 < 0.2 < aheads[1] <= 0.3


def test_query_point_is_at_least_a_third_of_the_weight_of_the_iterate():
    back_and_forth = (-1.0) ** jnp.arange(3000)[:, None] * jnp.ones(3)
    *_, aheads, _ = run(mu2_auto(), lambda params, z: z, back_and_forth)
    np.testing.assert_allclose(aheads[-1], 1 / 3003, rtol=1e-5)


def test_without_noise_the_minimum_is_found_to_many_digits():
    params, state, *_ = run(mu2_auto(), towards_three, jnp.zeros((5000, 3)))
    assert np.abs(eval_params(state, params) - 3).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("spectral", [False, True])
@pytest.mark.parametrize("correlation", [-0.8, -0.4, 0.0, 0.4, 0.8])
def test_noise_that_is_correlated_moves_the_rate_by_what_it_walks(correlation, spectral):
    """Noise with a correlation of φ walks (1 + φ)/(1 − φ) times as far, in squares.

    By coordinate that is not counted, so from φ = 0 on the rate grows with φ, by a power of the
    steps at .8; orthogonal steps count what they measure, up to .7.
    """
    shape, length = (10, 10), 10_000

    def noise(key):
        step = lambda z, e: (z := correlation * z + (1 - correlation**2) ** 0.5 * e,) * 2
        return jax.lax.scan(step, jnp.zeros(shape), jax.random.normal(key, (length, *shape)))[1]

    def last_over_first(key):
        tx = mu2_auto(spectral=spectral)
        *_, rates = run_rates(tx, noise(key), shape)
        return rates[-1] / rates[0]

    def run_rates(tx, z, shape):
        def step(carry, z):
            params, state = carry
            updates, state = tx.update(z, state, params)
            return (optax.apply_updates(params, updates), state), found_rate(state)

        start = jnp.ones(shape)
        return jax.lax.scan(step, (start, tx.init(start)), z)

    grown = jax.jit(lambda keys: jax.lax.map(jax.vmap(last_over_first), keys))(
        jax.random.split(jax.random.key(0), (8, 8))
    )
    print(correlation, spectral, np.median(grown), np.min(grown), np.max(grown))


@pytest.mark.parametrize("options", [{}, {"spectral": True}, {"weight_decay": 0.1}])
def test_after_the_known_number_of_steps_the_params_are_the_average(options):
    start, noise = jnp.ones((4, 3)), normal(400, 4, 3)
    matrix = lambda params, z: params - 3 + z
    for steps, same in ((400, 320), (500, 400)):
        tx, plain = (mu2_auto(**more, **options) for more in ({"steps": steps}, {}))
        *_, aheads, rates = run(tx, matrix, noise, start)
        *_, usual, usual_rates = run(plain, matrix, noise, start)
        np.testing.assert_allclose(aheads[:same], usual[:same], rtol=1e-5)
        np.testing.assert_allclose(rates[:same], usual_rates[:same], rtol=1e-5)
    params, state, aheads, _ = run(mu2_auto(steps=400, **options), matrix, noise, start)
    assert aheads[-1] == 0
    np.testing.assert_array_equal(params, eval_params(state, params))


def test_a_run_goes_on_after_the_known_number_of_steps():
    noise = normal(1200, 3)
    params, state, aheads, _ = run(mu2_auto(steps=300), towards_three, noise)
    *_, usual, _ = run(mu2_auto(), towards_three, noise)
    assert aheads[299] == 0
    assert aheads[300] > 0.9 * usual[300]
    assert np.abs(eval_params(state, params) - 3).max() < 0.1
    assert np.isfinite(params).all()


def test_params_that_are_loaded_after_the_known_number_of_steps_stay_there():
    _, state, *_ = run(mu2_auto(steps=300), towards_three, normal(300, 3))
    tx, loaded = compiled(mu2_auto(steps=300)), jnp.array([10.0, 20.0, 30.0])
    updates, state = tx.update(jnp.ones(3), state, loaded)
    np.testing.assert_allclose(eval_params(state, loaded + updates), loaded, atol=0.5)


def test_the_known_number_of_steps_works_for_narrow_params():
    tx, start = mu2_auto(steps=300), jnp.ones(3, jnp.bfloat16)
    grad = lambda params, z: towards_three(params.astype(float), z).astype(jnp.bfloat16)
    params, state, *_ = run(tx, grad, normal(300, 3), start)
    np.testing.assert_array_equal(params, eval_params(state, params).astype(jnp.bfloat16))


@pytest.mark.parametrize("steps", [0, -3, 2.5, np.nan])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    with pytest.raises(ValueError, match="`steps` must be a whole number of at least 1, got"):
        mu2_auto(steps=steps)


@functools.cache
def counts():
    """Batches of Poisson regression whose columns differ by four powers of ten."""
    keys = jax.random.split(jax.random.key(0), 3)
    x, truth = jax.random.normal(keys[0], (2000, 32, 20)), jax.random.normal(keys[1], (20,))
    y = jax.random.poisson(keys[2], jnp.exp(0.5 + x @ truth / 20**0.5)).astype(float)
    return x * 10 ** jnp.linspace(-2, 2, 20), y


def test_a_loss_that_explodes_is_learned_as_with_the_best_rate_of_adam():
    x, y = counts()

    def loss(params, batch):
        height = batch[0] @ params["w"] + params["b"]
        return jnp.mean(jnp.exp(height) - batch[1] * height)

    def ends(tx, read):
        start = {"w": jnp.zeros(20), "b": jnp.zeros(())}

        def step(carry, batch):
            params, state = carry
            updates, state = tx.update(jax.grad(loss)(params, batch), state, params)
            return (optax.apply_updates(params, updates), state), None

        params, state = jax.lax.scan(step, (start, tx.init(start)), (x, y))[0]
        return loss(read(state, params), (x[-500:].reshape(-1, 20), y[-500:].reshape(-1)))

    ours = jax.jit(lambda: ends(mu2_auto(), eval_params))()
    adam = jax.jit(jax.vmap(lambda rate: ends(optax.adam(rate), lambda state, params: params)))
    losses = np.asarray(adam(jnp.array([1e-3, 3e-3, 1e-2, 3e-2])))
    print(ours, losses)
    assert ours < np.nanmin(losses) + 0.05 * np.abs(np.nanmin(losses))


def test_a_heavy_tail_is_no_explosion():
    """Gradients of few coordinates, or of single steps, that are a thousand times as long."""
    noise = normal(1000, 50)
    _, _, _, usual = run(mu2_auto(), lambda params, z: z, noise)
    few = noise.at[500:510, :2].multiply(1000)
    once = noise.at[500].multiply(30)
    for spoiled, least in ((few, 0.8), (once, 0.6)):
        _, _, _, rates = run(mu2_auto(), lambda params, z: z, spoiled)
        assert rates[-1] > least * usual[-1]
    _, _, _, rates = run(mu2_auto(), lambda params, z: z, noise.at[500:510].multiply(1000))
    assert rates[510] < 0.5 * usual[510]
