"""A part of a batch: some of its samples, chosen by a share or by a function."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mu2_optax._internal.types import Batch

Part: TypeAlias = float | Callable[..., Any]
"""A share in (0, 1] of the leading axis of every array, or a function that chooses the samples."""


def check_part(name: str, part: Part | None) -> None:
    """Requires a share in (0, 1] or a function."""
    if part is None or callable(part):
        return
    if isinstance(part, bool) or not isinstance(part, int | float | np.generic | jax.Array):
        raise TypeError(
            f"`{name}` must be a share of the batch such as 1/8, or a function from batch to "
            f"sub-batch, got {part!r}."
        )
    check_share(name, part)


def check_share(name: str, share: Any) -> None:
    """Requires a Python number in (0, 1]."""
    if isinstance(share, bool) or not isinstance(share, int | float | np.generic):
        raise TypeError(
            f"`{name}` must be a Python number such as 1/8, because shapes depend on it, got "
            f'{share!r}; with `optax.inject_hyperparams`, pass `static_args=("{name}",)`.'
        )
    if not 0 < float(share) <= 1:  # NaN fails the comparison too
        raise ValueError(
            f"`{name}` must lie in (0, 1], got {share}; it is a share of the batch, 1 for all of "
            "it."
        )


def split_batch(name: str, share: float, batch: Batch) -> tuple[Any, Any, float]:
    """The first samples of a batch, the rest of it, and the share that the first samples are.

    Arrays without axes go into both.
    """
    lengths = _lengths(batch)
    if len(lengths) != 1:
        shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(batch)]
        raise ValueError(
            f"`{name}={share:g}` is a share of the leading axis, which must have one length in all "
            f"arrays of the batch, got arrays of shapes {shapes}; pass a function from batch to "
            "sub-batch for keys, statistics and ragged batches."
        )
    length = lengths.pop()
    count = round(share * length)
    if count < 1:
        raise ValueError(
            f"`{name}` must be at least one sample, got {share:g} of a batch of {length}; take "
            "a larger share or a larger batch."
        )

    def pick(where: slice) -> Any:
        return jax.tree.map(lambda leaf: leaf[where] if jnp.ndim(leaf) else leaf, batch)

    return pick(slice(count)), pick(slice(count, None)), count / length


def share_of(few: Any, batch: Batch) -> float | None:
    """The share of a batch that ``few`` is; None if the arrays of either have several lengths."""
    before, after = _lengths(batch), _lengths(few)
    if len(before) != 1 or len(after) != 1:
        return None
    return min(1.0, after.pop() / before.pop())


def _lengths(batch: Batch) -> set[int]:
    """The lengths of the leading axes of all arrays that have one."""
    shapes = (jnp.shape(leaf) for leaf in jax.tree.leaves(batch))
    return {shape[0] for shape in shapes if shape}
