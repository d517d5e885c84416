"""Flax NNX: a training step of ``nnx.value_and_grad`` and ``nnx.Optimizer`` becomes a μ² step.

Two lines change::

    (loss, aux), grads, again = mu2_optax.nnx.value_and_grad(loss_fn, has_aux=True)(model, batch)
    optimizer.update(model, grads, **again)
"""

import functools
import inspect
import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import jax

from mu2_optax._batch_norm import check_batch_norms_ran, mean_over
from mu2_optax._batches import (
    Part,
    PartOfBatch,
    check_part,
    chosen_arguments,
    is_share,
    measured_part,
    split_batch,
)
from mu2_optax._checks import check_callable
from mu2_optax._find import eval_params
from mu2_optax._same_sample import scan_microbatches
from mu2_optax._sharding import AxisName, axes_of, device_mean, varying_along
from mu2_optax._trees import concatenated, mean_of_two

try:
    from flax import nnx
except ImportError as error:
    raise ImportError("`mu2_optax.nnx` needs Flax: `pip install flax`") from error

__all__ = [
    "eval_model",
    "recalibrate",
    "value_and_grad",
]

ValueAndGrad: TypeAlias = Callable[..., tuple[Any, Any, dict[str, Any]]]


def value_and_grad(
    loss_fn: Callable[..., Any],
    *,
    argnums: int | nnx.DiffState = 0,
    has_aux: bool = False,
    accumulate: bool = False,
    axis_name: AxisName | None = None,
    part: Part | None = None,
) -> ValueAndGrad:
    r"""``nnx.value_and_grad`` that can be evaluated again on the same sample.

    .. math:: (x_t, z_t) \mapsto f(x_t; z_t),\ \nabla f(x_t; z_t),\ \nabla f(\cdot\,; z_t)

    Here :math:`x_t` is the parameters of the model and :math:`z_t` everything else that the loss
    depends on: the batch, the batch statistics, the state of each generator, in the model or in
    another argument. :math:`z_t` is put aside as plain values before the first forward, so that
    every later evaluation sees the same dropout masks and statistics. Only the evaluation at
    :math:`x_t` updates statistics and advances generators, exactly as Flax's own would.

    Args:
      loss_fn: A function such as ``loss_fn(model, batch, rngs)`` that returns the loss, or a pair
        of the loss and auxiliary data.
      argnums: The position of the model, or ``nnx.DiffState(position, filter)`` for gradients with
        respect to other variables than ``nnx.Param``, as in Flax. An optimizer that moves only some
        of them (its ``wrt``) needs no ``DiffState``.
      has_aux: Whether ``loss_fn`` returns a pair.
      accumulate: Whether every array among the arguments has a leading axis that counts
        microbatches. They are evaluated one after another, in the memory of one, and modules and
        generators advance from each to the next. The loss and the gradients are means; auxiliary
        data keep the leading axis.
      axis_name: The axis of the ``jax.shard_map`` or ``jax.pmap`` around the step, or a tuple of
        axes, as in :func:`mu2_optax.value_and_grad`. Statistics and auxiliary data are those of
        each device.
      part: The samples to use in the further evaluations, as in :func:`mu2_optax.value_and_grad`; a
        function gets the arguments other than the model, in their order. Statistics and generators
        belong to every sample: only the evaluation of the whole batch updates them, and both
        evaluations of the part begin with the same ones. BatchNorm normalises a part by the part's
        own statistics.

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
    axes = axes_of(axis_name)
    plain = not accumulate and axis_name is None  # then Flax's own makes the first evaluation

    def evaluate(*args: Any, **kwargs: Any) -> tuple[Any, Any, dict[str, Any]]:
        if callable(part):  # it gets the data in their order, even if they are given by name
            bound = inspect.signature(loss_fn).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        graphdef, *states = nnx.split((args, kwargs), wrt, nnx.Variable, ...)
        fixed, variables, arrays = (nnx.as_pure(state) for state in states)
        sample = (variables, arrays)

        def once(point: Any, variables: Any, arrays: Any) -> tuple[Any, Any, Any]:
            def loss(point: Any) -> tuple[Any, Any]:
                args, kwargs = nnx.merge(graphdef, fixed, variables, arrays)
                nnx.update(args[place], point)
                out = loss_fn(*args, **kwargs)
                value, aux = out if has_aux else (out, None)
                _, after = nnx.state((args, kwargs), wrt, nnx.Variable, ...)[:2]
                return value, (aux, nnx.as_pure(after))

            differentiate = jax.value_and_grad(loss, has_aux=True)
            (value, (aux, after)), grads = differentiate(varying_along(point, axes))
            if not plain:
                _check_same_variables(after, variables)
            return (value, grads), aux, after

        def whole(point: Any, sample: Any) -> tuple[Any, Any, Any]:
            evaluate = functools.partial(once, point)
            means, aux, after = (
                scan_microbatches(evaluate, *sample) if accumulate else evaluate(*sample)
            )
            return device_mean(means, axis_name), aux, after

        def grad_fn(point: Any, sample: Any) -> Any:
            (_, grads), _, _ = whole(point, sample)
            return grads

        def some_of(part: Part) -> PartOfBatch:
            if callable(part):
                few = chosen_arguments(part, args[:place] + args[place + 1 :], {})
                call = (*few[:place], args[place], *few[place:])
                chosen = nnx.as_pure(nnx.state((call, kwargs), wrt, nnx.Variable, ...)[2])
                some = measured_part(arrays, chosen)
            else:
                some = split_batch("part", part, arrays)[0]
            return some._replace(sample=(variables, some.sample))

        def finished(params: Any, means: Any, aux: Any, after: Any, batch: Any) -> Any:
            value, grads = means
            nnx.update((args, kwargs), after)
            result = (value, aux) if has_aux else value
            return result, _as_variables(grads, params), {"grad_fn": grad_fn, "batch": batch}

        batch: Any
        if accumulate and is_share(part):
            params = nnx.state(args[place], wrt)
            point = nnx.as_pure(params)
            here, rest = split_batch("part", part, arrays)
            means, aux, after = whole(point, (variables, here.sample))
            batch = here._replace(sample=(variables, here.sample), grads=means[1])
            if here.share < 1:
                others, rest_aux, after = whole(point, (after, rest))
                means, aux = mean_of_two(here.share, means, others), concatenated(aux, rest_aux)
            return finished(params, means, aux, after, batch)
        batch = sample if part is None or part == 1 else some_of(part)
        if plain:
            first = nnx.value_and_grad(loss_fn, argnums=argnums, has_aux=has_aux)
            return *first(*args, **kwargs), {"grad_fn": grad_fn, "batch": batch}
        params = nnx.state(args[place], wrt)
        return finished(params, *whole(nnx.as_pure(params), sample), batch)

    return evaluate


def eval_model(model: nnx.M, optimizer: Any) -> nnx.M:
    r"""The model at the average of the iterates, to evaluate, save and export.

    .. math:: x = \frac{y - \lambda w}{1 - \lambda}

    Here :math:`y` is the parameters of ``model``, where gradients are taken; see
    :func:`mu2_optax.eval_params`. Go on training with ``model``, not with what is returned.

    Args:
      model: The model that is trained.
      optimizer: Its ``nnx.Optimizer``, of :func:`mu2_optax.mu2_auto` or of another optimizer that
        averages, in any chain or wrapper.

    Returns:
      A copy of the model with :math:`x` as its parameters. Everything else is as it is in
      ``model``, in its mode and with its batch statistics, which are those of :math:`y`:
      :func:`recalibrate` them where the model has a BatchNorm.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax, mu2_optax.nnx
      >>> from flax import nnx
      >>> model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
      >>> optimizer = nnx.Optimizer(model, mu2_optax.mu2_auto(), wrt=nnx.Param)
      >>> def loss_fn(model):
      ...     return jnp.mean((model(jnp.eye(2)) - 1) ** 2)
      >>> for _ in range(100):
      ...     _ = optimizer.update(model, nnx.grad(loss_fn)(model))
      >>> bool(loss_fn(mu2_optax.nnx.eval_model(model, optimizer)) < 1e-3)
      True
    """
    copy = nnx.clone(model)
    nnx.update(copy, eval_params(optimizer, nnx.state(copy, optimizer.wrt)))
    return copy


def recalibrate(forward: Callable[[Any, Any], Any], model: Any, batches: Iterable[Any]) -> None:
    r"""Sets the statistics of every BatchNorm to their means over ``batches``, at these params.

    .. math:: \mu = \frac1k \sum_{i=1}^k \mu(x; z_i), \qquad
      \sigma^2 = \frac1k \sum_{i=1}^k \sigma^2(x; z_i)

    Here :math:`x` is the params, where the model is evaluated. For a BatchNorm that is called
    several times on a batch, they are the means over its calls. The running statistics of training
    lag by about 1/(1 − momentum) steps; call this before evaluating a model that has moved far in
    that time.

    Args:
      forward: Runs the model on a batch, such as ``lambda model, batch: model(batch["image"])``.
        Its result is not used. Each BatchNorm uses the statistics of the batch; everything else
        runs in the mode the model is in.
      model: The model; its statistics are replaced, and nothing else in it changes.
      batches: Some batches of training data, as large as those of training.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax.nnx
      >>> from flax import nnx
      >>> model = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
      >>> batches = 3.0 + jax.random.normal(jax.random.key(0), (10, 64, 2))
      >>> mu2_optax.nnx.recalibrate(lambda model, batch: model(batch), model, batches)
      >>> bool(jnp.allclose(model.mean[...], batches.mean((0, 1)), atol=1e-6))
      True

    References:
      Izmailov et al., `Averaging Weights Leads to Wider Optima and Better Generalization
      <https://arxiv.org/abs/1803.05407>`_, UAI 2018, which recomputes the statistics at an average
    """
    check_callable("forward", forward, "lambda model, batch: model(batch)")
    trial = nnx.clone(model)
    calls: Counter[int] = Counter()
    for norm in _batch_norms(trial):
        norm.momentum = 0.0  # so that the running statistics are those of the last call
        norm.use_running_average = False
        object.__setattr__(norm, "__class__", _averaging(type(norm), calls))

    @nnx.jit
    def statistics(trial: Any, batch: Any) -> Any:
        calls.clear()
        before = [norm.mean.get_value() for norm in _batch_norms(trial)]
        forward(trial, batch)
        after = [norm.mean.get_value() for norm in _batch_norms(trial)]
        check_batch_norms_ran([new is not old for new, old in zip(after, before, strict=True)])
        return [(norm.mean.get_value(), norm.var.get_value()) for norm in _batch_norms(trial)]

    means = mean_over(functools.partial(statistics, trial), batches)
    for norm, (mean, var) in zip(_batch_norms(model), means, strict=True):
        norm.mean[...], norm.var[...] = mean, var


def _averaging(kind: type[nnx.BatchNorm], calls: Counter[int]) -> Any:
    """A kind of BatchNorm whose statistics are the means over its calls in one forward."""

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        statistics = (self.mean, self.var)
        before = [statistic.get_value() for statistic in statistics]
        out = kind.__call__(self, *args, **kwargs)
        if self.mean.get_value() is not before[0]:
            calls[id(self)] += 1
            for statistic, mean in zip(statistics, before, strict=True):
                statistic[...] = mean_of_two(1 / calls[id(self)], statistic.get_value(), mean)
        return out

    return types.new_class("Averaging", (kind,), {}, lambda body: body.update(__call__=call))


def _batch_norms(model: Any) -> list[nnx.BatchNorm]:
    return [module for _, module in nnx.iter_modules(model) if isinstance(module, nnx.BatchNorm)]


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
            f"`axis_name`, got {ours}, expected {theirs}; if it sows, pop that before it returns, "
            "and return it as auxiliary data: `nnx.pop(model, nnx.Intermediate)`."
        )


def _as_variables(grads: Any, params: Any) -> Any:
    """``grads`` as ``nnx.grad`` gives them: in the variables of the params."""
    return jax.tree.map(
        lambda variable, grad: variable.replace(grad),
        params,
        grads,
        is_leaf=lambda leaf: isinstance(leaf, nnx.Variable),
    )
