"""A model of Flax NNX at the average: its parameters, and the statistics of BatchNorm there."""

import functools
import types
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from flax import nnx

from mu2_optax._internal.batch_norm import check_batch_norms_ran, mean_over
from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.means import mean_of_two
from mu2_optax._internal.types import Batch
from mu2_optax._reading.find import eval_params


def eval_model(model: nnx.M, optimizer: nnx.Optimizer[nnx.M]) -> nnx.M:
    r"""The model at the average of the iterates, to evaluate, save and export.

    .. math:: x = \frac{y - \lambda w}{1 - \lambda}

    Here :math:`y` is the parameters of ``model``, where gradients are taken; see
    :func:`mu2_optax.eval_params`. Continue training with ``model``, not with the result.

    Args:
      model: The model that is trained.
      optimizer: Its ``nnx.Optimizer``, of :func:`mu2_optax.mu2_auto` or of another optimizer that
        averages, in any chain or wrapper.

    Returns:
      A copy of the model with :math:`x` as its parameters. Everything else is as in ``model``,
      including its mode and its batch statistics, which are those of :math:`y`:
      :func:`recalibrate` them where the model has a BatchNorm.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax, mu2_optax.nnx
      >>> from flax import nnx
      >>> model = nnx.Linear(2, 1, rngs=nnx.Rngs(0))
      >>> optimizer = nnx.Optimizer(model, mu2_optax.mu2_auto(), wrt=nnx.Param)
      >>> def loss_fn(model):
      ...     return jnp.mean((model(jnp.eye(2)) - 1) ** 2)
      >>> @nnx.jit
      ... def train_step(model, optimizer):
      ...     optimizer.update(model, nnx.grad(loss_fn)(model))
      >>> for _ in range(100):
      ...     train_step(model, optimizer)
      >>> bool(loss_fn(mu2_optax.nnx.eval_model(model, optimizer)) < 1e-3)
      True
    """
    copy = nnx.clone(model)
    nnx.update(copy, eval_params(optimizer, nnx.state(copy, optimizer.wrt)))
    return copy


def recalibrate(
    forward: Callable[[nnx.M, Batch], object], model: nnx.M, batches: Iterable[Batch]
) -> None:
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
    def statistics(trial: Any, batch: Batch) -> Any:
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
    """A kind of BatchNorm whose statistics are the means over its calls in one forward pass."""

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
