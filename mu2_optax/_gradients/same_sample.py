"""Several gradients on one sample: evaluated again, in pairs, or bound to a transform.

A ``grad_fn(params, batch)`` is deterministic: whatever is random or stateful in a loss (a dropout
key, batch statistics) is a part of ``batch``, so that every evaluation of a step sees the same
sample.
"""

import inspect
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import check_callable, check_choice, check_transform
from mu2_optax._internal.tree_checks import check_gradient, check_whole
from mu2_optax._internal.trees import cast_like
from mu2_optax._internal.types import Batch, GradFn, OptState, Params, Updates


def gradient_at(
    point: Any, params: Params, grad_fn: GradFn | None, batch: Batch, caller: str
) -> Any:
    """The gradient at ``point`` on ``batch``, checked; ``point`` is cast to the params' dtypes."""
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
        grads = grad_fn(cast_like(point, params), batch)
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
    check_gradient("grad_fn(params, batch)", grads, params)
    return grads


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


def grad_pair(
    grad_fn: GradFn, how: Literal["sequential", "vmap"] = "sequential"
) -> Callable[[Params, Params, Batch], tuple[Updates, Updates]]:
    r"""Both gradients of a corrected momentum, at two points on one batch.

    .. math:: (x_t, x_{t-1}, z_t) \mapsto (\nabla f(x_t; z_t), \nabla f(x_{t-1}; z_t))

    The second one goes to ``update`` as ``prev_grads``, so that nothing is evaluated twice.

    Args:
      grad_fn: A function of (params, batch).
      how: ``"sequential"`` calls ``grad_fn`` twice; ``"vmap"`` calls it once on the two points
        stacked, which may be faster for small models and is slower for large ones on a CPU.

    Returns:
      A function of (params, previous_params, batch) that returns (grads, prev_grads).

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> pair = mu2_optax.grad_pair(jax.grad(lambda x, z: (x - z) ** 2), how="vmap")
      >>> tx = mu2_optax.mu2_sgd(0.1)
      >>> params = jnp.array(1.0)
      >>> state = tx.init(params)
      >>> grads, prev_grads = pair(params, state.x, 3.0)
      >>> updates, state = tx.update(grads, state, params, prev_grads=prev_grads)
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")
    check_choice("how", how, ("sequential", "vmap"))

    def pair(params: Params, previous_params: Params, batch: Batch) -> tuple[Any, Any]:
        previous_params = cast_like(previous_params, params)
        if how == "sequential":
            return grad_fn(params, batch), grad_fn(previous_params, batch)
        points = jax.tree.map(lambda a, b: jnp.stack([a, b]), params, previous_params)
        both = jax.vmap(grad_fn, in_axes=(0, None))(points, batch)
        return jax.tree.map(lambda g: g[0], both), jax.tree.map(lambda g: g[1], both)

    return pair


def with_extra_args(
    inner: optax.GradientTransformation, **extra_args: Any
) -> optax.GradientTransformation:
    """Binds extra args to a transform, so that ``update`` needs none.

    Use it inside wrappers that do not pass on extra args, such as ``optax.lookahead``. If the step
    is jitted, call it within the step: ``batch`` is then an ordinary traced value.

    Args:
      inner: Any Optax transform.
      **extra_args: What its ``update`` takes, such as ``grad_fn`` and ``batch``.

    Returns:
      An ``optax.GradientTransformation`` with the same ``init`` and the same state.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: (x - z) ** 2)
      >>> tx = mu2_optax.with_extra_args(mu2_optax.mu2_sgd(0.1), grad_fn=grad_fn, batch=3.0)
      >>> params = jnp.array(1.0)
      >>> updates, state = tx.update(grad_fn(params, 3.0), tx.init(params), params)
    """
    check_transform("inner", inner)
    update = optax.with_extra_args_support(inner).update

    def bound(updates: Updates, state: OptState, params: Params = None) -> tuple[Updates, OptState]:
        return update(updates, state, params, **extra_args)

    return optax.GradientTransformation(inner.init, bound)
