"""Several gradients on one sample: again, in pairs, over microbatches, bound to a transform.

A ``grad_fn(params, batch)`` is deterministic: whatever is random or stateful in a loss (a dropout
key, batch statistics) is a part of ``batch``, so that every evaluation of a step sees the same
sample.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import optax

from mu2_optax._batches import (
    Part,
    PartOfBatch,
    check_part,
    chosen_arguments,
    is_share,
    measured_part,
    split_batch,
)
from mu2_optax._checks import (
    check_callable,
    check_choice,
    check_gradient,
    check_leading_axis,
    check_transform,
    check_whole,
)
from mu2_optax._sharding import AxisName, axes_of, device_mean, varying_along, varying_axes
from mu2_optax._trees import add, cast_like, concatenated, mean_of_two, wide_zeros, widened
from mu2_optax._types import Tree

GradFn: TypeAlias = Callable[[Tree, Any], Tree]

ValueAndGrad: TypeAlias = Callable[..., tuple[Any, Any, dict[str, Any]]]
"""A function of a loss's arguments that returns (value, grads, again)."""

Evaluate: TypeAlias = Callable[[Any, Any], tuple[Any, Any, Any]]
"""A function of (carried, batch) that returns (means, aux, carried)."""


def gradient_at(point: Any, params: Any, grad_fn: GradFn | None, batch: Any, caller: str) -> Any:
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


def _who_gives_both(params: Any) -> str:
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


def _check_two_arguments(grad_fn: GradFn, point: Any, batch: Any, error: Exception) -> None:
    """Raises if ``grad_fn`` has failed because it cannot be called with two arguments."""
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
            f"cannot be called so: {reason}; put all data into one `batch`: "
            "`grad_fn = lambda params, batch: jax.grad(loss)(params, *batch)`, or use "
            "`mu2_optax.value_and_grad(loss)`, which takes any arguments."
        ) from error


def value_and_grad(
    loss_fn: Callable[..., Any],
    *,
    has_aux: bool = False,
    accumulate: bool = False,
    axis_name: AxisName | None = None,
    part: Part | None = None,
) -> ValueAndGrad:
    r"""``jax.value_and_grad`` that can be evaluated again on the same sample.

    .. math:: (x_t, z_t) \mapsto f(x_t; z_t),\ \nabla f(x_t; z_t),\ \nabla f(\cdot\,; z_t)

    Here :math:`x_t` is the first argument of the loss and :math:`z_t` everything else that it
    depends on, in its other arguments or closed over: the batch, batch statistics, a dropout key.
    The auxiliary data (in Flax linen, the collections that ``apply`` has mutated) are those at
    :math:`x_t`; those of later evaluations are dropped.

    Args:
      loss_fn: A function whose first argument is the params. It returns the loss, or a pair of the
        loss and auxiliary data.
      has_aux: Whether ``loss_fn`` returns a pair.
      accumulate: Whether every array among the other arguments has a leading axis that counts
        microbatches (one key for each, too). They are evaluated one after another, in the memory
        of one. The loss and the gradients are means; auxiliary data keep the leading axis.
      axis_name: The axis of the ``jax.shard_map`` or ``jax.pmap`` around the step, if there is one,
        or a tuple of axes. The loss and the gradients are then means over its devices, in every
        evaluation; auxiliary data are those of each device. A ``pmean`` of the gradients after that
        changes nothing; without ``axis_name`` it would reach only one of the gradients of a step,
        and the devices would drift apart.
      part: The samples to use in the further evaluations: a share in (0, 1] of the leading axis of
        every array among the other arguments (its first samples; arrays without axes, such as a
        key, belong to all of them), or a function of the other arguments that returns them for the
        part, as a tuple. The loss must be a mean over samples, not a sum. The value and ``grads``
        are those of the whole batch. A step then costs 1 + 2s gradients for a share s, and 1 + s
        with ``accumulate``, where the part is the first microbatches. The optimizer needs no
        ``part``.

    Returns:
      A function of ``loss_fn``'s arguments that returns (value, grads, again): what
      ``jax.value_and_grad`` returns, and the keyword arguments ``grad_fn`` and ``batch`` for
      ``tx.update`` or for ``mu2_optax.linen.TrainState.apply_gradients``.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> def loss_fn(params, batch):
      ...     residuals = params - batch
      ...     return jnp.mean(residuals**2), {"worst": jnp.max(jnp.abs(residuals))}
      >>> tx = mu2_optax.mu2_sgd(0.1)
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     evaluate = mu2_optax.value_and_grad(loss_fn, has_aux=True)
      ...     (loss, aux), grads, again = evaluate(params, batch)
      ...     updates, state = tx.update(grads, state, params, **again)
      ...     return optax.apply_updates(params, updates), state, loss, aux
      >>> params = jnp.array(1.0)
      >>> params, state, loss, aux = step(params, tx.init(params), jnp.array([2.0, 4.0]))
      >>> float(loss), float(aux["worst"])
      (5.0, 3.0)
    """
    check_callable("loss_fn", loss_fn, "loss_fn(params, batch)")
    check_part("part", part)
    first = jax.value_and_grad(loss_fn, has_aux=has_aux)
    axes = axes_of(axis_name)

    def once(point: Any, nothing: Any, sample: Any) -> tuple[Any, Any, Any]:
        args, kwargs = sample
        result, grads = first(varying_along(point, axes), *args, **kwargs)
        value, aux = result if has_aux else (result, None)
        return (value, grads), aux, nothing

    def whole(point: Any, sample: Any) -> tuple[Any, Any]:
        evaluate = functools.partial(once, point)
        in_parts = functools.partial(scan_microbatches, evaluate) if accumulate else evaluate
        means, aux, _ = in_parts(None, sample)
        value, grads = device_mean(means, axis_name)
        return (value, aux), grads

    grad_fn = lambda point, sample: whole(point, sample)[1]

    def some_of(part: Part, sample: Any) -> PartOfBatch:
        if callable(part):
            return measured_part(sample, (chosen_arguments(part, *sample), {}))
        return split_batch("part", part, sample)[0]

    def evaluate(params: Any, *args: Any, **kwargs: Any) -> tuple[Any, Any, dict[str, Any]]:
        sample = (args, kwargs)
        batch: Any
        if accumulate and is_share(part):
            here, rest = split_batch("part", part, sample)
            (value, aux), grads = whole(params, here.sample)
            batch = here._replace(grads=grads)
            if here.share < 1:
                (rest_value, rest_aux), rest_grads = whole(params, rest)
                mixed = mean_of_two(here.share, (value, grads), (rest_value, rest_grads))
                (value, grads), aux = mixed, concatenated(aux, rest_aux)
        else:
            (value, aux), grads = whole(params, sample)
            batch = sample if part is None or part == 1 else some_of(part, sample)
        return ((value, aux) if has_aux else value), grads, {"grad_fn": grad_fn, "batch": batch}

    return evaluate


