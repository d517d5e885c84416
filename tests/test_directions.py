"""Directions of size one: their oracle, their invariances, and which leaves may be matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from problems import compiled, run, x64

import mu2_optax

RNG = np.random.default_rng(0)
TARGET = RNG.normal(size=(4, 3))
START = 0.3 * RNG.normal(size=(4, 3))
ROWS = RNG.normal(size=(30, 4, 4))  # features of 30 batches of four
matrices = lambda params: jax.tree.map(lambda p: p.ndim > 1, params)


def grad(x, rows):
    """Of the least squares ½‖rows (x − TARGET)‖²; NumPy or JAX."""
    return rows.T @ (rows @ (x - TARGET))


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("samples", [1, 4])
def test_the_optimizer_with_orthogonal_steps_follows_its_oracle(transposed, samples):
    rows = ROWS[:, :samples]
    flip = np.transpose if transposed else (lambda a: a)
    grad_fn = (lambda x, rows: grad(x.T, rows).T) if transposed else grad
    size = np.sqrt(np.mean(START**2))
    _, expected, rates = reference.mu2_auto(
        grad_fn,
        flip(START).copy(),
        rows,
        lambda w: w,
        size,
        unit=reference.unit_spectral(),
    )
    assert rates[-1] > 2 * min(rates)  # the distance has grown
    with x64():
        tx = mu2_optax.mu2_auto(spectral=True)
        points, _ = run(tx, jnp.array(flip(START)), jnp.array(rows), grad_fn)
    # Each step multiplies the rounding of a small singular value by up to 3.44³.
    np.testing.assert_allclose(points, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("samples", "rank"), [(1, 1 / 8), (4, 4 / 8), (16, 1)])
def test_the_rank_of_a_step_is_told(samples, rank):
    tx = compiled(mu2_optax.unit_directions(spectral=True))
    grads = (RNG.normal(size=(8, samples)) @ RNG.normal(size=(samples, 16))).astype(np.float32)
    _, state = tx.update(grads, tx.init(grads))
    # The iteration leaves singular values between 0.7 and 1.2.
    assert 0.7**2 * rank < state.orthogonal < 1.2**2 * rank


def test_a_step_of_a_low_rank_counts_as_if_it_had_more_of_it():
    tx = compiled(mu2_optax.mu2_auto(spectral=True))

    def rate(samples):
        left, right = RNG.normal(size=(2, samples, 32))
        params = np.ones((32, 32), np.float32)
        _, state = tx.update((left.T @ right).astype(np.float32), tx.init(params), params)
        return mu2_optax.found_rate(state)

    full, low = rate(256), rate(1)
    first_rate = 0.1 * np.sqrt(7) / 3
    # The iteration leaves singular values between 0.7 and 1.2: their mean square is 0.8, not 1.
    np.testing.assert_allclose(full, first_rate / np.sqrt(4), rtol=0.2)
    np.testing.assert_allclose(low, first_rate / np.sqrt(4 * 0.1), rtol=0.05)


def test_a_gradient_of_zero_does_not_count():
    tx = compiled(mu2_optax.unit_directions())
    state = tx.init(np.ones(2, np.float32))
    for g in np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 3.0], [1.0, 0.0]], np.float32):
        u, state = tx.update(g, state)
    np.testing.assert_allclose(1 / state.inverse, [1.0, 3.0], rtol=1e-6)
    np.testing.assert_allclose(u, [1.0, 0.0], rtol=1e-6)


def test_an_outlier_counts_as_ten_times_the_usual():
    tx = compiled(mu2_optax.unit_directions())
    one = np.ones(1, np.float32)
    state = tx.init(one)
    for _ in range(100):
        _, state = tx.update(one, state)
    u, after = tx.update(1e6 * one, state)
    weight = 3 / 103
    np.testing.assert_allclose(1 / after.inverse, np.sqrt(1 + 99 * weight), rtol=1e-5)
    np.testing.assert_allclose(u, 10 / np.sqrt(1 + 99 * weight), rtol=1e-5)


def test_together_all_coordinates_keep_their_proportions():
    tx = compiled(mu2_optax.unit_directions(together=True))
    g = {"a": np.array([1.0, -2.0], np.float32), "b": np.float32(100.0)}
    u, _ = tx.update(g, tx.init(g))
    u = jax.tree.map(np.asarray, u)
    np.testing.assert_allclose(u["a"] / u["b"], g["a"] / g["b"], rtol=1e-6)
    np.testing.assert_allclose(np.mean([*u["a"] ** 2, u["b"] ** 2]), 1, rtol=1e-4)  # XLA's rsqrt


def test_complex_gradients_keep_their_phase():
    tx = compiled(mu2_optax.unit_directions())
    g = jnp.array([3 + 4j, 1e-3j])
    u, _ = tx.update(g, tx.init(g))
    np.testing.assert_allclose(u, [0.6 + 0.8j, 1j], rtol=1e-4)  # XLA's rsqrt


def test_true_alone_marks_every_matrix_and_nothing_else():
    params = {"w": jnp.ones((2, 3)), "column": jnp.ones((3, 1)), "b": jnp.ones(3)}
    state = mu2_optax.unit_directions(spectral=True).init(params)
    shapes = jax.tree.map(jnp.shape, state.inverse)
    assert shapes == {"w": (1, 1), "column": (3, 1), "b": (3,)}


def test_without_matrices_all_steps_are_by_coordinate():
    params = {"w": np.ones(3, np.float32), "b": np.float32(0)}
    grads = {"w": np.array([1.0, -2.0, 3.0], np.float32), "b": np.float32(1)}
    steps = []
    for spectral in (True, {"w": False, "b": False}):
        tx = compiled(mu2_optax.mu2_auto(spectral=spectral))
        state = tx.init(params)
        for _ in range(2):
            updates, state = tx.update(grads, state, params)
        steps.append(updates)
    jax.tree.map(np.testing.assert_array_equal, *steps)
    assert all(m.shape == () for m in jax.tree.leaves(state.inner_state.inner_state.momentum))


def test_a_matrix_keeps_its_vectors_and_loses_its_sizes():
    tx = compiled(mu2_optax.unit_directions(spectral=True))
    u, _ = np.linalg.qr(RNG.normal(size=(6, 3)))
    w, _ = np.linalg.qr(RNG.normal(size=(3, 3)))
    matrix = jnp.array((u * [5.0, 1.0, 0.2]) @ w.T, jnp.float32)
    direction, _ = tx.update(matrix, tx.init(matrix), matrix)
    sizes = np.diag(u.T @ np.asarray(direction) @ w) / np.sqrt(6)
    assert np.all((sizes > 0.6) & (sizes < 1.3))
    leftover = np.asarray(direction) - u @ (u.T @ np.asarray(direction) @ w) @ w.T
    np.testing.assert_allclose(leftover, 0, atol=1e-4)


@pytest.mark.parametrize("scale", [1e-12, 1e15])
def test_the_scale_of_a_matrix_does_not_matter_and_zero_stays_zero(scale):
    tx = compiled(mu2_optax.unit_directions(spectral=True))
    g = TARGET.astype(np.float32)
    plain, _ = tx.update(g, tx.init(g), g)
    scaled, _ = tx.update(np.float32(scale) * g, tx.init(g), g)
    np.testing.assert_allclose(scaled, plain, rtol=1e-3, atol=1e-5)
    zero, _ = tx.update(0 * g, tx.init(g), g)
    np.testing.assert_array_equal(zero, 0)


def test_a_leaf_of_many_matrices_is_as_each_of_them():
    stack = RNG.normal(size=(5, 4, 3)).astype(np.float32)
    tx = compiled(mu2_optax.unit_directions(spectral=True))
    together, _ = tx.update(stack, tx.init(stack), stack)
    for one, whole in zip(stack, together, strict=True):
        alone, _ = tx.update(one, tx.init(one), one)
        np.testing.assert_allclose(whole, alone, rtol=1e-4, atol=1e-5)


def test_the_leaves_that_are_not_marked_are_scaled_by_coordinate():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    grads = {"w": jnp.array([[1.0, 2.0, 3.0], [4.0, 5.0, 7.0]]), "b": jnp.array([1e-3, -2.0, 0.0])}
    mixed = compiled(mu2_optax.unit_directions({"w": True, "b": False}))
    plain = compiled(mu2_optax.unit_directions())
    (got, _), (want, _) = (tx.update(grads, tx.init(params), params) for tx in (mixed, plain))
    np.testing.assert_allclose(got["b"], want["b"])
    assert not np.allclose(got["w"], want["w"])
    by_rule = compiled(mu2_optax.unit_directions(matrices))
    same, _ = by_rule.update(grads, by_rule.init(params), params)
    jax.tree.map(np.testing.assert_array_equal, same, got)


def test_marks_that_do_not_fit_are_refused():
    params = {"w": jnp.ones((2, 3)), "b": jnp.ones(3)}
    with pytest.raises(ValueError, match=r"`spectral` must mark matrices, got True.*shape \(3,\)"):
        mu2_optax.mu2_auto(spectral={"w": True, "b": True}).init(params)
    with pytest.raises(ValueError, match="`spectral` must be a tree of booleans like params"):
        mu2_optax.mu2_auto(spectral={"w": True}).init(params)
    with pytest.raises(TypeError, match="`spectral` must hold the booleans"):
        mu2_optax.mu2_auto(spectral={"w": 1, "b": 0}).init(params)


def test_a_known_matrix_is_found_from_noisy_gradients():
    tx = mu2_optax.mu2_auto(spectral=True)

    def noisy(x, sample):
        rows, noise = sample
        return grad(x, rows) + noise

    start = jnp.array(START, jnp.float32)
    keys = jax.random.split(jax.random.key(0))
    samples = jax.random.normal(keys[0], (2000, 4, 4)), jax.random.normal(keys[1], (2000, 4, 3))
    points, _ = run(tx, start, samples, noisy)
    # The best estimate from 2000 such samples has an error of about √(12/(4·4·2000)) = 0.02; with
    # its constant rate the optimizer has some times more, 0.14 in this run.
    assert np.linalg.norm(points[-1] - TARGET) < 0.2 < np.linalg.norm(START - TARGET) / 5
