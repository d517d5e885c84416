"""What ``inner`` may be: Adam without its momentum, and weight decay at the point that it moves."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
from problems import join, numpy_grad, run, samples, split, x64

import mu2_optax
from mu2_optax import fixed_momentum, mu2, mu2_adam, mu2_sgd

T = 200
X1 = np.array([0.3, -0.2, 0.1, 0.4, -0.3])
ZS = samples(T)
WEIGHTS = reference.fixed(0.1, 0.9, T)
MATRIX = np.array([1, 1, 1, 1, 0])  # where the mask below is true
MASK = {"matrix": True, "rest": [False]}


def follows(tx, step):
    """Whether the optimizer's params are those of the NumPy loop, in double precision."""
    expected = reference.mu2(numpy_grad, X1, ZS, step, WEIGHTS)
    assert np.linalg.norm(expected[-1] - X1) > 0.1  # otherwise agreeing would prove nothing
    with x64():
        points, _ = run(tx(), split(jnp.array(X1)), jnp.array(ZS))
        np.testing.assert_allclose(join(points), expected, rtol=0, atol=1e-12)


# Adam


@pytest.mark.parametrize(("b2", "eps"), [(0.999, 1e-8), (0.9, 1e-2)])
def test_mu2_adam_follows_its_oracle(b2, eps):
    follows(lambda: mu2_adam(0.05, b2=b2, eps=eps), reference.adamw_step(0.05, b2, eps, 0.0))


def test_mu2_adam_with_decay_follows_its_oracle():
    step = reference.adamw_step(0.05, 0.999, 1e-8, 0.3)
    follows(lambda: mu2_adam(0.05, weight_decay=0.3), step)


def test_mu2_adam_is_mu2_of_adam_without_its_first_moment():
    params = split(jnp.array(X1, jnp.float32))
    zs = jnp.array(ZS, jnp.float32)
    ours, state = run(mu2_adam(0.05), params, zs)
    adam, larger = run(mu2(optax.adam(0.05, b1=0.0)), params, zs)
    np.testing.assert_allclose(join(ours), join(adam), rtol=0, atol=1e-6)
    numbers = lambda tree: sum(leaf.size for leaf in jax.tree.leaves(tree))
    assert numbers(larger) - numbers(state) == 5


def rosenbrock(x, batch):
    del batch
    return 100.0 * (x[1] - x[0] ** 2) ** 2 + (1.0 - x[0]) ** 2


def distance_from_the_minimum(tx):
    points, _ = run(tx, jnp.zeros(2), jnp.zeros(10_000), jax.grad(rosenbrock))
    return float(jnp.linalg.norm(points[-1] - 1.0))


@pytest.mark.filterwarnings("ignore:`inner` should have no momentum")
def test_mu2_adam_solves_what_mu2_of_adam_does_not():
    """Optax's own test problem, at two rates."""
    for rate in (3e-3, 1e-2):
        right = distance_from_the_minimum(mu2_adam(rate))
        assert right < 0.05
        assert distance_from_the_minimum(mu2(optax.adam(rate))) > 4 * right


# A momentum that can be seen

WITH_MOMENTUM = {
    "adam": lambda rate=0.1: optax.adam(rate),
    "adamw": lambda rate=0.1: optax.adamw(rate),
    "sgd": lambda rate=0.1: optax.sgd(rate, momentum=0.9),
    "lion": lambda rate=0.1: optax.lion(rate),
    "a chain": lambda rate=0.1: optax.chain(optax.clip(1.0), optax.trace(0.9), optax.scale(-rate)),
    "injected": lambda rate=0.1: optax.inject_hyperparams(optax.adam)(rate),
    "a schedule that starts at 0": lambda rate=0.1: optax.adam(lambda count: rate * count),
    "prodigy": lambda rate=0.1: optax.contrib.prodigy(rate),
}
WITHOUT_MOMENTUM = {
    "sgd": optax.sgd(0.1),
    "adam": optax.adam(0.1, b1=0.0),
    "rmsprop": optax.rmsprop(0.1),
    "adagrad": optax.adagrad(0.1),
    "noise": optax.chain(optax.add_noise(0.1, 0.5, key=0), optax.sgd(0.1)),
    "decay": optax.chain(optax.adamw(0.1, b1=0.0), optax.add_decayed_weights(-0.1)),
    "prodigy": optax.contrib.prodigy(betas=(0.0, 0.999)),
    "what cannot run on a vector": optax.partition({"a": optax.adam(0.1)}, {"x": "a"}),
    "what needs extra args": optax.polyak_sgd(),
    "frank_wolfe": mu2_optax.frank_wolfe(mu2_optax.lmo.l2_ball(1.0)),
}


