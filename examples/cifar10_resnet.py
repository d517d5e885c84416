"""ResNet-18 on CIFAR-10, in Flax linen, over whatever devices there are, trained with μ²-SGD.

The first command is the paper's setting, 25 epochs with batch 32, for which one wants an
accelerator; the second only shows that it learns:

    python -m examples.cifar10_resnet
    python -m examples.cifar10_resnet --width 4 --depth 10 --steps 500    # 82 s

Measured on a 2-core x86-64 CPU, no GPU: the second command gives the test accuracy 0.2665; the
first was not run. The images are augmented in the jitted step (random crop with padding 2, random
flip) before the gradient is evaluated, so that both evaluations see the same augmented batch. With
``--checkpoint FILE`` the state is saved after each epoch, and a command that finds the file goes on
from it, bit for bit. The batch is split over the devices, for example

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python -m examples.cifar10_resnet
"""

import argparse
import os
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from flax import serialization
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tqdm import tqdm

import mu2_optax
import mu2_optax.linen
from examples import data as datasets
from examples.option_types import fraction, positive_float, positive_int

STAGES = {10: (1, 1, 1, 1), 18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}


class ResNet(nn.Module):
    """A residual network of basic blocks for 32×32 images.

    Attributes:
      depth: 10, 18 or 34 layers.
      width: Channels of the first stage; each further stage doubles them.
    """

    depth: int = 18
    width: int = 64

    @nn.compact
    def __call__(self, x, train: bool):
        conv = partial(nn.Conv, use_bias=False)
        norm = partial(nn.BatchNorm, use_running_average=not train, momentum=0.9)
        x = nn.relu(norm()(conv(self.width, (3, 3))(x)))
        for stage, blocks in enumerate(STAGES[self.depth]):
            channels = self.width * 2**stage
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                y = nn.relu(norm()(conv(channels, (3, 3), (stride, stride))(x)))
                y = norm(scale_init=nn.initializers.zeros)(conv(channels, (3, 3))(y))
                if x.shape != y.shape:
                    x = norm()(conv(channels, (1, 1), (stride, stride))(x))
                x = nn.relu(x + y)
        return nn.Dense(10)(x.mean(axis=(1, 2)))


def augment(key, images, padding=2):
    """A random crop after padding with zeros, and a random flip, for each image on its own."""
    _, height, width, channels = images.shape
    margin = ((padding, padding), (padding, padding), (0, 0))

    def one(key, image):
        crop_key, flip_key = jax.random.split(key)
        row, column = jax.random.randint(crop_key, (2,), 0, 2 * padding + 1)
        shape = (height, width, channels)
        image = jax.lax.dynamic_slice(jnp.pad(image, margin), (row, column, 0), shape)
        return jnp.where(jax.random.bernoulli(flip_key), image[:, ::-1], image)

    return jax.vmap(one)(jax.random.split(key, len(images)), images)