def accumulate(grad_fn: GradFn) -> GradFn:
    r"""The mean of ``grad_fn`` over microbatches, one after another, in the memory of one.

    .. math:: \bar g(x, z) = \frac1k \sum_{i=1}^k g(x, z_i)

    Use the result for *both* evaluations of a step: as the gradient and as ``grad_fn``.
    ``optax.MultiSteps`` around these transforms would be silently wrong, because it evaluates
    ``grad_fn`` on the last microbatch alone.

    Args:
      grad_fn: A function of (params, batch); any tree of means may be its result. The mean of
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

    def accumulated(params: Any, batches: Any) -> Any:
        evaluate = lambda nothing, batch: (grad_fn(params, batch), None, nothing)
        means, _, _ = scan_microbatches(evaluate, None, batches)
        return means

    return accumulated


def grad_pair(
    grad_fn: GradFn, how: Literal["sequential", "vmap"] = "sequential"
) -> Callable[[Any, Any, Any], tuple[Any, Any]]:
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

    def pair(params: Any, previous_params: Any, batch: Any) -> tuple[Any, Any]:
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
    """Gives a transform its extra args, so that ``update`` needs none.

    For wrappers that do not pass extra args on, such as ``optax.lookahead``. Inside a jitted step,
    call it in the step itself: ``batch`` is then an ordinary traced value.

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

    def bound(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return update(updates, state, params, **extra_args)

    return optax.GradientTransformation(inner.init, bound)


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

    first = jax.tree.map(lambda b: b[0], batches)
    shapes, _, after = jax.eval_shape(evaluate, carried, first)
    carried = jax.tree.map(lambda c, a: varying_along(c, varying_axes(a)), carried, after)
    (carried, total), aux = jax.lax.scan(one_more, (carried, wide_zeros(shapes)), batches)
    return jax.tree.map(functools.partial(_mean, count), total, shapes), aux, carried


def _mean(count: int, total: jax.Array, one: jax.ShapeDtypeStruct) -> jax.Array:
    """The mean, in the dtype of one microbatch; the mean of integers stays a float."""
    mean = total / count
    return mean.astype(one.dtype) if jnp.issubdtype(one.dtype, jnp.inexact) else mean
