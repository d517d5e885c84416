"""What NNX and linen share for recalibrating BatchNorm."""

from collections.abc import Callable, Iterable, Sequence

from mu2_optax._internal.means import mean_like
from mu2_optax._internal.trees import add, widened
from mu2_optax._internal.types import Batch, Tree


def mean_over(statistics: Callable[[Batch], Tree], batches: Iterable[Batch]) -> Tree:
    """The mean of ``statistics(batch)`` over ``batches``, summed in float32 at least."""
    total, count = None, 0
    for batch in batches:
        found = statistics(batch)
        total = widened(found) if total is None else add(total, widened(found))
        count += 1
    if count == 0:
        raise ValueError(
            "`batches` must hold at least one batch, got none; pass a list, or a new iterator if "
            "this one is used up."
        )
    return mean_like(found, total, count)


def check_batch_norms_ran(updated: Sequence[bool]) -> None:
    """Requires that there is a BatchNorm, and that ``forward`` updated each one."""
    if not updated:
        raise ValueError(
            "`forward` must run a model with BatchNorm, got a model without it; there is nothing "
            "to recalibrate."
        )
    if not all(updated):
        raise ValueError(
            f"`forward` must run every BatchNorm in training mode, got {updated.count(False)} of "
            f"{len(updated)} that kept its statistics; pass use_running_average=False (often "
            "called train=True) in the call."
        )
