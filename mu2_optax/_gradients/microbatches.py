"""Microbatches in one call: evaluated one after another, with memory for one."""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from mu2_optax._internal.means import wide_zeros
from mu2_optax._internal.sharding import varying_along, varying_axes
from mu2_optax._internal.tree_checks import check_leading_axis
from mu2_optax._internal.trees import add, widened
from mu2_optax._internal.types import Batch

Evaluate: TypeAlias = Callable[[Any, Any], tuple[Any, Any, Any]]
"""A function of (carried, batch) that returns (means, aux, carried)."""


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
