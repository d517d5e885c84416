r"""The constants of a problem, measured on data: smoothness and noise.

Each is measured at the given params: for a bound over a whole set, take the largest over several
points of it. All go through the samples one after another, with memory for one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from mu2_optax._gradients.microbatches import scan_microbatches
from mu2_optax._internal.checks import check_callable, check_iterations
from mu2_optax._internal.tree_checks import check_gradient, check_leading_axis, check_params
from mu2_optax._internal.trees import (
    add,
    cast_like,
    inner_product,
    inverse_or_zero,
    rescaled,
    scaled,
    widened,
)
from mu2_optax._internal.types import Batch, GradFn, Params


def measure_smoothness(
    grad_fn: GradFn, params: Params, batch: Batch, key: jax.Array, *, iterations: int = 100
) -> jax.Array:
    r"""The smoothness L of the loss on one batch: the largest curvature at ``params``.

    .. math:: v_{k+1} = \frac{\nabla^2 f(x; z)\,v_k}{\|\nabla^2 f(x; z)\,v_k\|}, \qquad
      L \approx \|\nabla^2 f(x; z)\,v_k\|

    Power iteration on Hessian-vector products, each at the cost of two gradients. The result
    approaches :math:`\|\nabla^2 f(x; z)\|` from below, so that a learning rate made from it may be
    a little too large: divide it by 2 or increase ``iterations`` if that matters. The theorems ask
    for the L of every single :math:`f(\cdot; z)`: see :func:`measure_sample_smoothness`.

    Args:
      grad_fn: A function of (params, batch).
      params: Where the curvature is measured.
      batch: One batch, as a training step sees it.
      key: A key for the first direction.
      iterations: The number of Hessian-vector products.

    Returns:
      L, a scalar.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax
      >>> from mu2_optax import theory
      >>> loss = lambda x, z: 0.5 * jnp.mean((z @ x) ** 2)
      >>> batch = jnp.array([[2.0, 0.0], [0.0, 1.0]])
      >>> L = theory.measure_smoothness(jax.grad(loss), jnp.ones(2), batch, jax.random.key(0))
      >>> round(float(L), 4)
      2.0
      >>> rate = theory.max_learning_rate(smoothness=L, steps=1000, method="mu2_extra_sgd")
      >>> tx = mu2_optax.mu2_extra_sgd(rate)

    References:
      Pearlmutter, `Fast Exact Multiplication by the Hessian
      <https://doi.org/10.1162/neco.1994.6.1.147>`_, 1994
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")
    check_params(params)
    check_iterations("iterations", iterations)
    x = widened(params)
    return _power(lambda v: _hessian_product(grad_fn, v, x, batch), x, key, iterations)


def measure_sample_smoothness(
    grad_fn: GradFn, params: Params, samples: Batch, key: jax.Array, *, iterations: int = 100
) -> jax.Array:
    r"""The smoothness L that the theorems ask for: the largest over the samples.

    .. math:: L = \max_i \|\nabla^2 f(x; z_i)\|

    Args:
      grad_fn: A function of (params, sample).
      params: Where the curvature is measured.
      samples: Samples stacked on a leading axis, each what one training step sees.
      key: A key for the first direction.
      iterations: The number of Hessian-vector products for each sample.

    Returns:
      L, a scalar.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from mu2_optax import theory
      >>> grad_fn = jax.grad(lambda x, z: 0.5 * (z @ x) ** 2)
      >>> samples, key = jnp.array([[2.0, 0.0], [0.0, 3.0]]), jax.random.key(0)
      >>> round(float(theory.measure_sample_smoothness(grad_fn, jnp.ones(2), samples, key)), 4)
      9.0

    References:
      Dahan and Levy: expectation over smooth functions
    """
    _check_samples(samples, 1)

    def one(sample: Any) -> jax.Array:
        return measure_smoothness(grad_fn, params, sample, key, iterations=iterations)

    return jnp.max(jax.lax.map(one, samples))


