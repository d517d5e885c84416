"""The gradient of a batch at another point, estimated on a part of the batch."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from mu2_optax._batches import Part, PartOfBatch, check_share, part_of, split_batch
from mu2_optax._checks import check_callable
from mu2_optax._same_sample import GradFn, gradient_at
from mu2_optax._trees import mean_of_two, widened


def on_part(part: Part | None, batch: Any, params: Any, grad_fn: GradFn | None, caller: str) -> Any:
    """The part of a batch, with its gradient at params; without a part, the batch itself."""
    if part not in (None, 1) and batch is not None:
        batch = part_of("part", part, batch)
    if not isinstance(batch, PartOfBatch):
        return batch
    known: object = jax.tree.structure(batch.grads)
    wanted: object = jax.tree.structure(params)
    if known == wanted:
        return batch
    # Not evaluated yet, or with respect to other params than the optimizer's (its `wrt`).
    return batch._replace(grads=gradient_at(params, params, grad_fn, batch.sample, caller))


def gradient_elsewhere(
    grads: Any, point: Any, params: Any, grad_fn: GradFn | None, batch: Any, caller: str
) -> Any:
    r"""The gradient of the whole batch at ``point``, where ``grads`` is that at params.

    For a part S that :func:`on_part` has evaluated, it is :math:`g_t(B) - (g_t(S) - \nabla f(x;
    S))`.
    """
    if not isinstance(batch, PartOfBatch):
        return gradient_at(point, params, grad_fn, batch, caller)
    there = gradient_at(point, params, grad_fn, batch.sample, caller)
    return whole_from_part(grads, batch.grads, there)


def check_no_part(part: Part | None) -> None:
    """Requires that nobody asks for a part and gives the previous gradient too."""
    if part is not None:
        raise ValueError(
            "`part` says on which samples the previous gradient is taken, so `prev_grads` must not "
            "be given (`multi_steps` gives it), got both; drop one, or take the part outside "
            "the optimizer with `value_and_grad(..., part=part)` or `grad_in_parts`."
        )


def whole_from_part(grads: Any, here: Any, there: Any) -> Any:
    """``grads``, moved by the change of the gradient of a part from ``here`` to ``there``."""
    return optax.tree.sub(widened(grads), optax.tree.sub(widened(here), widened(there)))


def grad_in_parts(grad_fn: GradFn, part: float) -> Callable[[Any, Any], tuple[Any, dict[str, Any]]]:
    r"""The gradient of a batch as the mean of two parts, one of which is evaluated again.

    .. math:: g_t(B) = s\,g_t(S) + (1 - s)\,g_t(B \setminus S), \qquad
      \tilde g_{t-1} = g_t(B) - \bigl(g_t(S) - \nabla f(x_{t-1}; S)\bigr)

    Here :math:`s = |S|/|B|` is ``part``. A step then costs 1 + s gradients: every sample is
    evaluated once at the params, and those of S once more at the previous point. With the ``part``
    of the optimizer instead, a step costs 1 + 2s.

    Args:
      grad_fn: A function of (params, batch): the gradient of a mean over the samples.
      part: s in (0, 1], the share of S in the leading axis of every array of the batch. S is the
        first samples; arrays without axes (a key, a temperature) belong to every sample.

    Returns:
      A function of (params, batch) that returns (grads, again): the gradient, and the keyword
      arguments ``grad_fn`` and ``batch`` for ``tx.update``. The optimizer needs no ``part``.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> gradient = mu2_optax.grad_in_parts(jax.grad(lambda x, z: jnp.mean((x - z) ** 2)), 1 / 4)
      >>> tx = mu2_optax.mu2_sgd(0.1)
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     grads, again = gradient(params, batch)
      ...     updates, state = tx.update(grads, state, params, **again)
      ...     return optax.apply_updates(params, updates), state
      >>> params = jnp.array(1.0)
      >>> params, state = step(params, tx.init(params), jnp.arange(8.0))
      >>> float(state.d)
      -5.0

    References:
      Li et al., `PAGE <https://arxiv.org/abs/2008.10898>`_, ICML 2021, for small batches in a
      correction
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")
    check_share("part", part)

    def evaluate(params: Any, batch: Any) -> tuple[Any, dict[str, Any]]:
        here, rest = split_batch("part", part, batch)
        here = here._replace(grads=grad_fn(params, here.sample))
        grads = here.grads
        if here.share < 1:
            grads = mean_of_two(here.share, grads, grad_fn(params, rest))
        return grads, {"grad_fn": grad_fn, "batch": here}

    return evaluate
