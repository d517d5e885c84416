"""Training steps in NNX that the tests share."""

from cnn import cross_entropy
from flax import nnx

import mu2_optax.nnx


def loss_fn(model, batch, rngs=None):
    logits = model(batch["image"], rngs)
    return cross_entropy(logits, batch), logits


@nnx.jit
def train_step(model, optimizer, batch, rngs=None):
    evaluate = mu2_optax.nnx.value_and_grad(loss_fn, has_aux=True)
    (loss, _), grads, again = evaluate(model, batch, rngs)
    optimizer.update(model, grads, **again)
    return loss


def auto_step(model, optimizer, batch):
    (loss, _), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, batch)
    optimizer.update(model, grads)
    return loss
