"""Newton–Schulz: the orthogonal factor of matrices, by matrix products alone."""

import jax
import jax.numpy as jnp

_UNROLLED = 5  # rounds that are compiled as one


def newton_schulz(
    matrix: jax.Array, coefficients: tuple[float, float, float], rounds: int
) -> jax.Array:
    r"""Nearly :math:`U W^H`, for matrices :math:`U \Sigma W^H` with a Frobenius norm of one.

    .. math:: X \leftarrow a X + (b\,G + c\,G^2)\,X, \qquad G = X X^H

    The matrices are the last two axes, real or complex; zero stays zero. The coefficients (a, b, c)
    decide how fast the singular values come close to one, and how close.
    """
    a, b, c = coefficients
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = jnp.swapaxes(matrix, -1, -2) if tall else matrix  # the smaller Gram matrix

    def iterate(_: int, x: jax.Array) -> jax.Array:
        gram = x @ jnp.conj(jnp.swapaxes(x, -1, -2))
        return a * x + (b * gram + c * gram @ gram if c else b * gram) @ x

    x = jax.lax.fori_loop(0, rounds, iterate, x, unroll=min(rounds, _UNROLLED))
    return jnp.swapaxes(x, -1, -2) if tall else x
