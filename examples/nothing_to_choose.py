"""A network trained with nothing to choose: no learning rate, no schedule, no momenta.

    python -m examples.nothing_to_choose                  # digits, no download
    python -m examples.nothing_to_choose --data mnist     # one epoch

Measured on a 2-core x86-64 CPU, no GPU: test accuracy 0.9889 after 10 epochs of digits, and 0.9730
after one epoch of MNIST. This is an ordinary training loop of JAX and Optax: one line is changed,
``mu2_auto()`` in the place of ``optax.adam(1e-3)``, and one is new, which takes the average to
evaluate it. It needs the extra ``sweep`` alone, for the digits.
"""

import argparse
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from examples import data as datasets
from examples.option_types import positive_int


def init(key, pixels):
    """Pixels – 128 – ReLU – 128 – ReLU – 10."""
    sizes = (pixels, 128, 128, 10)
    return [
        {"w": jax.random.normal(k, (n, m)) * (2 / n) ** 0.5, "b": jnp.zeros(m)}
        for k, n, m in zip(jax.random.split(key, 3), sizes[:-1], sizes[1:], strict=True)
    ]


def logits_of(params, images):
    """Logits of images (count, ...)."""
    x = images.reshape(len(images), -1)
    for layer in params[:-1]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def loss_fn(params, batch):
    """Mean cross-entropy."""
    images, labels = batch
    logits = logits_of(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


tx = mu2_optax.mu2_auto()


@jax.jit
def train_step(params, state, batch):
    """One step, as with any optimizer."""
    loss, grads = jax.value_and_grad(loss_fn)(params, batch)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


@jax.jit
def accuracy(params, images, labels):
    """The share of images that are classified correctly."""
    return (logits_of(params, images).argmax(axis=-1) == labels).mean()


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
    data = datasets.load_or_exit(parser, args, args.batch)

    start = time.perf_counter()
    params = init(jax.random.key(args.seed), data.train_x[0].size)
    state = tx.init(params)

    rng = np.random.default_rng(args.seed)
    per_epoch = len(data.train_x) // args.batch
    epochs = args.epochs or (10 if args.data == "digits" else 1)
    for epoch in range(1, epochs + 1):
        order = rng.permutation(len(data.train_x))[: per_epoch * args.batch]
        for rows in order.reshape(per_epoch, args.batch):
            batch = (jnp.asarray(data.train_x[rows]), jnp.asarray(data.train_y[rows]))
            params, state, loss = train_step(params, state, batch)
        rate = float(mu2_optax.found_rate(state))
        shown = f"epoch {epoch} of {epochs}: loss {float(loss):.4f}, learning rate found {rate:.2g}"
        print(shown, file=sys.stderr)

    average = mu2_optax.eval_params(state, params)
    share = float(accuracy(average, jnp.asarray(data.test_x), jnp.asarray(data.test_y)))
    seconds = time.perf_counter() - start
    print(f"test accuracy: {share:.4f}  learning rate found: {rate:.2g}  ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
