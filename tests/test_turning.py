"""Noise or curvature: the correlation of directions, what follows it, and explosions."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from problems import compiled

import mu2_optax
from mu2_optax import eval_params, found_rate, mu2_auto

CURVATURES = jnp.array([1.0, 3.0, 10.0])


def run(tx, grad, noise, start=None):
    """The params, the state and the rates of a run, one step for each row of noise."""
    start = jnp.zeros(3) if start is None else start

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
    noise = normal(1000, 8, 3)
    back_and_forth = (-1.0) ** jnp.arange(1000)[:, None, None] * noise[0]
    noisy, back = (
        run(mu2_auto(spectral=spectral), lambda params, z: z, batches, jnp.ones((8, 3)))[2][100:]
        for batches in (noise, back_and_forth)
    )
    assert noisy.min() > 0.2
    assert back.max() < 0.1


def test_query_point_comes_back_where_curvature_limits_the_run():
    features, truth = normal(16, 8), normal(8)
    grad = lambda params, z: features.T @ (features @ (params - truth)) / 16
    *_, aheads, _ = run(mu2_auto(), grad, jnp.zeros(1000), jnp.ones(8))
    assert aheads[-1] < 0.03


def test_query_point_around_other_directions_is_refused():
    for inner in (mu2_optax.distance_rate(optax.identity()), optax.sgd(0.1)):
        tx = mu2_optax.anytime(inner, 0.1, ahead=mu2_optax.query_point())
        with pytest.raises(TypeError, match="`query_point` must be the `ahead` of an `anytime` "):
            tx.init(jnp.ones(3))


def test_query_point_is_at_least_a_third_of_the_weight_of_the_iterate():
    back_and_forth = (-1.0) ** jnp.arange(3000)[:, None] * jnp.ones(3)
    *_, aheads, _ = run(mu2_auto(), lambda params, z: z, back_and_forth)
    assert 1 / 3003 < aheads[-1] < 0.3 * 61**-1.45
    *_, aheads, _ = run(mu2_auto(), lambda params, z: z, jnp.tile(back_and_forth, (10, 1)))
    np.testing.assert_allclose(aheads[-1], 1 / 30_003, rtol=1e-5)


def test_without_noise_the_minimum_is_found_to_many_digits():
    params, state, *_ = run(mu2_auto(), towards_three, jnp.zeros((5000, 3)))
    assert np.abs(eval_params(state, params) - 3).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("spectral", [False, True])
@pytest.mark.parametrize("correlation", [-0.8, -0.4, 0.0, 0.4, 0.8])
def test_noise_that_is_correlated_hardly_raises_the_rate(correlation, spectral):
    """In 64 runs of 10⁴ steps it ends at about the first rate, or below, with three exceptions.

    Noise of 0.8 walks further than the 0.7 that count: a factor of 14, by coordinate and with the
    momentum of orthogonal steps. And that momentum on noise of -0.4 walks further than the
    correlation of neighbours alone can tell: a factor of 8.
    """
    shape, length = (10, 10), 10_000

    def last_over_first(key):
        def noise(z, e):
            z = correlation * z + (1 - correlation**2) ** 0.5 * e
            return z, z

        def step(carry, z):
            params, state = carry
            updates, state = tx.update(z, state, params)
            return (optax.apply_updates(params, updates), state), found_rate(state)

        tx, start = mu2_auto(spectral=spectral), jnp.ones(shape)
        z = jax.lax.scan(noise, start, jax.random.normal(key, (length, *shape)))[1]
        rates = jax.lax.scan(step, (start, tx.init(start)), z)[1]
        return rates[-1] / rates[0]

    keys = jax.random.split(jax.random.key(0), (8, 8))
    grown = np.asarray(jax.jit(lambda keys: jax.lax.map(jax.vmap(last_over_first), keys))(keys))
    exceptions = {(0.8, False): 30, (0.8, True): 30, (-0.4, True): 20}
    assert 0.01 < np.median(grown) < exceptions.get((correlation, spectral), 2)
    assert np.isfinite(grown).all()


@pytest.mark.parametrize("options", [{}, {"spectral": True}, {"weight_decay": 0.1}])
def test_after_the_known_number_of_steps_the_params_are_the_average(options):
    start, noise = jnp.ones((4, 3)), normal(400, 4, 3)
    matrix = lambda params, z: params - 3 + z
    *_, usual, usual_rates = run(mu2_auto(**options), matrix, noise, start)
    for steps, same in ((400, 399), (500, 400)):
        *_, aheads, rates = run(mu2_auto(steps=steps, **options), matrix, noise, start)
        np.testing.assert_array_equal(aheads[:same], usual[:same])
        np.testing.assert_array_equal(rates, usual_rates)
    params, state, aheads, _ = run(mu2_auto(steps=400, **options), matrix, noise, start)
    assert aheads[-1] == 0
    np.testing.assert_array_equal(params, eval_params(state, params))


def test_a_run_goes_on_after_the_known_number_of_steps():
    noise = normal(1200, 3)
    params, state, aheads, _ = run(mu2_auto(steps=300), towards_three, noise)
    *_, usual, _ = run(mu2_auto(), towards_three, noise)
    assert aheads[299] == 0
    assert aheads[300] > 0.9 * usual[300]
    assert np.abs(eval_params(state, params) - 3).max() < 0.3
    assert np.isfinite(params).all()


def test_params_that_are_loaded_after_the_known_number_of_steps_stay_there():
    _, state, *_ = run(mu2_auto(steps=300), towards_three, normal(300, 3))
    tx, loaded = compiled(mu2_auto(steps=300)), jnp.full(3, 4.0)
    updates, state = tx.update(jnp.ones(3), state, loaded)
    assert (eval_params(state, loaded + updates) > 3.7).all()  # and not at 3, where it was


def test_the_known_number_of_steps_works_for_narrow_params():
    tx, start = mu2_auto(steps=300), jnp.ones(3, jnp.bfloat16)
    grad = lambda params, z: towards_three(params.astype(float), z).astype(jnp.bfloat16)
    params, state, *_ = run(tx, grad, normal(300, 3), start)
    np.testing.assert_array_equal(params, eval_params(state, params).astype(jnp.bfloat16))


@pytest.mark.parametrize("steps", [0, -3, 2.5, np.nan])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    with pytest.raises(ValueError, match="`steps` must be a whole number of at least 1, got"):
        mu2_auto(steps=steps)


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
    assert ours < np.nanmin(losses) + 0.05 * np.abs(np.nanmin(losses))


def test_a_heavy_tail_is_no_explosion():
    """Gradients of few coordinates, or of single steps, that are a thousand times as long."""
    noise = normal(1000, 50)
    _, _, _, usual = run(mu2_auto(), lambda params, z: z, noise, jnp.ones(50))
    few = noise.at[500:510, :2].multiply(1000)
    once = noise.at[500].multiply(30)
    for spoiled, least in ((few, 0.8), (once, 0.6)):
        _, _, _, rates = run(mu2_auto(), lambda params, z: z, spoiled, jnp.ones(50))
        assert rates[-1] > least * usual[-1]
    _, _, _, rates = run(
        mu2_auto(), lambda params, z: z, noise.at[500:510].multiply(1000), jnp.ones(50)
    )
    assert rates[510] < 0.5 * usual[510]
