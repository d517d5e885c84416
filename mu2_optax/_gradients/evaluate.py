"""The gradient of a step, and a function that evaluates it again on its sample or a part of it."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax

from mu2_optax._gradients.batches import Part, check_part, share_of, split_batch
from mu2_optax._gradients.microbatches import scan_microbatches
from mu2_optax._gradients.part import GradOnPart
from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.means import concatenated, mean_of_two
from mu2_optax._internal.sharding import AxisName, axes_of, device_mean, varying_along
from mu2_optax._internal.types import Params, Tree

Again: TypeAlias = dict[str, Any]
"""The keyword arguments ``grad_fn`` and ``batch`` of ``tx.update``."""

ValueAndGrad: TypeAlias = Callable[..., tuple[Any, Tree, Again]]
"""A function of a loss's arguments that returns (value, grads, again)."""

Once: TypeAlias = Callable[[Tree, Any, Any], tuple[tuple[Any, Tree], Any, Any]]
"""A function of (params, carried, data) that returns ((value, grads), aux, carried)."""


def value_and_grad(
    loss_fn: Callable[..., Any],
    *,
    has_aux: bool = False,
    accumulate: bool = False,
    axis_name: AxisName | None = None,
    part: Part | None = None,
) -> ValueAndGrad:
    r"""Like ``jax.value_and_grad``, but the gradient can be evaluated again on the same sample.

    .. math:: (x_t, z_t) \mapsto f(x_t; z_t),\ \nabla f(x_t; z_t),\ \nabla f(\cdot\,; z_t)

    Here :math:`x_t` is the first argument of the loss and :math:`z_t` everything else that it
    depends on, in its other arguments or closed over: the batch, batch statistics, a dropout key.
    The auxiliary data (in Flax linen, the collections that ``apply`` has mutated) are those at
    :math:`x_t`; those of later evaluations are dropped.

    The change of the gradient between two nearby points has little noise, so a ``part`` S of the
    batch B is enough to estimate it:

    .. math:: \tilde g_{t-1} = g_t(B) - \bigl(g_t(S) - \nabla f(x_{t-1}; S)\bigr)

    Corrected momentum stays unbiased; the smoothness variance :math:`\sigma_L^2` of its bound is
    that of S, |B|/|S| times as large. The loss must be a *mean* over the samples.

    Args:
      loss_fn: A function whose first argument is the params. It returns the loss, or a pair of the
        loss and auxiliary data.
      has_aux: Whether ``loss_fn`` returns a pair.
      accumulate: Whether every array among the other arguments has a leading axis that counts
        microbatches (of keys, too: one each). They are evaluated one after another, with memory
        for one. The loss and the gradients are means; auxiliary data keep the leading axis.
      axis_name: The axis of the ``jax.shard_map`` or ``jax.pmap`` around the step, if there is one,
        or a tuple of axes. The loss and the gradients are then means over its devices, in every
        evaluation; auxiliary data are those of each device. A ``pmean`` of the gradients after that
        changes nothing; without ``axis_name`` it would reach only one of the gradients of a step,
        and the devices would drift apart.
      part: The samples S for the further evaluations: a share in (0, 1] of the leading axis of
        every array among the other arguments (S is the first samples; arrays without axes, such as
        a temperature, belong to every sample), or, for keys, statistics and ragged batches, a
        function of these arguments that returns them for the part, as a tuple. The value, ``grads``
        and auxiliary data are those of the whole batch. With a share, a step costs 1 + |S|/|B|
        gradients. With a function it costs 1 + 2|S|/|B|, and so does a share with ``has_aux`` but
        without ``accumulate``, because auxiliary data of two parts are not combined. With
        ``accumulate``, S consists of the first microbatches.

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

    References:
      Li et al., `PAGE <https://arxiv.org/abs/2008.10898>`_, ICML 2021, for small batches in a
      correction
    """
    check_callable("loss_fn", loss_fn, "loss_fn(params, batch)")
    check_part("part", part)
    differentiated = jax.value_and_grad(loss_fn, has_aux=has_aux)
    few: Any = part
    if callable(part):
        few = lambda sample: (chosen_arguments(part, *sample), {})

    def once(point: Any, carried: Any, sample: Any) -> tuple[Any, Any, Any]:
        args, kwargs = sample
        result, grads = differentiated(point, *args, **kwargs)
        value, aux = result if has_aux else (result, None)
        return (value, grads), aux, carried

    def evaluate(params: Params, *args: Any, **kwargs: Any) -> tuple[Any, Any, Again]:
        evaluation = Evaluation(once, None, accumulate, axis_name)
        (value, grads), aux, _, again = evaluation.with_part(
            params, (args, kwargs), few, in_two=accumulate or not has_aux
        )
        return ((value, aux) if has_aux else value), grads, again

    return evaluate


