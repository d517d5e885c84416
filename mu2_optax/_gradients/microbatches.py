"""Microbatches in one call: evaluated one after another, with memory for one."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.sharding import varying_along, varying_axes
from mu2_optax._internal.tree_checks import check_leading_axis
from mu2_optax._internal.trees import add, wide_zeros, widened
from mu2_optax._internal.types import Batch, GradFn, Params

Evaluate: TypeAlias = Callable[[Any, Any], tuple[Any, Any, Any]]
"""A function of (carried, batch) that returns (means, aux, carried)."""


def accumulate(grad_fn: GradFn) -> GradFn:
    r"""The mean of ``grad_fn`` over microbatches, evaluated one after another, with memory for one.

    .. math:: \bar g(x, z) = \frac1k \sum_{i=1}^k g(x, z_i)

    There are three ways to add up microbatches:

    - **All of them in one call, for a loss:** ``value_and_grad(loss, accumulate=True)``.
    - **All of them in one call, for a gradient function:** this function. Use the result for *both*
      evaluations of a step: as the gradient and as ``grad_fn``.
    - **One of them in each call:** :func:`accumulate_gradients`, which needs memory for two more
      gradients.

    ``optax.MultiSteps`` around an optimizer that evaluates ``grad_fn`` again is silently wrong: the
    optimizer then evaluates it on the last microbatch alone. Around :func:`mu2_auto` it is correct.

    Args:
      grad_fn: A function of (params, batch); its result may be any tree of means. The mean of
        integers (correct answers in a microbatch) is a float.

    Returns:
      A function of (params, batches), where every leaf of ``batches`` has a leading axis of
      length k that counts the microbatches.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.mean((x - z) ** 2))
      >>> big_batch = jnp.arange(8.0)
      >>> in_two = mu2_optax.accumulate(grad_fn)(0.0, big_batch.reshape(2, 4))
      >>> float(in_two) == float(grad_fn(0.0, big_batch))
      True
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")

    def accumulated(params: Params, batches: Any) -> Any:
        evaluate = lambda nothing, batch: (grad_fn(params, batch), None, nothing)
        means, _, _ = scan_microbatches(evaluate, None, batches)
        return means

    return accumulated


def scan_microbatches(evaluate: Evaluate, carried: Any, batches: Any) -> tuple[Any, Any, Any]:
    """Evaluates one microbatch after another, with memory for one.

    Args:
      evaluate: A function of (carried, batch) that returns (means, aux, carried).
      carried: What one microbatch hands to the next: batch statistics, the state of a generator.
      batches: A tree whose leaves have a leading axis that counts the microbatches.

    Returns:
      The mean of ``means``, summed in float32 at least; ``aux`` with a leading axis; ``carried``
      after the last microbatch.
    """
    count = check_leading_axis(
        "batches", batches, 1, "reshape a batch of n samples to (k, n // k, ...)."
    )

    def one_more(carry: Any, batch: Batch) -> tuple[Any, Any]:
        carried, total = carry
        means, aux, carried = evaluate(carried, batch)
        return (carried, add(total, widened(means))), aux

    first = jax.tree.map(lambda b: b[0], batches)
    shapes, _, after = jax.eval_shape(evaluate, carried, first)
    carried = jax.tree.map(lambda c, a: varying_along(c, varying_axes(a)), carried, after)
    (carried, total), aux = jax.lax.scan(one_more, (carried, wide_zeros(shapes)), batches)
    return jax.tree.map(functools.partial(_mean, count), total, shapes), aux, carried


def _mean(count: int, total: jax.Array, one: jax.ShapeDtypeStruct) -> jax.Array:
    """The mean, in the dtype of one microbatch; the mean of integers stays a float."""
    mean = total / count
    return mean.astype(one.dtype) if jnp.issubdtype(one.dtype, jnp.inexact) else mean
