"""Newton–Schulz: the orthogonal factor of matrices, by matrix products alone."""

import jax
import jax.numpy as jnp

_UNROLLED = 5  # rounds that are compiled as one
_LONG = 1.5  # times the short side: from there on, a few rounds are cheaper on the Gram matrix
_FEW = 3  # in each round on the Gram matrix, the rounding of its zeros grows up to twelvefold


def newton_schulz(
    matrix: jax.Array, coefficients: tuple[float, float, float], rounds: int
) -> jax.Array:
    r"""Nearly :math:`U W^H`, for matrices :math:`U \Sigma W^H` with a Frobenius norm of one.

    .. math:: X \leftarrow a X + (b\,G + c\,G^2)\,X, \qquad G = X X^H

    The matrices are the last two axes, real or complex; zero stays zero. The coefficients (a, b, c)
    decide how fast the singular values come close to one, and how close.
    """
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = jnp.swapaxes(matrix, -1, -2) if tall else matrix  # the smaller Gram matrix
    short, long = x.shape[-2:]
    if rounds <= _FEW and long > _LONG * short:
        x = _on_gram_matrix(x, coefficients, rounds)
    else:
        iterate = lambda _, x: _next(x, coefficients)
        x = jax.lax.fori_loop(0, rounds, iterate, x, unroll=min(rounds, _UNROLLED))
    return jnp.swapaxes(x, -1, -2) if tall else x


def _next(x: jax.Array, coefficients: tuple[float, float, float]) -> jax.Array:
    a, b, c = coefficients
    gram = _gram_matrix(x)
    return a * x + (b * gram + c * gram @ gram if c else b * gram) @ x


def _on_gram_matrix(
    x: jax.Array, coefficients: tuple[float, float, float], rounds: int
) -> jax.Array:
    r"""The same: :math:`P_k \cdots P_1 X`, where :math:`P = a + b\,G + c\,G^2` commutes with G.

    Only the first and the last of the products have the long side: :math:`G \leftarrow P G P`.
    """
    a, b, c = coefficients
    one = jnp.eye(x.shape[-2], dtype=x.dtype)
    gram = _gram_matrix(x)
    product = step = a * one + b * gram + c * gram @ gram
    for _ in range(rounds - 1):
        gram = step @ gram @ step
        step = a * one + b * gram + c * gram @ gram
        product = step @ product
    return product @ x


def _gram_matrix(x: jax.Array) -> jax.Array:
    return x @ jnp.conj(jnp.swapaxes(x, -1, -2))