class Evaluation(NamedTuple):
    """How a step evaluates its samples, every time.

    Attributes:
      once: Evaluates the loss and its gradient.
      carried: What every evaluation starts from: batch statistics, the state of a generator.
      accumulate: Whether the leading axis of the data counts microbatches.
      axis_name: The axes of devices to take means over.
    """

    once: Once
    carried: Any = None
    accumulate: bool = False
    axis_name: AxisName | None = None

    def at(self, params: Params, carried: Any, data: Any) -> tuple[Any, Any, Any]:
        """((value, grads), aux, carried), over all microbatches and devices."""
        evaluate = functools.partial(self.once, varying_along(params, axes_of(self.axis_name)))
        if self.accumulate:
            evaluate = functools.partial(scan_microbatches, evaluate)
        means, aux, carried = evaluate(carried, data)
        return device_mean(means, self.axis_name), aux, carried

    def grads(self, params: Params, data: Any) -> Any:
        """The gradient alone."""
        (_, grads), _, _ = self.at(params, self.carried, data)
        return grads

    def with_part(
        self,
        params: Params,
        data: Any,
        part: Part | None,
        *,
        in_two: bool,
        first: Callable[[], tuple[Any, Any, Any]] | None = None,
    ) -> tuple[Any, Any, Any, Again]:
        """Evaluates ``data`` at params, and returns what evaluates a part of them at other points.

        Args:
          params: The point at which to evaluate.
          data: The samples.
          part: A share, or a function of ``data``; None for all of them.
          in_two: Whether to evaluate a share and the rest one after another and combine them.
            Otherwise the share is evaluated twice: with the whole, and by itself.
          first: Another way to evaluate the whole of ``data`` at params.

        Returns:
          ((value, grads), aux, carried, again).
        """
        if in_two and part not in (None, 1) and not callable(part):
            few, rest, share = split_batch("part", part, data)
            means, aux, carried = self.at(params, self.carried, few)
            here = means[1]
            if share < 1:
                others, more, carried = self.at(params, carried, rest)
                means, aux = mean_of_two(share, means, others), concatenated(aux, more)
            again = {"grad_fn": GradOnPart(self.grads, means[1], here, share), "batch": few}
            return means, aux, carried, again
        means, aux, carried = first() if first else self.at(params, self.carried, data)
        if part is None or part == 1:
            return means, aux, carried, {"grad_fn": self.grads, "batch": data}
        few = part(data) if callable(part) else split_batch("part", part, data)[0]
        here = self.grads(params, few)
        grad_fn = GradOnPart(self.grads, means[1], here, share_of(few, data))
        return means, aux, carried, {"grad_fn": grad_fn, "batch": few}


def chosen_arguments(part: Any, args: Any, kwargs: Any) -> tuple[Any, ...]:
    """The loss's arguments for a part, as the function ``part`` returns them."""
    chosen = part(*args, **kwargs)
    if not isinstance(chosen, tuple):
        raise TypeError(
            "`part` must return the loss's other arguments for the part, as a tuple, got "
            f"{type(chosen).__name__}; for one argument, `lambda batch: (batch[:8],)`."
        )
    return chosen
