"""Flax linen: a training step of ``jax.value_and_grad`` and ``TrainState`` becomes a μ² step.

Two lines change::

    (loss, aux), grads, again = mu2_optax.value_and_grad(loss_fn, has_aux=True)(state.params)
    state = state.apply_gradients(grads=grads, batch_stats=aux["batch_stats"], **again)
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self, TypeVar

import jax
import jax.numpy as jnp
import optax

from mu2_optax._gradients.part import GradOnPart
from mu2_optax._internal.batch_norm import check_batch_norms_ran, mean_over
from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.means import mean_of_two
from mu2_optax._internal.types import Batch, Params, Tree, Updates
from mu2_optax._reading.find import eval_params

try:
    from flax import linen
    from flax.linen.fp8_ops import OVERWRITE_WITH_GRADIENT
    from flax.training import train_state
except ImportError as error:
    raise ImportError("`mu2_optax.linen` needs Flax: `pip install flax`") from error

__all__ = [
    "TrainState",
    "eval_state",
    "recalibrate",
]

_EXTRA_ARGS = frozenset({"grad_fn", "batch", "prev_grads", "value", "grad", "value_fn"})
"""What goes to ``tx.update``: this library's extra args, and those of Optax's own transforms."""


AnyTrainState = TypeVar("AnyTrainState", bound=train_state.TrainState)


class TrainState(train_state.TrainState):
    """Flax's train state with batch statistics, whose optimizer may evaluate the gradient again.

    Attributes:
      batch_stats: The batch statistics, for models that have them.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax, mu2_optax.linen
      >>> from flax import linen
      >>> model = linen.Dense(3)
      >>> params = model.init(jax.random.key(0), jnp.ones((1, 2)))["params"]
      >>> tx = mu2_optax.mu2_sgd(0.1)
      >>> state = mu2_optax.linen.TrainState.create(apply_fn=model.apply, params=params, tx=tx)
      >>> @jax.jit
      ... def train_step(state, batch):
      ...     def loss_fn(params):
      ...         return jnp.mean(state.apply_fn({"params": params}, batch) ** 2)
      ...     loss, grads, again = mu2_optax.value_and_grad(loss_fn)(state.params)
      ...     return state.apply_gradients(grads=grads, **again), loss
      >>> state, loss = train_step(state, jnp.ones((8, 2)))
    """

    batch_stats: Any = None

    @classmethod
    def create(
        cls,
        *,
        apply_fn: Callable[..., Any],
        params: Params,
        tx: optax.GradientTransformation,
        **fields: Any,
    ) -> Self:
        """A new train state.

        Args:
          apply_fn: Usually ``model.apply``.
          params: The parameters.
          tx: Any Optax optimizer.
          **fields: Other fields, such as ``batch_stats``.

        Returns:
          The state before the first step. ``step`` is an array from the start, as it is after every
          step, so that a checkpoint is restored into a new state exactly as it was.
        """
        step = jnp.zeros([], jnp.int32)
        opt_state = tx.init(_optimized(params))
        return cls(
            step=step, apply_fn=apply_fn, params=params, tx=tx, opt_state=opt_state, **fields
        )

    def apply_gradients(self, *, grads: Updates, **kwargs: Any) -> Self:
        """Takes a step of ``tx``.

        Args:
          grads: The gradients at ``params``.
          **kwargs: ``grad_fn`` and ``batch``, or ``prev_grads``, which go to ``tx.update``, as do
            ``value``, ``grad`` and ``value_fn``; and new values for fields of this state, such as
            ``batch_stats``.

        Returns:
          The state after the step. As in Flax, the collection of params that is overwritten with
          its gradient (the scales of fp8 layers) is not moved by the optimizer; it is the same in
          every evaluation of a step.
        """
        fields = {field.name for field in dataclasses.fields(self)}
        unknown = sorted(kwargs.keys() - fields - _EXTRA_ARGS)
        if unknown:
            raise TypeError(
                f"`apply_gradients` takes fields of the train state ({', '.join(sorted(fields))}) "
                f"and extra args of the optimizer ({', '.join(sorted(_EXTRA_ARGS))}), got "
                f"{', '.join(unknown)}; add a field in a subclass of TrainState."
            )
        extra_args = {name: kwargs[name] for name in kwargs.keys() - fields}
        replaced = {name: kwargs[name] for name in kwargs.keys() & fields}
        update = optax.with_extra_args_support(self.tx).update
        overwrites = _overwrites(grads)
        if overwrites and "grad_fn" in extra_args:
            extra_args["grad_fn"] = GradOnPart.of(extra_args["grad_fn"]).seen_as(
                lambda point: {**self.params, "params": point}, _optimized
            )
        if overwrites and "prev_grads" in extra_args:
            extra_args["prev_grads"] = _optimized(extra_args["prev_grads"])
        params = _optimized(self.params)
        updates, opt_state = update(_optimized(grads), self.opt_state, params, **extra_args)
        params = optax.apply_updates(params, updates)
        if overwrites:
            overwritten = grads[OVERWRITE_WITH_GRADIENT]
            params = {"params": params, OVERWRITE_WITH_GRADIENT: overwritten}
        return self.replace(
            step=self.step + 1,
            params=params,
            opt_state=opt_state,
            **replaced,
        )


def eval_state(state: AnyTrainState) -> AnyTrainState:
    r"""The train state at the average of the iterates, to evaluate, save and export.

    .. math:: x = \frac{y - \lambda w}{1 - \lambda}

    Here :math:`y` is ``state.params``, where gradients are taken; see
    :func:`mu2_optax.eval_params`. Continue training with ``state``, not with the result.

    Args:
      state: Flax's train state, this module's, or another subclass of Flax's, with
        :func:`mu2_optax.mu2_auto` or another optimizer that averages, in any chain or wrapper.

    Returns:
      The same state with :math:`x` as its ``params``. Batch statistics are still those of
      :math:`y`: :func:`recalibrate` them where the model has a BatchNorm.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax, mu2_optax.linen
      >>> from flax.training.train_state import TrainState
      >>> params, tx = {"w": jnp.zeros(2)}, mu2_optax.mu2_auto()
      >>> state = TrainState.create(apply_fn=None, params=params, tx=tx)
      >>> loss_fn = lambda params: jnp.mean((params["w"] - 1) ** 2)
      >>> @jax.jit
      ... def train_step(state):
      ...     return state.apply_gradients(grads=jax.grad(loss_fn)(state.params))
      >>> for _ in range(100):
      ...     state = train_step(state)
      >>> bool(loss_fn(mu2_optax.linen.eval_state(state).params) < 1e-3)
      True
    """
    average = eval_params(state.opt_state, _optimized(state.params))
    if _overwrites(state.params):
        average = {**state.params, "params": average}
    return state.replace(params=average)


def recalibrate(
    forward: Callable[[Tree, Batch], Any], variables: Tree, batches: Iterable[Batch]
) -> Tree:
    r"""The means of the statistics of every BatchNorm over ``batches``, at these params.

    :func:`mu2_optax.nnx.recalibrate` explains what they are and when to compute them.

    Args:
      forward: Runs the model on a batch in training mode and returns what ``apply`` returns, such
        as ``lambda variables, batch: model.apply(variables, batch, mutable=["batch_stats"])``.
      variables: The collections, with ``"params"`` and ``"batch_stats"``.
      batches: Some batches of training data, as large as those of training.

    Returns:
      The new ``batch_stats``.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax.linen
      >>> from flax import linen
      >>> model = linen.BatchNorm(use_running_average=False)
      >>> batches = 3.0 + jax.random.normal(jax.random.key(0), (10, 64, 2))
      >>> variables = model.init(jax.random.key(0), batches[0])
      >>> forward = lambda variables, batch: model.apply(variables, batch, mutable=["batch_stats"])
      >>> batch_stats = mu2_optax.linen.recalibrate(forward, variables, batches)
      >>> bool(jnp.allclose(batch_stats["mean"], batches.mean((0, 1)), atol=1e-6))
      True
    """
    check_callable("forward", forward, "lambda variables, batch: model.apply(variables, batch)")
    blank = {
        **variables,
        "batch_stats": optax.tree.zeros_like(variables.get("batch_stats", {})),
    }

    @jax.jit
    def statistics(blank: Any, batch: Batch) -> Any:
        updated: list[bool] = []
        calls: Counter[tuple[str, ...]] = Counter()

        def keep_mean_over_calls(run: Any, args: Any, kwargs: Any, context: Any) -> Any:
            norm = context.module
            if not isinstance(norm, linen.BatchNorm) or context.method_name != "__call__":
                return run(*args, **kwargs)
            before = _running(norm)
            first = optax.tree.zeros_like(before)
            if norm.is_mutable_collection("batch_stats"):
                _put(norm, first)
            out = run(*args, **kwargs)
            after = _running(norm)
            updated.append(all(after["mean"] is not old["mean"] for old in (first, before)))
            if updated[-1]:  # after = m 0 + (1 - m) batch, so this is exact
                calls[norm.path] += 1
                batch_statistics = jax.tree.map(lambda a: a / (1 - norm.momentum), after)
                _put(norm, mean_of_two(1 / calls[norm.path], batch_statistics, before))
            return out

        with linen.intercept_methods(keep_mean_over_calls):
            result = forward(blank, batch)
        check_batch_norms_ran(updated)
        return result[1]["batch_stats"]

    return mean_over(functools.partial(statistics, blank), batches)


def _optimized(tree: Tree) -> Any:
    """The part that the optimizer moves: all except what Flax overwrites with its gradient."""
    return tree["params"] if _overwrites(tree) else tree


def _overwrites(tree: Tree) -> bool:
    """Whether a tree, of any kind, holds what Flax overwrites with its gradient."""
    return isinstance(tree, Mapping) and OVERWRITE_WITH_GRADIENT in tree


def _put(norm: linen.BatchNorm, statistics: dict[str, Any]) -> None:
    for name, value in statistics.items():
        norm.put_variable("batch_stats", name, value)


def _running(norm: linen.BatchNorm) -> dict[str, Any]:
    return {name: norm.get_variable("batch_stats", name) for name in ("mean", "var")}
