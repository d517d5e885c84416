"""Means over microbatches, one after another, for functions that may carry a state along."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax

from mu2_optax._checks import check_leading_axis
from mu2_optax._trees import add, cast_like, wide_zeros, widened

Evaluate: TypeAlias = Callable[[Any, Any], tuple[Any, Any, Any]]
"""A function of (carried, batch) that returns (means, aux, carried)."""


def scan_microbatches(evaluate: Evaluate, carried: Any, batches: Any) -> tuple[Any, Any, Any]:
    """Evaluates one microbatch after another, in the memory of one.

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

    def one_more(carry: Any, batch: Any) -> tuple[Any, Any]:
        carried, total = carry
        means, aux, carried = evaluate(carried, batch)
        return (carried, add(total, widened(means))), aux

    shapes, _, _ = jax.eval_shape(evaluate, carried, jax.tree.map(lambda b: b[0], batches))
    (carried, total), aux = jax.lax.scan(one_more, (carried, wide_zeros(shapes)), batches)
    return cast_like(jax.tree.map(lambda s: s / count, total), shapes), aux, carried
