"""Convex problems on a ball whose loss, gradient, minimum and constants are known exactly.

Every problem lives on the L2 ball of radius R around the origin, starts at the origin and has its
global minimum inside. The constants are exact where ``problem.exact`` says so, and otherwise valid
upper bounds, derived in the comments.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A problem with known constants.

    Attributes:
      name: For tables and legends.
      dim: The number of parameters.
      radius: R, half of the diameter D.
      smoothness: L of every f(.; z).
      gradient_variance: sigma^2, over the whole ball.
      smoothness_variance: sigma_L^2, over the whole ball.
      gradient_bound: G, the largest norm of a stochastic gradient; infinite if there is none.
      grad_fn: The stochastic gradient, a function of (x, z).
      sample: A function from a key to z.
      excess: The exact f(x) - f*.
      gradient: The exact gradient of f.
    """

    name: str
    dim: int
    radius: float
    smoothness: float
    gradient_variance: float
    smoothness_variance: float
    gradient_bound: float
    grad_fn: Callable[[jax.Array, jax.Array], jax.Array]
    sample: Callable[[jax.Array], jax.Array]
    excess: Callable[[jax.Array], jax.Array]
    gradient: Callable[[jax.Array], jax.Array]

    @property
    def diameter(self) -> float:
        """D."""
        return 2 * self.radius


def hard_quadratic(noise: float = 1.0, dim: int = 24, smallest: float = 1e-7) -> Problem:
    """A quadratic that makes the rates tight: eigenvalues log-spaced from 1 down to ``smallest``.

    The minimum is equally far in each coordinate, so that every T finds a coordinate it is too
    short for: with effective time s (about T/L without and T^2/L with acceleration) the coordinate
    with eigenvalue 1/s still costs about D^2/(2 s dim). The gradient noise is Gaussian and
    isotropic with E|z|^2 = noise^2, the same at every x: sigma_L = 0, and both constants are exact.
    """
    eigenvalues = np.logspace(0, np.log10(smallest), dim)
    minimum = np.full(dim, 0.9 / np.sqrt(dim)) * np.where(np.arange(dim) % 2, 1, -1)

    def gradient(x: jax.Array) -> jax.Array:
        return eigenvalues * (x - minimum)

    return Problem(
        name="hard quadratic",
        dim=dim,
        radius=1.0,
        smoothness=1.0,
        gradient_variance=noise**2,
        smoothness_variance=0.0,
        gradient_bound=float("inf"),
        grad_fn=lambda x, z: gradient(x) + z,
        sample=lambda key: noise / np.sqrt(dim) * jax.random.normal(key, (dim,)),
        excess=lambda x: 0.5 * jnp.sum(eigenvalues * (x - minimum) ** 2),
        gradient=gradient,
    )


