"""Flax NNX: a training step of ``nnx.value_and_grad`` and ``nnx.Optimizer`` becomes a μ² step.

Two lines change::

    (loss, aux), grads, again = mu2_optax.nnx.value_and_grad(loss_fn, has_aux=True)(model, batch)
    optimizer.update(model, grads, **again)
"""

try:
    import flax as _flax  # noqa: F401
except ImportError as error:
    raise ImportError("`mu2_optax.nnx` needs Flax: `pip install flax`") from error

from mu2_optax.nnx._average import eval_model as eval_model
from mu2_optax.nnx._average import recalibrate as recalibrate
from mu2_optax.nnx._value_and_grad import value_and_grad as value_and_grad
