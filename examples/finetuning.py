"""A pretrained network learns something new, in three ways, with nothing to choose.

    python -m examples.finetuning                  # digits, no download; 30 s
    python -m examples.finetuning --data mnist     # 30 s

A network learns the digits 0 to 4, and then, from a few hundred images, the digits 5 to 9: all of
it; a new head with the rest frozen; and LoRA, where small adapters that start at zero are added to
frozen matrices. Measured on a busy 2-core x86-64 CPU, no GPU, test accuracy on the digits 5 to 9,
mean (worst) of 5 seeds:

                    digits                           MNIST
                    mu2_auto()     adam(1e-3)        mu2_auto()     adam(1e-3)
    all of it       0.978 (0.965)  0.979 (0.977)     0.906 (0.891)  0.898 (0.887)
    new head        0.969 (0.953)  0.900 (0.872)     0.839 (0.827)  0.728 (0.701)
    LoRA            0.973 (0.953)  0.964 (0.948)     0.895 (0.887)  0.857 (0.841)

Pretraining is ``mu2_auto()`` in every row; it is evaluated, and goes on, at the average.
"""

import argparse
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from examples import data as datasets
from examples.option_types import positive_int

WIDTH, RANK, BATCH = 128, 4, 32

# Frozen is True, as in `optax.freeze`.
WAYS = {
    "all of it": {"body": False, "head": False},
    "new head": {"body": True, "head": False},
    "LoRA": {"body": True, "head": False, "adapters": False},
}


def matrix(key: jax.Array, inputs: int, outputs: int) -> jax.Array:
    return jax.random.normal(key, (inputs, outputs)) * (2 / inputs) ** 0.5


def new_head(key: jax.Array) -> Any:
    return {"w": matrix(key, WIDTH, 5), "b": jnp.zeros(5)}


def new_network(key: jax.Array, pixels: int) -> Any:
    """Pixels – 128 – ReLU – 128 – ReLU – 5."""
    keys = jax.random.split(key, 3)
    sizes = zip(keys[:2], (pixels, WIDTH), strict=True)
    body = [{"w": matrix(k, n, WIDTH), "b": jnp.zeros(WIDTH)} for k, n in sizes]
    return {"body": body, "head": new_head(keys[2])}


def new_adapters(key: jax.Array, body: Any) -> Any:
    """For each matrix W of the body A and B; W + AB is used, and B starts at zero."""
    keys = jax.random.split(key, len(body))
    return [
        {"a": matrix(k, layer["w"].shape[0], RANK), "b": jnp.zeros((RANK, WIDTH))}
        for k, layer in zip(keys, body, strict=True)
    ]


def logits_of(params: Any, images: jax.Array) -> jax.Array:
    """Logits of five classes, with the adapters if there are any."""
    x = images
    for number, layer in enumerate(params["body"]):
        w = layer["w"]
        if "adapters" in params:
            adapter = params["adapters"][number]
            w = w + adapter["a"] @ adapter["b"]
        x = jax.nn.relu(x @ w + layer["b"])
    return x @ params["head"]["w"] + params["head"]["b"]


def loss_fn(params: Any, batch: Any) -> jax.Array:
    images, labels = batch
    logits = logits_of(params, images)
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def make_train(tx: optax.GradientTransformation) -> Callable[..., Any]:
    """Training in one scan, compiled once for all seeds; it returns the params to evaluate."""

    @functools.partial(jax.jit, static_argnames="epochs")
    def train(params: Any, data: Any, epochs: int, key: jax.Array) -> Any:
        def step(carry: Any, rows: jax.Array) -> tuple[Any, None]:
            params, state = carry
            grads = jax.grad(loss_fn)(params, jax.tree.map(lambda a: a[rows], data))
            updates, state = tx.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), None

        count = len(data[1])
        orders = jax.vmap(lambda key: jax.random.permutation(key, count))(
            jax.random.split(key, epochs)
        )
        rows = orders[:, : count // BATCH * BATCH].reshape(-1, BATCH)
        (params, state), _ = jax.lax.scan(step, (params, tx.init(params)), rows)
        averages = optax.tree.get(state, "AnytimeState") is not None
        return mu2_optax.eval_params(state, params) if averages else params

    return train


def accuracy(params: Any, data: Any) -> float:
    return float((logits_of(params, data[0]).argmax(-1) == data[1]).mean())


def classes(images: Any, labels: Any, first: int, count: int | None = None) -> Any:
    """Images of five classes, as vectors, and their labels from 0 on; the first ``count``."""
    rows = np.flatnonzero((labels >= first) & (labels < first + 5))[:count]
    flat = jnp.asarray(images[rows]).reshape(len(rows), -1)
    return flat, jnp.asarray(labels[rows] - first)


def start_of(way: str, params: Any, key: jax.Array) -> Any:
    """The pretrained params with what is new."""
    head_key, adapter_key = jax.random.split(key)
    params = params | {"head": new_head(head_key)}
    if way == "LoRA":
        params = params | {"adapters": new_adapters(adapter_key, params["body"])}
    return params


def parse_arguments() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """The command line; nothing of it concerns the optimizer."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser)
    shown: dict[str, Any] = {"type": positive_int, "metavar": "N", "help": "default: %(default)s"}
    parser.add_argument("--images", default=320, **shown)
    parser.add_argument("--epochs", default=20, **shown)
    parser.add_argument("--pretraining", metavar="N", type=positive_int, help="epochs; default: 10")
    parser.add_argument("--seeds", default=5, **shown)
    return parser, parser.parse_args()


def main() -> None:
    """Pretrains, fine-tunes, and prints a table."""
    parser, args = parse_arguments()
    data = datasets.load_or_exit(parser, args)
    old, few = (
        classes(data.train_x, data.train_y, 0),
        classes(data.train_x, data.train_y, 5, args.images),
    )
    if len(few[1]) < BATCH:
        parser.error(f"--images must be at least {BATCH}, got {len(few[1])} images")
    test_old, test = (classes(data.test_x, data.test_y, first) for first in (0, 5))

    begin = time.perf_counter()
    optimizers = {"mu2_auto()": mu2_optax.mu2_auto(), "adam(1e-3)": optax.adam(1e-3)}
    pretrain = make_train(mu2_optax.mu2_auto())
    finetune = {
        (way, name): make_train(mu2_optax.hold_fixed(tx, frozen))
        for way, frozen in WAYS.items()
        for name, tx in optimizers.items()
    }
    epochs = args.pretraining or (10 if args.data == "digits" else 1)
    pretrained, found = [], {case: [] for case in finetune}
    for key in jax.random.split(jax.random.key(0), args.seeds):
        init_key, pretrain_key, new_key, tune_key = jax.random.split(key, 4)
        start = new_network(init_key, old[0].shape[1])
        params = pretrain(start, old, epochs, pretrain_key)
        pretrained.append(accuracy(params, test_old))
        for (way, name), tune in finetune.items():
            tuned = tune(start_of(way, params, new_key), few, args.epochs, tune_key)
            found[way, name].append(accuracy(tuned, test))

    print(f"pretrained on 0 to 4, test accuracy {np.mean(pretrained):.3f}; then 5 to 9:")
    print(f"{'':12}" + "".join(f"{name:>18}" for name in optimizers))
    for way in WAYS:
        each = [found[way, name] for name in optimizers]
        shown = [f"{np.mean(values):.3f} ({min(values):.3f})" for values in each]
        print(f"{way:12}" + "".join(f"{text:>18}" for text in shown))
    print(f"({time.perf_counter() - begin:.0f} s)")


if __name__ == "__main__":
    main()
