"""The gradient at another point, on the sample of the step.

A ``grad_fn(params, batch)`` is deterministic: whatever is random or stateful in a loss (a dropout
key, batch statistics) is a part of ``batch``, so that every evaluation of a step sees the same
sample.
"""

import inspect
from typing import Any

import jax

from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.sharding import check_reduced
from mu2_optax._internal.tree_checks import check_gradient, check_whole
from mu2_optax._internal.trees import cast_like
from mu2_optax._internal.types import Batch, GradFn, Params, Updates


def gradient_at(
    point: Any, params: Params, grads: Updates, grad_fn: GradFn | None, batch: Batch, caller: str
) -> Any:
    """The gradient at ``point`` on ``batch``, checked against ``grads``, the one at ``params``.

    ``point`` is cast to the params' dtypes. Errors name the ``caller``.
    """
    if grad_fn is None or batch is None:
        missing = "`grad_fn`" if grad_fn is None else "`batch`"
        raise ValueError(
            f"`{caller}` evaluates the gradient again on the same batch, but {missing} was not "
            "given: call `tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)`, where "
            "`grads` is `grad_fn(params, batch)` (and `batch=()` for a loss that takes no data). "
            + _who_gives_both(params)
        )
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")
    check_whole(params)
    try:
        there = grad_fn(cast_like(point, params), batch)
    except Exception as error:
        _check_two_arguments(grad_fn, point, batch, error)
        nones = any(leaf is None for leaf in jax.tree.leaves(params, is_leaf=lambda a: a is None))
        if nones and isinstance(error, AttributeError | TypeError):
            raise TypeError(
                "`grad_fn` must be a function of `params` as they were given, where some leaves "
                f"are None, got {type(error).__name__}: {error}; in Equinox, combine them with the "
                "rest of the model first: `jax.grad(lambda params, batch: "
                "loss_fn(eqx.combine(params, static), batch))`."
            ) from error
        error.add_note(
            f"`{caller}` called `grad_fn` at another point with params of the structure "
            f"{jax.tree.structure(params)}. If that is not what `grad_fn` takes, a wrapper such as "
            "`optax.flatten` has changed it: put the wrapper inside `inner`."
        )
        raise
    check_gradient("grad_fn(params, batch)", there, params)
    check_reduced(grads, there)
    return there


def _who_gives_both(params: Params) -> str:
    """Where ``grad_fn`` and ``batch`` come from, in the framework of these params."""
    if type(params).__module__.startswith("flax.nnx"):
        return (
            "In NNX, `loss, grads, again = mu2_optax.nnx.value_and_grad(loss_fn)(model, ...)` "
            "gives both, for `optimizer.update(model, grads, **again)`."
        )
    return (
        "`loss, grads, again = mu2_optax.value_and_grad(loss_fn)(params, ...)` gives both, for "
        "`tx.update(grads, state, params, **again)`. Flax's own TrainState does not pass them on: "
        "use `mu2_optax.linen.TrainState`."
    )


def _check_two_arguments(grad_fn: GradFn, point: Any, batch: Batch, error: Exception) -> None:
    """Raises if ``grad_fn`` failed because it cannot be called with two arguments."""
    try:
        signature = inspect.signature(grad_fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(point, batch)
    except TypeError as reason:
        names = ", ".join(signature.parameters)
        raise TypeError(
            f"`grad_fn` must be a function of (params, batch), got one of ({names}), which "
            f"cannot take these two: {reason}; put all data into one `batch`: "
            "`grad_fn = lambda params, batch: jax.grad(loss)(params, *batch)`, or use "
            "`mu2_optax.value_and_grad(loss)`, which takes any arguments."
        ) from error