def measure_gradient_variance(grad_fn: GradFn, params: Params, samples: Batch) -> jax.Array:
    r"""The variance of the stochastic gradient at ``params``, estimated without bias.

    .. math:: \sigma^2 \approx \frac{1}{n - 1} \sum_{i=1}^n \|\nabla f(x; z_i) - \bar g\|^2

    Args:
      grad_fn: A function of (params, sample).
      params: Where the gradients are taken.
      samples: n ≥ 2 samples stacked on a leading axis, each what one training step sees: for
        batches of b examples, stack batches.

    Returns:
      σ², a scalar.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from mu2_optax import theory
      >>> grad_fn = jax.grad(lambda x, z: 0.5 * jnp.sum((x - z) ** 2))
      >>> samples = jnp.array([[1.0], [2.0], [3.0]])
      >>> float(theory.measure_gradient_variance(grad_fn, jnp.zeros(1), samples))
      1.0

    References:
      Welford, `Note on a Method for Calculating Corrected Sums of Squares and Products
      <https://doi.org/10.1080/00401706.1962.10490022>`_, 1962
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")
    check_params(params)
    count = _check_samples(samples, 2)
    x = widened(params)

    def add_sample(carry: tuple[Any, Any, Any], sample: Any) -> tuple[tuple[Any, Any, Any], None]:
        k, mean, total = carry
        grads = grad_fn(x, sample)
        check_gradient("grad_fn(params, sample)", grads, params)
        grads = cast_like(grads, x)
        away = optax.tree.sub(grads, mean)
        mean = add(mean, scaled(1 / k, away))
        return (k + 1, mean, total + inner_product(away, optax.tree.sub(grads, mean))), None

    zero = jnp.zeros([], float)
    start = (zero + 1, optax.tree.zeros_like(x), zero)
    (_, _, total), _ = jax.lax.scan(add_sample, start, samples)
    return total / (count - 1)


def measure_smoothness_variance(
    grad_fn: GradFn, params: Params, samples: Batch, key: jax.Array, *, iterations: int = 50
) -> jax.Array:
    r"""The variance of the smoothness at ``params``: how differently the samples curve.

    .. math:: \sigma_L^2 \approx \max_{\|v\| = 1} \frac{1}{n - 1} \sum_{i=1}^n
      \|(\nabla^2 f(x; z_i) - \bar H)\,v\|^2

    which is the largest eigenvalue of :math:`\frac{1}{n-1}\sum_i (\nabla^2 f(x; z_i) - \bar H)^2`,
    found by power iteration, from below. It is 0 if noise is only added to the gradient.

    Args:
      grad_fn: A function of (params, sample).
      params: Where the curvature is measured.
      samples: n ≥ 2 samples stacked on a leading axis, each what one training step sees.
      key: A key for the first direction.
      iterations: The number of passes over the samples.

    Returns:
      :math:`\sigma_L^2`, a scalar.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from mu2_optax import theory
      >>> grad_fn = jax.grad(lambda x, z: 0.5 * jnp.sum(z * x**2))
      >>> samples, key = jnp.array([1.0, 2.0, 3.0]), jax.random.key(0)
      >>> float(theory.measure_smoothness_variance(grad_fn, jnp.ones(1), samples, key))
      1.0

    References:
      Dahan and Levy: bounded smoothness variance
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")
    check_params(params)
    check_iterations("iterations", iterations)
    count = _check_samples(samples, 2)
    x = widened(params)

    def apply(v: Any) -> Any:
        product = lambda _, sample: (_hessian_product(grad_fn, v, x, sample), None, None)
        mean, _, _ = scan_microbatches(product, None, samples)

        def add_sample(total: Any, sample: Any) -> tuple[Any, None]:
            away = optax.tree.sub(_hessian_product(grad_fn, v, x, sample), mean)
            return add(total, _hessian_product(grad_fn, away, x, sample)), None

        total, _ = jax.lax.scan(add_sample, optax.tree.zeros_like(x), samples)
        return jax.tree.map(lambda a: a / (count - 1), total)

    return _power(apply, x, key, iterations)


def _hessian_product(grad_fn: GradFn, v: Params, x: Params, sample: Batch) -> Any:
    r""":math:`\nabla^2 f(x; z)\,v`."""
    grads, product = jax.jvp(lambda x: grad_fn(x, sample), (x,), (cast_like(v, x),))
    check_gradient("grad_fn(params, batch)", grads, x)
    return product


def _power(apply: Any, x: Any, key: jax.Array, iterations: int) -> jax.Array:
    """The norm of a symmetric operator, by power iteration, which approaches it from below."""

    def unit(v: Any) -> tuple[Any, jax.Array]:
        size, v = rescaled(v)
        norm = optax.tree.norm(v)
        return scaled(inverse_or_zero(norm), v), size * norm

    def iterate(_: Any, carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
        return unit(apply(carry[0]))

    return jax.lax.fori_loop(0, iterations, iterate, unit(optax.tree.random_like(key, x)))[1]


def _check_samples(samples: Any, least: int) -> int:
    return check_leading_axis("samples", samples, least, "stack what single training steps see.")
