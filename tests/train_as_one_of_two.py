"""One of two processes that train together.

python train_as_one_of_two.py PROCESS PORT STEPS RESULT
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import multihost_utils
from jax.sharding import AxisType

import mu2_optax
from examples import distributed

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"

OPTIMIZERS = {
    "mu2_sgd": mu2_optax.mu2_sgd(0.2, mu2_optax.linear_momentum()),
    "mu2_extra_sgd": mu2_optax.reject_nonfinite(mu2_optax.mu2_extra_sgd(0.002)),
}


def all_devices():
    devices = jax.devices()
    return jax.make_mesh((len(devices),), ("all",), (AxisType.Auto,), devices=devices)


def estimates_of_the_batch_mean(steps=5):
    """The d of a loss whose gradient is the mean of the batch, wherever it is taken.

    Both gradients of a step are equal if and only if both are taken on the same global batch, and
    then d is an exponential average of the means of the batches.
    """
    mesh = all_devices()
    tx = mu2_optax.mu2_sgd(0.1, mu2_optax.fixed_momentum(gamma=0.5, beta=0.25))
    grad_fn = jax.grad(lambda params, batch: jnp.mean(batch["y"] * params))
    params = distributed.shard(mesh, np.zeros(1, np.float32), axis=0)
    state = tx.init(params)

    @jax.jit
    def step(params, state, batch):
        grads = grad_fn(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state

    seen = []
    for number in range(steps):
        batch = {"y": distributed.shard(mesh, distributed.global_batch(number)["y"], axis=0)}
        params, state = jax.block_until_ready(step(params, state, batch))
        seen.append(float(state.d.addressable_shards[0].data[0]))
    return np.array(seen)


def main(process, port, steps, result):
    jax.distributed.initialize(f"127.0.0.1:{port}", num_processes=2, process_id=int(process))
    assert jax.process_count() == jax.device_count() == 2
    arrays = {}
    for name, tx in OPTIMIZERS.items():
        params, state, loss = distributed.train(int(steps), tx)
        for leaf in jax.tree.leaves(state):
            assert leaf.ndim == 0 or leaf.addressable_shards[0].data.size * 2 == leaf.size
        arrays |= {
            f"{name} {key}": multihost_utils.process_allgather(value, tiled=True)
            for key, value in {**params, "loss": loss}.items()
        }
    arrays["estimates"] = estimates_of_the_batch_mean()
    np.savez(result, **arrays)


if __name__ == "__main__":
    main(*sys.argv[1:])
