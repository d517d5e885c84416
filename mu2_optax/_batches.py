"""A part of a batch: some of its samples, chosen by a share or by a function."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

Part: TypeAlias = float | Callable[[Any], Any]
"""A share in (0, 1] of the leading axis of every array, or a function from batch to sub-batch."""


class PartOfBatch(NamedTuple):
    """A part of a batch, on which the further evaluations of a step are made.

    Attributes:
      sample: The part.
      share: How much of the batch it is, in (0, 1]; None if that is not known.
      grads: Its gradient at params; None if that is not known yet.
    """

    sample: Any
    share: Any = None
    grads: Any = None


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
            f'{share!r}; with `optax.inject_hyperparams`, say `static_args=("{name}",)`.'
        )
    if not 0 < float(share) <= 1:  # NaN fails the comparison too
        raise ValueError(
            f"`{name}` must lie in (0, 1], got {share}; it is a share of the batch, 1 for all of "
            "it."
        )


def is_share(part: Part | None) -> TypeGuard[float]:
    """Whether a part is given as a share that leaves something out."""
    return part not in (None, 1) and not callable(part)


def chosen_arguments(part: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The loss's arguments for a part, as the function ``part`` returns them."""
    chosen = part(*args, **kwargs)
    if not isinstance(chosen, tuple):
        raise TypeError(
            "`part` must return a tuple of the loss's other arguments, those of the part, got "
            f"{type(chosen).__name__}; for one argument, `lambda batch: (batch[:8],)`."
        )
    return chosen


def part_of(name: str, part: Part, batch: Any) -> PartOfBatch:
    """The part of a batch: its first samples, or what a function makes of it."""
    if not callable(part):
        return split_batch(name, part, batch)[0]
    return measured_part(batch, part(_whole_batch(name, batch)))


def measured_part(batch: Any, sample: Any) -> PartOfBatch:
    """``sample`` as the part of a batch, with its share where the arrays have one length each."""
    before, after = _lengths(batch), _lengths(sample)
    if len(before) != 1 or len(after) != 1:
        return PartOfBatch(sample)
    return PartOfBatch(sample, min(1.0, after.pop() / before.pop()))


def split_batch(name: str, share: float, batch: Any) -> tuple[PartOfBatch, Any]:
    """The first samples of a batch, and the rest of it; arrays without axes go into both."""
    lengths = _lengths(_whole_batch(name, batch))
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
            f"`{name}` must leave at least one sample, got {share:g} of a batch of {length}; take "
            "a larger share or a larger batch."
        )

    def pick(where: slice) -> Any:
        return jax.tree.map(lambda leaf: leaf[where] if jnp.ndim(leaf) else leaf, batch)

    return PartOfBatch(pick(slice(count)), count / length), pick(slice(count, None))


def two_parts(name: str, share: float, batch: Any) -> tuple[PartOfBatch, PartOfBatch]:
    """The first samples of a batch and the others, of which there must be some."""
    first, rest = split_batch(name, share, batch)
    if first.share == 1:
        raise ValueError(
            f"`{name}` must leave at least one sample to the rest, got {share:g} of a batch too "
            "small for that; take a smaller share or a larger batch."
        )
    return first, PartOfBatch(rest, 1 - first.share)


def _whole_batch(name: str, batch: Any) -> Any:
    if isinstance(batch, PartOfBatch):
        raise ValueError(
            f"`{name}` must be taken of a whole batch, got a part of one; "
            "drop it from the optimizer, or from `value_and_grad` or `grad_in_parts`."
        )
    return batch


def _lengths(batch: Any) -> set[int]:
    """The lengths of the leading axes of all arrays that have one."""
    shapes = (jnp.shape(leaf) for leaf in jax.tree.leaves(batch))
    return {shape[0] for shape in shapes if shape}
