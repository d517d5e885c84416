"""Trains one model on however many devices and processes there are, with the same result.

One device (3 s on a 2-core x86-64 CPU), and eight devices in one process:

    python -m examples.distributed
    XLA_FLAGS=--xla_force_host_platform_device_count=8 python -m examples.distributed

Two processes, each in a terminal or on a machine of its own (with the first one's address; on a
cluster that JAX knows, such as Slurm or a TPU pod, `--processes` is enough):

    python -m examples.distributed --processes 2 --process 0 --coordinator 127.0.0.1:1234
    python -m examples.distributed --processes 2 --process 1 --coordinator 127.0.0.1:1234

Each prints `final loss: 0.022688`. The batch is split over the devices, and so are the parameters
and the state of the optimizer (fully sharded): no device holds a whole copy. Both evaluations of a
step are inside one jitted function of the global batch, so that they see the same samples on every
process. The arithmetic is in float64, so that the order of sums, which depends on the number of
devices, does not show in the printed digits.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import mu2_optax

FEATURES, HIDDEN, BATCH = 16, 240, 240  # 240 is a multiple of most numbers of devices


def global_batch(step):
    """The samples of a step, the same on every process: a noisy teacher."""
    rng = np.random.default_rng([0, step])
    x = rng.normal(size=(BATCH, FEATURES))
    y = np.tanh(x @ np.sin(np.arange(FEATURES))) + 0.1 * rng.normal(size=BATCH)
    return {"x": x, "y": y}


def shard(mesh, array, axis):
    """Splits a host array over the mesh along an axis; each process passes on the part it owns.

    An array whose length is no multiple of the number of devices is copied to each.
    """
    divides = array.shape[axis] % mesh.size == 0
    spec = PartitionSpec(*[None] * axis, "all") if divides else PartitionSpec()
    return jax.make_array_from_callback(
        array.shape, NamedSharding(mesh, spec), lambda index: array[index]
    )


def initial_params():
    """The parameters of a network with one hidden layer, the same on every process."""
    rng = np.random.default_rng(1)
    return {
        "inner": rng.normal(size=(FEATURES, HIDDEN)) / FEATURES**0.5,
        "bias": np.zeros(HIDDEN),
        "outer": rng.normal(size=HIDDEN) / HIDDEN**0.5,
    }


def loss_fn(params, batch):
    """The mean squared error over the global batch."""
    hidden = jnp.tanh(batch["x"] @ params["inner"] + params["bias"])
    return jnp.mean((hidden @ params["outer"] - batch["y"]) ** 2)


def train(steps, tx, devices=None):
    """Trains on all devices; returns the params, the optimizer's state and the last loss."""
    devices = devices or jax.devices()
    mesh = jax.make_mesh((len(devices),), ("all",), (AxisType.Auto,), devices=devices)
    params = {
        name: shard(mesh, array, axis=array.ndim - 1) for name, array in initial_params().items()
    }
    state = tx.init(params)
    grad_fn = jax.grad(loss_fn)

    @jax.jit
    def step(params, state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
        return optax.apply_updates(params, updates), state, loss

    for number in range(steps):
        batch = {name: shard(mesh, a, axis=0) for name, a in global_batch(number).items()}
        params, state, loss = step(params, state, batch)
        loss.block_until_ready()  # host devices share threads: two steps in flight can deadlock
    return params, state, loss


def main():
    """Parses the command line, trains and prints the last loss."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--processes", type=int, nargs="?", const=0)
    parser.add_argument("--process", type=int)
    parser.add_argument("--coordinator", metavar="ADDRESS:PORT")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error(f"--steps must be at least 1, got {args.steps}")
    jax.config.update("jax_enable_x64", True)
    if args.processes is not None:
        jax.distributed.initialize(args.coordinator, args.processes or None, args.process)

    tx = mu2_optax.mu2_sgd(0.2, mu2_optax.fixed_momentum(gamma=0.2, beta=0.5))
    _, state, loss = train(args.steps, tx)
    print(f"devices: {jax.device_count()}, processes: {jax.process_count()}")
    bytes_here = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
    print(f"optimizer state on each device: {bytes_here} bytes")
    print(f"final loss: {loss:.6f}")


if __name__ == "__main__":
    main()
