"""The orthogonal factor against the singular values, which one polynomial maps one by one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mu2_optax._internal.newton_schulz import newton_schulz

MUON, NEVER_ABOVE_ONE = (3.4445, -4.7750, 2.0315), (1.5, -0.5, 0.0)
RNG = np.random.default_rng(0)
factored = jax.jit(newton_schulz, static_argnums=(1, 2))


def exact(matrix, coefficients, rounds):
    u, s, vh = np.linalg.svd(matrix.astype(complex), full_matrices=False)
    a, b, c = coefficients
    for _ in range(rounds):
        s = a * s + b * s**3 + c * s**5
    return (u * s[..., None, :]) @ vh


def unit(matrix):
    return matrix / np.linalg.norm(matrix, axis=(-2, -1), keepdims=True)


# Square ones and those that are a little longer are iterated themselves, the others' Gram matrix.
SHAPES = [(8, 8), (8, 11), (8, 13), (40, 8), (3, 8, 64), (2, 3, 64, 8), (1, 5), (9, 1)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("coefficients", [MUON, NEVER_ABOVE_ONE])
@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
def test_newton_schulz_maps_singular_values(shape, coefficients, rounds):
    for matrix in (RNG.normal(size=shape), RNG.normal(size=shape) + 1j * RNG.normal(size=shape)):
        matrix = unit(matrix)
        dtype = np.complex64 if np.iscomplexobj(matrix) else np.float32
        found = factored(matrix.astype(dtype), coefficients, rounds)
        np.testing.assert_allclose(found, exact(matrix, coefficients, rounds), atol=1e-5)


@pytest.mark.parametrize("shape", [(16, 16), (16, 64)])
@pytest.mark.parametrize("rank", [0, 1, 5])
def test_newton_schulz_keeps_the_kernel(shape, rank):
    matrix = RNG.normal(size=(16, rank)) @ RNG.normal(size=(rank, shape[1]))
    matrix = unit(matrix) if rank else matrix
    found = factored(matrix.astype(np.float32), MUON, 3)
    np.testing.assert_allclose(found, exact(matrix, MUON, 3), atol=2e-5)


def test_newton_schulz_in_bfloat16_is_as_good_on_the_gram_matrix():
    def away(shape):
        matrix = unit(RNG.normal(size=shape))
        found = factored(jnp.asarray(matrix, jnp.bfloat16), MUON, 3)
        assert found.dtype == jnp.bfloat16
        return np.abs(np.asarray(found, float) - exact(matrix, MUON, 3)).max()

    assert away((64, 64)) < 0.03
    assert away((64, 256)) < 0.03


def test_newton_schulz_of_a_batch_is_that_of_its_matrices():
    batch = unit(RNG.normal(size=(3, 8, 64))).astype(np.float32)
    one_by_one = [factored(matrix, MUON, 3) for matrix in batch]
    together = jax.vmap(lambda matrix: newton_schulz(matrix, MUON, 3))(batch)
    np.testing.assert_allclose(factored(batch, MUON, 3), one_by_one, atol=1e-5)
    np.testing.assert_allclose(together, one_by_one, atol=1e-5)
