"""Rejects steps that are not finite."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import check_integer, check_transform
from mu2_optax._internal.tree_checks import check_state
from mu2_optax._internal.trees import gathered
from mu2_optax._internal.types import OptState, Params, Transform, Updates


class RejectNonfiniteState(NamedTuple):
    """State of :func:`reject_nonfinite`.

    Attributes:
      consecutive: How many of the last steps in a row were not finite.
      total: How many steps of the whole run were not finite.
      inner_state: The state of ``inner`` after the last accepted step.
    """

    consecutive: jax.Array
    total: jax.Array
    inner_state: OptState


def reject_nonfinite(
    inner: optax.GradientTransformation, max_consecutive: int = 5
) -> Transform[RejectNonfiniteState]:
    """Skips a step that is not finite, whichever gradient it came from.

    A step is rejected if the gradient or an update is NaN or infinite, or if a value in the state
    of ``inner`` stops being finite. It then changes neither params nor the inner state, and is
    counted. ``optax.apply_if_finite`` looks at the incoming gradient alone; a NaN in the gradient
    at the previous point passes it and stays in d forever.

    Args:
      inner: Any Optax optimizer.
      max_consecutive: After this many rejections in a row the next step is taken as it is, so that
        a run that has really diverged shows it, instead of standing still forever.

    Returns:
      A transform; extra args are passed to ``inner``. Its state is a
      :class:`RejectNonfiniteState`.

    Examples:
      >>> import jax.numpy as jnp, optax, mu2_optax
      >>> tx = mu2_optax.reject_nonfinite(mu2_optax.mu2_sgd(0.1))
      >>> params = jnp.array(1.0)
      >>> updates, state = tx.update(params, tx.init(params), params, prev_grads=jnp.nan * params)
      >>> float(updates), int(state.total)
      (0.0, 1)
    """
    check_transform("inner", inner)
    check_integer("max_consecutive", max_consecutive, 0, "use a large one to keep rejecting.")
    inner = optax.with_extra_args_support(inner)

    def init(params: Params) -> RejectNonfiniteState:
        zero = jnp.zeros([], jnp.int32)
        return RejectNonfiniteState(zero, jnp.copy(zero), inner.init(params))

    def update(
        updates: Updates, state: RejectNonfiniteState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, RejectNonfiniteState]:
        check_state(state, RejectNonfiniteState)
        new_updates, new_inner = inner.update(updates, state.inner_state, params, **extra_args)
        stand_still = optax.tree.zeros_like(new_updates)
        old, new = (stand_still, state.inner_state), (new_updates, new_inner)
        broken = jnp.any(gathered(_not_finite(updates) + _stopped_being_finite(old, new)))
        exhausted = state.consecutive >= max_consecutive
        reject = jnp.all(gathered([broken, ~exhausted]))
        consecutive = jnp.where(broken, optax.safe_increment(state.consecutive), 0)
        total = jnp.where(broken, optax.safe_increment(state.total), state.total)
        chosen, inner_state = jax.tree.map(lambda a, b: jnp.where(reject, a, b), old, new)
        return chosen, RejectNonfiniteState(consecutive, total, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def _not_finite(gradient: Updates) -> list[jax.Array]:
    """For each leaf, whether it is not finite; clipping may turn such a leaf into a finite step."""
    leaves = [leaf for leaf in jax.tree.leaves(gradient) if not _of_integers(leaf)]
    return [jnp.any(~jnp.isfinite(leaf)) for leaf in leaves]


def _of_integers(gradient: Any) -> bool:
    """Whether it is JAX's gradient of integer params: an array of float0, without numbers."""
    return getattr(gradient, "dtype", None) == jax.dtypes.float0


def _stopped_being_finite(old: Any, new: Any) -> list[jax.Array]:
    """For each leaf, whether a number in it that was finite no longer is.

    Some states hold an infinity on purpose.
    """
    pairs = zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)
    return [jnp.any(jnp.isfinite(a) & ~jnp.isfinite(b)) for a, b in pairs]
