"""The gradient of a step, and a function that evaluates it again, for a Flax NNX model."""

import inspect
from collections.abc import Callable
from typing import Any

import jax
from flax import nnx

from mu2_optax._gradients.batches import Part, check_part
from mu2_optax._gradients.evaluate import Again, Evaluation, ValueAndGrad, chosen_arguments
from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.sharding import AxisName
from mu2_optax._internal.types import Params, Updates


def value_and_grad(
    loss_fn: Callable[..., Any],
    *,
    argnums: int | nnx.DiffState = 0,
    has_aux: bool = False,
    accumulate: bool = False,
    axis_name: AxisName | None = None,
    part: Part | None = None,
) -> ValueAndGrad:
    r"""Like ``nnx.value_and_grad``, but the gradient can be evaluated again on the same sample.

    .. math:: (x_t, z_t) \mapsto f(x_t; z_t),\ \nabla f(x_t; z_t),\ \nabla f(\cdot\,; z_t)

    Here :math:`x_t` is the parameters of the model and :math:`z_t` everything else that the loss
    depends on: the batch, the batch statistics, the state of each generator, in the model or in
    another argument. :math:`z_t` is set aside as plain values before the first forward pass, so
    that every later evaluation sees the same dropout masks and statistics. Only the evaluation at
    :math:`x_t` updates statistics and advances generators, exactly as in ``nnx.value_and_grad``.

    Args:
      loss_fn: A function such as ``loss_fn(model, batch, rngs)`` that returns the loss, or a pair
        of the loss and auxiliary data.
      argnums: The position of the model, or ``nnx.DiffState(position, filter)`` for gradients with
        respect to variables other than ``nnx.Param``, as in Flax. An optimizer that moves only some
        of them (its ``wrt``) needs no ``DiffState``.
      has_aux: Whether ``loss_fn`` returns a pair.
      accumulate: Whether every array among the arguments has a leading axis that counts
        microbatches, as in :func:`mu2_optax.value_and_grad`. Modules and generators advance from
        one microbatch to the next.
      axis_name: The axis of devices to take means over, as in :func:`mu2_optax.value_and_grad`;
        each device has its own statistics.
      part: The samples to use for further evaluations, as in :func:`mu2_optax.value_and_grad`; a
        function gets the arguments other than the model, in their order. A share s costs 1 + s
        gradients with ``accumulate``, otherwise 1 + 2s. Statistics and generators belong to every
        sample: only the evaluation of the whole batch updates them, and both evaluations of the
        part start from the same ones. BatchNorm normalises a part by the part's own statistics.

    Returns:
      A function of ``loss_fn``'s arguments that returns (value, grads, again): what
      ``nnx.value_and_grad`` returns, and the keyword arguments ``grad_fn`` and ``batch`` for
      ``nnx.Optimizer.update``.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax, mu2_optax.nnx
      >>> from flax import nnx
      >>> model = nnx.Sequential(nnx.Linear(2, 4, rngs=nnx.Rngs(0)), nnx.Dropout(0.5))
      >>> optimizer = nnx.Optimizer(model, mu2_optax.mu2_sgd(0.1), wrt=nnx.Param)
      >>> def loss_fn(model, batch, rngs):
      ...     logits = model(batch, rngs=rngs)
      ...     return jnp.mean(logits**2), logits
      >>> @nnx.jit
      ... def train_step(model, optimizer, batch, rngs):
      ...     evaluate = mu2_optax.nnx.value_and_grad(loss_fn, has_aux=True)
      ...     (loss, logits), grads, again = evaluate(model, batch, rngs)
      ...     optimizer.update(model, grads, **again)
      ...     return loss
      >>> loss = train_step(model, optimizer, jnp.ones((8, 2)), nnx.Rngs(dropout=1))
    """
    check_callable("loss_fn", loss_fn, "loss_fn(model, batch)")
    check_part("part", part)
    place, wrt = _differentiated(argnums)
    plain = not accumulate and axis_name is None  # then Flax makes the first evaluation

    def evaluate(*args: Any, **kwargs: Any) -> tuple[Any, Any, Again]:
        if callable(part):  # it gets the data in their order, even if they are given by name
            bound = inspect.signature(loss_fn).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        graphdef, *states = nnx.split((args, kwargs), wrt, nnx.Variable, ...)
        fixed, variables, arrays = (nnx.as_pure(state) for state in states)
        params = nnx.state(args[place], wrt)

        def once(point: Any, variables: Any, arrays: Any) -> tuple[Any, Any, Any]:
            def loss(point: Any) -> tuple[Any, Any]:
                args, kwargs = nnx.merge(graphdef, fixed, variables, arrays)
                nnx.update(args[place], point)
                out = loss_fn(*args, **kwargs)
                value, aux = out if has_aux else (out, None)
                _, after = nnx.state((args, kwargs), wrt, nnx.Variable, ...)[:2]
                return value, (aux, nnx.as_pure(after))

            (value, (aux, after)), grads = jax.value_and_grad(loss, has_aux=True)(point)
            if not plain:
                _check_same_variables(after, variables)
            return (value, grads), aux, after

        def by_flax() -> tuple[Any, Any, Any]:
            out, grads = nnx.value_and_grad(loss_fn, argnums=argnums, has_aux=has_aux)(
                *args, **kwargs
            )
            value, aux = out if has_aux else (out, None)
            return (value, nnx.as_pure(grads)), aux, None

        def chosen(arrays: Any) -> Any:
            few = chosen_arguments(part, args[:place] + args[place + 1 :], {})
            call = (*few[:place], args[place], *few[place:])
            return nnx.as_pure(nnx.state((call, kwargs), wrt, nnx.Variable, ...)[2])

        (value, grads), aux, after, again = Evaluation(
            once, variables, accumulate, axis_name
        ).with_part(
            nnx.as_pure(params),
            arrays,
            chosen if callable(part) else part,
            in_two=accumulate,
            first=by_flax if plain else None,
        )
        if after is not None:  # otherwise Flax has updated them itself
            nnx.update((args, kwargs), after)
        return ((value, aux) if has_aux else value), _as_variables(grads, params), again

    return evaluate


def _differentiated(argnums: Any) -> tuple[int, Any]:
    if isinstance(argnums, nnx.DiffState):
        return argnums.argnum, argnums.filter
    if isinstance(argnums, int):
        return argnums, nnx.Param
    raise TypeError(
        f"`argnums` must be the position of one model or an nnx.DiffState, got {argnums!r}; put "
        "several models into one, for example nnx.List([...])."
    )


def _check_same_variables(after: Any, before: Any) -> None:
    ours: object = jax.tree.structure(after)
    theirs: object = jax.tree.structure(before)
    if ours != theirs:
        raise ValueError(
            "`loss_fn` must leave the model with the variables that it had, under `accumulate` and "
            f"`axis_name`, got {ours}, expected {theirs}; pop what it sows before it returns, "
            "and return that as auxiliary data: `nnx.pop(model, nnx.Intermediate)`."
        )


def _as_variables(grads: Updates, params: Params) -> Any:
    """``grads`` as ``nnx.grad`` returns them: in the variables of the params."""
    return jax.tree.map(
        lambda variable, grad: variable.replace(grad),
        params,
        grads,
        is_leaf=lambda leaf: isinstance(leaf, nnx.Variable),
    )
