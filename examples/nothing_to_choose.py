"""A network trained with nothing to choose: no learning rate, no schedule, no momenta.

    python -m examples.nothing_to_choose                  # digits, no download; 12 s
    python -m examples.nothing_to_choose --data mnist     # one epoch; 16 s

Measured on a busy 2-core x86-64 CPU, no GPU, where most of the time is compiling: test accuracy
0.9833 after 10 epochs of digits, and 0.9725 after one epoch of MNIST. This is an ordinary training
loop of Flax NNX: one line is changed, ``mu2_auto()`` in the place of ``optax.adam(1e-3)``, and one
is new, which takes the model at the average to evaluate it.
"""

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import mu2_optax
import mu2_optax.nnx
from examples import data as datasets
from examples.option_types import positive_int


class MLP(nnx.Module):
    """Pixels – 128 – ReLU – 128 – ReLU – 10."""

    def __init__(self, pixels: int, *, rngs: nnx.Rngs):
        self.hidden1 = nnx.Linear(pixels, 128, rngs=rngs)
        self.hidden2 = nnx.Linear(128, 128, rngs=rngs)
        self.logits = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits of images (count, ...)."""
        x = images.reshape(len(images), -1)
        x = nnx.relu(self.hidden1(x))
        x = nnx.relu(self.hidden2(x))
        return self.logits(x)


def loss_fn(model: MLP, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Mean cross-entropy."""
    images, labels = batch
    return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()


@nnx.jit
def train_step(model, optimizer, batch):
    """One step, as with any optimizer."""
    loss, grads = nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def accuracy(model, images, labels):
    """The share of images that are classified correctly."""
    return (model(images).argmax(axis=-1) == labels).mean()


def parse_arguments():
    """The command line; nothing of it concerns the optimizer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser)
    shown = {"metavar": "N", "help": "default: %(default)s"}
    parser.add_argument("--batch", type=positive_int, default=64, **shown)
    parser.add_argument("--epochs", type=positive_int, metavar="N", help="default: 1, digits 10")
    parser.add_argument("--seed", type=int, default=0, **shown)
    return parser, parser.parse_args()


def main():
    """Trains and evaluates."""
    parser, args = parse_arguments()
    data = datasets.load_or_exit(parser, args)
    if args.batch > len(data.train_x):
        parser.error(f"--batch {args.batch} is more than the {len(data.train_x)} training images")

    start = time.perf_counter()
    model = MLP(data.train_x[0].size, rngs=nnx.Rngs(args.seed))
    optimizer = nnx.Optimizer(model, mu2_optax.mu2_auto(), wrt=nnx.Param)

    rng = np.random.default_rng(args.seed)
    per_epoch = len(data.train_x) // args.batch
    epochs = args.epochs or (10 if args.data == "digits" else 1)
    for epoch in range(1, epochs + 1):
        order = rng.permutation(len(data.train_x))[: per_epoch * args.batch]
        for rows in order.reshape(per_epoch, args.batch):
            batch = (jnp.asarray(data.train_x[rows]), jnp.asarray(data.train_y[rows]))
            loss = train_step(model, optimizer, batch)
        rate = float(mu2_optax.found_rate(optimizer))
        shown = f"epoch {epoch} of {epochs}: loss {float(loss):.4f}, learning rate found {rate:.2g}"
        print(shown, file=sys.stderr)

    average = mu2_optax.nnx.eval_model(model, optimizer)
    share = float(accuracy(average, jnp.asarray(data.test_x), jnp.asarray(data.test_y)))
    seconds = time.perf_counter() - start
    print(f"test accuracy: {share:.4f}  learning rate found: {rate:.2g}  ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
