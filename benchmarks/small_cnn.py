"""A small convolutional network with BatchNorm, in Flax linen, for measurements on the digits."""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen

import mu2_optax.linen


class CNN(linen.Module):
    """Two convolutions with BatchNorm and one dense layer.

    Attributes:
      param_dtype: The precision of the params.
      dtype: The precision of the arithmetic.
      statistics_momentum: The momentum of BatchNorm's running statistics.
    """

    param_dtype: Any = jnp.float32
    dtype: Any = jnp.float32
    statistics_momentum: float = 0.9

    @linen.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        """The logits, in float32."""
        precision = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        for features in (16, 32):
            x = linen.Conv(features, (3, 3), **precision)(x)
            x = linen.BatchNorm(
                use_running_average=not train, momentum=self.statistics_momentum, **precision
            )(x)
            x = linen.avg_pool(linen.relu(x), (2, 2), (2, 2))
        x = linen.Dense(10, **precision)(x.reshape(x.shape[0], -1))
        return x.astype(jnp.float32)


def create(model: CNN, tx: Any, key: jax.Array) -> mu2_optax.linen.TrainState:
    """The state of a model before training."""
    variables = model.init(key, jnp.zeros((1, 8, 8, 1)), train=False)
    return mu2_optax.linen.TrainState.create(apply_fn=model.apply, tx=tx, **variables)


@jax.jit
def train_step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
    """One step of the optimizer in the train state; returns the batch's loss as well."""

    def loss_fn(params: Any) -> tuple[jax.Array, Any]:
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            batch["image"],
            mutable=["batch_stats"],
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean(), updates["batch_stats"]

    evaluate = mu2_optax.value_and_grad(loss_fn, has_aux=True)
    (loss, batch_stats), grads, again = evaluate(state.params)
    return state.apply_gradients(grads=grads, batch_stats=batch_stats, **again), loss


def accuracy(state: Any, data: Any) -> float:
    """The share of right answers with the running statistics."""
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    logits = state.apply_fn(variables, data["image"], train=False)
    return float(jnp.mean(logits.argmax(-1) == data["label"]))
