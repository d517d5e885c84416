"""Training steps in linen that the tests share."""

import jax
from cnn import cross_entropy
from flax.training import train_state

import mu2_optax.linen


class FlaxState(train_state.TrainState):
    """Flax's own state, with the statistics that its examples add."""

    batch_stats: dict


def make_loss(state, key=None):
    """The loss as Flax's own examples write it: closed over statistics and key."""

    def loss_fn(params, batch):
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            batch["image"],
            mutable=["batch_stats"],
            rngs=None if key is None else {"dropout": key},
        )
        return cross_entropy(logits, batch), (logits, updates.get("batch_stats", {}))

    return loss_fn


def train_step(state, batch, key=None):
    evaluate = mu2_optax.value_and_grad(make_loss(state, key), has_aux=True)
    (loss, (_, batch_stats)), grads, again = evaluate(state.params, batch)
    return state.apply_gradients(grads=grads, batch_stats=batch_stats, **again), loss


def auto_step(state, batch, key=None):
    grads, (_, batch_stats) = jax.grad(make_loss(state, key), has_aux=True)(state.params, batch)
    return state.apply_gradients(grads=grads, batch_stats=batch_stats)