def least_squares(samples: int = 200, dim: int = 8, seed: int = 0) -> Problem:
    """Least squares on a finite sample, f(x; i) = (a_i x - b_i)^2 / 2 with i uniform."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(samples, dim)) / np.sqrt(dim)
    minimum = 0.6 * rng.normal(size=dim) / np.sqrt(dim)
    residual = 0.5 * rng.normal(size=samples)
    residual -= a @ np.linalg.lstsq(a, residual, rcond=None)[0]  # so that `minimum` is exact
    b = a @ minimum + residual
    radius = 1.0
    hessians = np.einsum("ni,nj->nij", a, a)
    hessian = hessians.mean(0)
    away = hessians - hessian
    # sigma_L^2 = max_v E|(H_i - H) v|^2 exactly, the largest eigenvalue of E(H_i - H)^2
    smoothness_variance = np.linalg.eigvalsh(np.einsum("nij,njk->ik", away, away) / samples)[-1]
    # g_i(x) - g(x) = (g_i(0) - g(0)) + (H_i - H) x, so by Minkowski's inequality on the ball
    # sigma <= (E|g_i(0) - g(0)|^2)^(1/2) + sigma_L R
    at_zero = -a * b[:, None]
    spread = np.sqrt(np.mean(np.sum((at_zero - at_zero.mean(0)) ** 2, 1)))
    sigma = spread + np.sqrt(smoothness_variance) * radius
    norms = np.linalg.norm(a, axis=1)
    return Problem(
        name="least squares",
        dim=dim,
        radius=radius,
        smoothness=float(np.max(norms**2)),
        gradient_variance=float(sigma**2),
        smoothness_variance=float(smoothness_variance),
        gradient_bound=float(np.max(norms * (norms * radius + np.abs(b)))),
        grad_fn=lambda x, i: jnp.asarray(a)[i] * (jnp.asarray(a)[i] @ x - jnp.asarray(b)[i]),
        sample=lambda key: jax.random.randint(key, (), 0, samples),
        excess=lambda x: 0.5 * (x - minimum) @ hessian @ (x - minimum),
        gradient=lambda x: hessian @ (x - minimum),
    )


def logistic(samples: int = 200, dim: int = 8, seed: int = 1) -> Problem:
    """Logistic regression on a finite sample with a quarter of the labels flipped, b_i in {-1, 1}.

    The flips keep the minimum finite; the radius is twice its norm.
    """
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(samples, dim)) / np.sqrt(dim) * 2
    truth = rng.normal(size=dim)
    b = np.sign(a @ truth) * np.where(rng.random(samples) < 0.25, -1, 1)
    minimum = np.zeros(dim)
    for _ in range(50):  # Newton's method; it converges quadratically from the origin here
        s = 1 / (1 + np.exp(b * (a @ minimum)))
        hessian = (a * (s * (1 - s))[:, None]).T @ a / samples
        minimum -= np.linalg.solve(hessian, -(a.T @ (b * s)) / samples)
    lowest = np.mean(np.logaddexp(0, -b * (a @ minimum)))
    squares = np.sum(a**2, 1)

    def margins(x: jax.Array) -> jax.Array:
        return jnp.asarray(b) * (jnp.asarray(a) @ x)

    return Problem(
        name="logistic",
        dim=dim,
        radius=float(2 * np.linalg.norm(minimum)),
        smoothness=float(squares.max() / 4),
        # |g_i| <= |a_i|, so that E|g_i - g|^2 <= E|a_i|^2; the Hessians are s(1 - s) a a^T with
        # s(1 - s) <= 1/4, so that sigma_L^2 <= E|a_i|^4 / 16
        gradient_variance=float(squares.mean()),
        smoothness_variance=float(np.mean(squares**2) / 16),
        gradient_bound=float(np.sqrt(squares.max())),
        grad_fn=lambda x, i: (
            -jnp.asarray(a * b[:, None])[i]
            * jax.nn.sigmoid(-jnp.asarray(b)[i] * (jnp.asarray(a)[i] @ x))
        ),
        sample=lambda key: jax.random.randint(key, (), 0, samples),
        excess=lambda x: jnp.mean(jnp.logaddexp(0.0, -margins(x))) - lowest,
        gradient=lambda x: -jnp.asarray(a * b[:, None]).T @ jax.nn.sigmoid(-margins(x)) / samples,
    )


def batched(problem: Problem, size: int) -> Problem:
    """The same loss, seen through batches of independent samples; L stays that of one sample."""
    return dataclasses.replace(
        problem,
        name=f"{problem.name}, batches of {size}",
        gradient_variance=problem.gradient_variance / size,
        smoothness_variance=problem.smoothness_variance / size,
        grad_fn=lambda x, z: jnp.mean(jax.vmap(problem.grad_fn, (None, 0))(x, z), axis=0),
        sample=lambda key: jax.vmap(problem.sample)(jax.random.split(key, size)),
    )


def noiseless(problem: Problem) -> Problem:
    """The same loss, seen through its exact gradient; L and thereby the learning rates stay."""
    return dataclasses.replace(
        problem,
        name=f"{problem.name}, noiseless",
        gradient_variance=0.0,
        smoothness_variance=0.0,
        grad_fn=lambda x, z: problem.gradient(x),
        sample=lambda key: jnp.zeros(()),
    )
