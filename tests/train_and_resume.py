"""A run that saves as it goes and goes on where it was.

    python train_and_resume.py FORMAT DIRECTORY STEPS

FORMAT is ``orbax`` or ``bytes``. After each step its number is printed; at the end the whole train
state is in ``DIRECTORY/final``.
"""

import functools
import os
import pathlib
import sys

import jax
import orbax.checkpoint as ocp
from cnn import LinenCNN, batches, cross_entropy, linen_variables
from flax import serialization

import mu2_optax
import mu2_optax.linen

EVERY = 3
TX = mu2_optax.reject_nonfinite(mu2_optax.mu2_sgd(0.5, mu2_optax.linear_momentum()))
APPLY = LinenCNN(dropout=0.5).apply


def new_state():
    return mu2_optax.linen.TrainState.create(apply_fn=APPLY, tx=TX, **linen_variables())


@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, batch):
    key = jax.random.fold_in(jax.random.key(7), state.step)

    def loss_fn(params):
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            batch["image"],
            mutable=["batch_stats"],
            rngs={"dropout": key},
        )
        return cross_entropy(logits, batch), updates

    evaluate = mu2_optax.value_and_grad(loss_fn, has_aux=True)
    (_, updates), grads, again = evaluate(state.params)
    return state.apply_gradients(grads=grads, batch_stats=updates["batch_stats"], **again)


class OrbaxStore:
    def __init__(self, directory):
        self.manager = ocp.CheckpointManager(directory / "orbax")

    def save(self, state):
        self.manager.save(int(state.step), args=ocp.args.StandardSave(state))

    def restore(self, state):
        if self.manager.latest_step() is None:
            return state
        target = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        args = ocp.args.StandardRestore(target)
        return self.manager.restore(self.manager.latest_step(), args=args)

    def close(self):
        self.manager.close()


class BytesStore:
    def __init__(self, directory):
        self.path = directory / "bytes"

    def save(self, state):
        write(self.path, serialization.to_bytes(state))

    def restore(self, state):
        if not self.path.exists():
            return state
        return serialization.from_bytes(state, self.path.read_bytes())

    def close(self):
        pass


def write(path, data):
    """Writes all or nothing, however the process ends."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(data)
    os.replace(partial, path)


def main(kind, directory, steps):
    directory = pathlib.Path(directory)
    store = {"orbax": OrbaxStore, "bytes": BytesStore}[kind](directory)
    state = store.restore(new_state())
    print("from", int(state.step), flush=True)
    for number, batch in enumerate(batches(int(steps)), start=1):
        if number <= state.step:
            continue
        state = train_step(state, batch)
        if number % EVERY == 0:
            store.save(state)
        print("step", number, flush=True)
    store.close()
    write(directory / "final", serialization.to_bytes(state))


if __name__ == "__main__":
    main(*sys.argv[1:])