def make_loss(apply, batch_stats, images, labels):
    """The mean cross-entropy as a function of the params, and the new statistics."""

    def loss_fn(params):
        variables = {"params": params, "batch_stats": batch_stats}
        logits, new = apply(variables, images, train=True, mutable=["batch_stats"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
        return losses.mean(), new["batch_stats"]

    return loss_fn


@partial(jax.jit, donate_argnums=0)
def train_step(state, images, labels, key):
    """One step on an augmented batch."""
    images = augment(jax.random.fold_in(key, state.step), images)
    loss_fn = make_loss(state.apply_fn, state.batch_stats, images, labels)
    evaluate = mu2_optax.value_and_grad(loss_fn, has_aux=True)
    (loss, batch_stats), grads, again = evaluate(state.params)
    return state.apply_gradients(grads=grads, batch_stats=batch_stats, **again), loss


@partial(jax.jit, static_argnums=0)
def score(apply, variables, images, labels):
    """How many images are classified correctly, and the sum of their losses."""
    logits = apply(variables, images, train=False)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return (logits.argmax(axis=-1) == labels).sum(), losses.sum()


def evaluate(apply, variables, images, labels, batch=500):
    """Test accuracy and loss."""
    parts = [
        score(apply, variables, images[i : i + batch], labels[i : i + batch])
        for i in range(0, len(images), batch)
    ]
    return tuple(float(sum(part)) / len(images) for part in zip(*parts, strict=True))


def save(state, path):
    """Writes a checkpoint; a kill leaves the old file or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(serialization.to_bytes(jax.device_get(state)))
    os.replace(temporary, path)


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser, default="cifar10")
    shown = {"metavar": "X", "help": "default: %(default)s"}
    parser.add_argument("--learning-rate", type=positive_float, default=0.1, **shown)
    parser.add_argument("--gamma", type=fraction, default=0.1, **shown)
    parser.add_argument("--beta", type=fraction, default=0.9, **shown)
    parser.add_argument("--width", type=positive_int, default=64, **shown)
    parser.add_argument("--depth", type=int, choices=STAGES, default=18, help="default: 18")
    parser.add_argument("--epochs", type=positive_int, default=25, **shown)
    parser.add_argument("--batch", type=positive_int, default=32, **shown)
    parser.add_argument("--steps", type=positive_int, metavar="N", help="stop after N steps")
    parser.add_argument("--seed", type=int, default=0, **shown)
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="save here, and resume")
    args = parser.parse_args()
    if args.data != "cifar10":
        parser.error(f"this network takes colour images: --data must be cifar10, got {args.data}")
    if args.batch % jax.device_count():
        parser.error(f"--batch {args.batch} must be a multiple of the {jax.device_count()} devices")
    if args.checkpoint and not args.checkpoint.resolve().parent.is_dir():
        parser.error(f"--checkpoint: there is no folder {args.checkpoint.resolve().parent}")
    return parser, args


def main():
    """Trains and evaluates."""
    parser, args = parse_arguments()
    data = datasets.load_or_exit(parser, args, args.batch)

    start = time.perf_counter()
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))
    split = NamedSharding(mesh, PartitionSpec("batch"))
    copied = NamedSharding(mesh, PartitionSpec())
    model = ResNet(args.depth, args.width)
    variables = jax.jit(partial(model.init, train=True))(
        jax.random.key(args.seed), jnp.asarray(data.train_x[:1])
    )
    momentum = mu2_optax.fixed_momentum(beta=args.beta, gamma=args.gamma)
    state = mu2_optax.linen.TrainState.create(
        apply_fn=model.apply,
        params=variables["params"],
        batch_stats=variables["batch_stats"],
        tx=mu2_optax.mu2_sgd(args.learning_rate, momentum),
    )
    if args.checkpoint and args.checkpoint.is_file():
        try:
            stored = serialization.from_bytes(state, args.checkpoint.read_bytes())
            if jax.tree.map(jnp.shape, stored) != jax.tree.map(jnp.shape, state):
                raise ValueError("it was written for another model")
            state = stored
        except ValueError as error:
            parser.exit(1, f"{args.checkpoint}: {error}\n")
        print(f"resumed at step {int(state.step)}", file=sys.stderr)
    state = jax.device_put(state, copied)

    key = jax.device_put(jax.random.key(args.seed), copied)
    per_epoch = len(data.train_x) // args.batch
    steps = args.steps or per_epoch * args.epochs
    done = int(state.step)
    progress = tqdm(range(done, steps), initial=done, total=steps, unit="step")
    for step in progress:
        epoch, place = divmod(step, per_epoch)
        if place == 0 or step == done:
            order = np.random.default_rng([args.seed, epoch]).permutation(len(data.train_x))
        rows = order[place * args.batch :][: args.batch]
        batch = jax.device_put((data.train_x[rows], data.train_y[rows]), split)
        state, loss = train_step(state, *batch, key)
        if (step + 1) % max(steps // 20, 1) == 0:
            progress.set_postfix(loss=f"{float(loss):.4f}")
        if args.checkpoint and (place == per_epoch - 1 or step == steps - 1):
            save(state, args.checkpoint)

    variables = {"params": state.params, "batch_stats": state.batch_stats}
    accuracy, loss = evaluate(model.apply, variables, data.test_x, data.test_y)
    seconds = time.perf_counter() - start
    print(f"test accuracy: {accuracy:.4f}  test loss: {loss:.4f}  ({steps} steps, {seconds:.0f} s)")


if __name__ == "__main__":
    main()
