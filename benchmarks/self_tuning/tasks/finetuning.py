"""Fine-tuning of a network that was trained before: whole, with a new head, or by LoRA."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.self_tuning.task import apply_layers, classifier, layers
from benchmarks.self_tuning.tasks import images
from benchmarks.training import Functions, cross_entropy, shuffled

SIZES = (784, 128, 128, 10)
BEFORE, KNOWN = 30_000, 2000  # images of the first training, and to fine-tune with
OLD = 5  # classes that a network with a new head has seen before


def load(name: str, change: str, data_dir: str | None) -> Any:
    """Images, and params trained on others.

    Args:
      name: The data set.
      change: "turned": images are mirrored at their diagonal; "classes": the last five classes
        after the first five.
      data_dir: The folder of the data.
    """
    data = images.load(name, data_dir)
    before = tuple(a[:BEFORE] for a in data["train"])
    after = {part: tuple(arrays) for part, arrays in data.items()}
    after["train"] = tuple(a[BEFORE:] for a in data["train"])
    if change == "classes":
        before = _chosen(before, lambda y: y < OLD)
        after = {part: _chosen(arrays, lambda y: y >= OLD) for part, arrays in after.items()}
        after = {part: (x, y - OLD) for part, (x, y) in after.items()}
    else:
        after = {part: (x.transpose(0, 2, 1), y) for part, (x, y) in after.items()}
    after["train"] = tuple(a[:KNOWN] for a in after["train"])
    return after | {"params": jax.tree.map(np.asarray, _trained(*before))}


def _chosen(arrays: Any, which: Any) -> Any:
    x, y = arrays
    return x[which(y)], y[which(y)]


@jax.jit
def _trained(x: Any, y: Any) -> Any:
    """Two passes of AdamW with a cosine over the images before the change."""
    steps = 2 * len(y) // 64
    tx = optax.adamw(optax.cosine_decay_schedule(2e-3, steps))
    params = layers(jax.random.key(1), SIZES, images.GAIN)

    def step(carry: Any, rows: Any) -> tuple[Any, None]:
        params, state = carry
        grads = jax.grad(lambda p: cross_entropy(_logits(p, x[rows]), y[rows]))(params)
        updates, state = tx.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), None

    rows = shuffled(jax.random.key(2), len(y), 64, steps)
    return jax.lax.scan(step, (params, tx.init(params)), rows)[0][0]


def _logits(params: Any, x: Any) -> Any:
    return apply_layers(params, x.reshape(len(x), -1), jax.nn.relu)


def finetuning(data: Any, trained: str, batch: int = 32, rank: int = 4) -> Functions:
    """Learns on after the change.

    Args:
      data: What `load` gives.
      trained: "whole"; "head" for all of it with a new last layer; "lora" for products of thin
        matrices that are added to the weights, and the biases.
      batch: Images in a batch.
      rank: Of LoRA's products.
    """
    old = data["params"]

    def init(key: Any) -> Any:
        if trained == "whole":
            return old
        if trained == "head":
            return [*old[:-1], {"w": jnp.zeros((SIZES[-2], 10 - OLD)), "b": jnp.zeros(10 - OLD)}]
        keys = jax.random.split(key, len(old))
        return [
            {
                "a": len(layer["w"]) ** -0.5 * jax.random.normal(k, (len(layer["w"]), rank)),
                "b": jnp.zeros((rank, len(layer["b"]))),
                "bias": layer["b"],
            }
            for k, layer in zip(keys, old, strict=True)
        ]

    def logits_of(params: Any, some: Any) -> Any:
        if trained == "lora":
            params = [
                {"w": layer["w"] + new["a"] @ new["b"], "b": new["bias"]}
                for layer, new in zip(old, params, strict=True)
            ]
        return _logits(params, some)

    return classifier(data, init, logits_of, batch)