@pytest.mark.parametrize("make", WITH_MOMENTUM.values(), ids=WITH_MOMENTUM)
def test_mu2_warns_of_a_momentum_of_inner(make):
    with pytest.warns(UserWarning, match=r"`inner` should have no momentum.*`mu2_adam`") as seen:
        mu2(make())
    assert [warning.filename for warning in seen] == [__file__]
    with pytest.warns(UserWarning, match="`inner` should have no momentum"):
        jax.jit(lambda: (mu2(make()), jnp.zeros([]))[1])()


@pytest.mark.parametrize("inner", WITHOUT_MOMENTUM.values(), ids=WITHOUT_MOMENTUM)
def test_mu2_does_not_warn_of_inner_without_momentum(inner):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mu2(inner)


def test_mu2_does_not_read_a_traced_rate_of_inner():
    make = lambda rate: mu2(optax.adam(rate)).init(jnp.ones(2)).w
    assert jax.jit(jax.vmap(make))(jnp.array([0.1, 0.2])).shape == (2, 2)


# Weight decay

ETA, LAMBDA = 0.3, 0.2


def schedule(count):
    return LAMBDA / (1 + count)


def test_weight_decay_acts_on_w_times_the_rate():
    step = lambda t, d, w: w - ETA * (d + LAMBDA * w)
    follows(lambda: mu2_sgd(ETA, weight_decay=LAMBDA), step)


def test_weight_decay_may_be_a_schedule_and_masked():
    step = lambda t, d, w: w - ETA * (d + LAMBDA / t * MATRIX * w)
    follows(lambda: mu2_sgd(ETA, weight_decay=schedule, weight_decay_mask=MASK), step)
    follows(
        lambda: mu2_sgd(ETA, weight_decay=schedule, weight_decay_mask=lambda params: MASK), step
    )


def test_weight_decay_is_weighted_like_the_step():
    linear = mu2_optax.linear_momentum()
    weights = reference.linear(0, T)
    step = lambda t, d, w: w - 1e-3 * t * (d + LAMBDA * w)
    expected = reference.mu2(numpy_grad, X1, ZS, step, weights)
    with x64():
        tx = mu2_sgd(1e-3, linear, weighted_steps=True, weight_decay=LAMBDA)
        points, _ = run(tx, split(jnp.array(X1)), jnp.array(ZS))
        np.testing.assert_allclose(join(points), expected, rtol=0, atol=1e-12)


def test_weight_decay_inside_inner_is_that_of_mu2_sgd():
    step = lambda t, d, w: w - ETA * (d + LAMBDA / t * MATRIX * w)
    decay = lambda: optax.add_decayed_weights(schedule, MASK)
    follows(lambda: mu2(optax.chain(decay(), optax.sgd(ETA))), step)


def test_weight_decay_comes_before_the_projection():
    ball = mu2_optax.onto_l2_ball(0.2)
    far = lambda params, z: jax.tree.map(lambda p: -100.0 * jnp.ones_like(p), params)
    _, state = run(mu2_sgd(1.0, weight_decay=0.5, projection=ball), split(jnp.array(X1)), ZS, far)
    np.testing.assert_allclose(np.linalg.norm(join(state.w)), 0.2, rtol=1e-6)


def test_weight_decay_must_be_finite_and_not_negative():
    with pytest.raises(ValueError, match=r"`weight_decay` must be finite and not negative, got -1"):
        mu2_sgd(0.1, weight_decay=-1.0)
    with pytest.raises(ValueError, match=r"`weight_decay` must be finite and not negative, got -1"):
        mu2_adam(0.1, fixed_momentum(), weight_decay=-1.0)
