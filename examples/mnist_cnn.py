"""The paper's convolutional network on MNIST, in Flax NNX, trained with μ²-SGD.

    python -m examples.mnist_cnn                      # digits, no download; seconds
    python -m examples.mnist_cnn --data mnist         # one epoch; two minutes

Measured on a 2-core x86-64 CPU, no GPU: test accuracy 0.9889 after 10 epochs of digits, and
0.9834 after one epoch of MNIST. Two lines differ from a training step of Flax's own: the one
that evaluates the gradient, because the optimizer needs it at a second point on the same sample,
and the one that passes this on to the optimizer.
"""

import argparse
import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from tqdm import tqdm

import mu2_optax
import mu2_optax.nnx
from examples import data as datasets
from examples.cpu_layers import conv_general_dilated, keep_freed_memory, max_pool
from examples.option_types import fraction, positive_float, positive_int


class CNN(nnx.Module):
    """Conv 20 – ReLU – pool – conv 50 – ReLU – pool – dense 50 – BatchNorm – ReLU – dense 10."""

    def __init__(self, height: int, width: int, *, rngs: nnx.Rngs):
        # As in the paper's PyTorch code: uniform in ±1/√fan_in, a third of Flax's variance.
        kernel_init = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
        Conv = partial(
            nnx.Conv,
            kernel_init=kernel_init,
            rngs=rngs,
            conv_general_dilated=conv_general_dilated,  # faster on a CPU; leave out elsewhere
        )
        Linear = partial(nnx.Linear, kernel_init=kernel_init, rngs=rngs)
        side = 5 if min(height, width) >= 16 else 3  # digits are only 8×8
        kernel = (side, side)
        self.conv1 = Conv(1, 20, kernel, padding="VALID")
        self.conv2 = Conv(20, 50, kernel, padding="VALID" if side == 5 else "SAME")
        after = lambda n: ((n - side + 1) // 2 - (side - 1 if side == 5 else 0)) // 2
        self.dense1 = Linear(after(height) * after(width) * 50, 50)
        self.norm = nnx.BatchNorm(50, momentum=0.9, rngs=rngs)
        self.dense2 = Linear(50, 10)

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits of images (count, height, width)."""
        x = nnx.relu(max_pool(self.conv1(images[..., None])))  # equal to pooling after the ReLU
        x = nnx.relu(max_pool(self.conv2(x)))
        x = self.dense1(x.reshape(len(x), -1))
        return self.dense2(nnx.relu(self.norm(x)))


def loss_fn(model: CNN, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Mean cross-entropy."""
    images, labels = batch
    return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()


@nnx.jit
def train_step(model, optimizer, batch):
    """One step; ``again`` lets the optimizer evaluate the gradient at its other point."""
    loss, grads, again = mu2_optax.nnx.value_and_grad(loss_fn)(model, batch)
    optimizer.update(model, grads, **again)
    return loss


@nnx.jit
def correct(model, images, labels):
    """How many images are classified correctly, and the sum of their losses."""
    logits = model(images)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return (logits.argmax(axis=-1) == labels).sum(), losses.sum()


def evaluate(model, images, labels, batch=1000):
    """Test accuracy and loss."""
    model.eval()
    parts = [
        correct(model, images[i : i + batch], labels[i : i + batch])
        for i in range(0, len(images), batch)
    ]
    model.train()
    return tuple(float(sum(part)) / len(images) for part in zip(*parts, strict=True))


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser)
    shown = {"metavar": "X", "help": "default: %(default)s"}
    parser.add_argument("--learning-rate", type=positive_float, default=1.0, **shown)
    parser.add_argument("--gamma", type=fraction, default=0.1, **shown)
    parser.add_argument("--beta", type=fraction, default=0.9, **shown)
    parser.add_argument("--batch", type=positive_int, default=64, **shown)
    parser.add_argument("--epochs", type=positive_int, metavar="N", help="default: 1, digits 10")
    parser.add_argument("--steps", type=positive_int, metavar="N", help="stop after N steps")
    parser.add_argument("--seed", type=int, default=0, **shown)
    args = parser.parse_args()
    if args.data == "cifar10":
        parser.error("this network takes grey images: use examples/cifar10_resnet.py for cifar10")
    return parser, args


def main():
    """Trains and evaluates."""
    parser, args = parse_arguments()
    data = datasets.load_or_exit(parser, args, args.batch)

    keep_freed_memory()  # before the first array; on a CPU a step is then twice as fast
    start = time.perf_counter()
    model = CNN(*data.train_x.shape[1:], rngs=nnx.Rngs(args.seed))
    momentum = mu2_optax.fixed_momentum(beta=args.beta, gamma=args.gamma)
    tx = mu2_optax.mu2_sgd(args.learning_rate, momentum)
    optimizer = nnx.Optimizer(model, tx, wrt=nnx.Param)

    rng = np.random.default_rng(args.seed)
    per_epoch = len(data.train_x) // args.batch
    steps = args.steps or per_epoch * (args.epochs or (10 if args.data == "digits" else 1))
    progress = tqdm(range(steps), unit="step")
    for step in progress:
        if step % per_epoch == 0:
            order = rng.permutation(len(data.train_x))
        rows = order[step % per_epoch * args.batch :][: args.batch]
        batch = (jnp.asarray(data.train_x[rows]), jnp.asarray(data.train_y[rows]))
        loss = train_step(model, optimizer, batch)
        if (step + 1) % max(steps // 10, 1) == 0:
            progress.set_postfix(loss=f"{float(loss):.4f}")

    accuracy, loss = evaluate(model, jnp.asarray(data.test_x), jnp.asarray(data.test_y))
    seconds = time.perf_counter() - start
    print(f"test accuracy: {accuracy:.4f}  test loss: {loss:.4f}  ({steps} steps, {seconds:.0f} s)")


if __name__ == "__main__":
    main()
