"""What bfloat16 does to μ²-SGD, on a small CNN and scikit-learn's digits.

    python -m benchmarks.mixed_precision

takes a few minutes on a 2-core x86-64 CPU, no GPU, prints a line for each measurement and writes
``benchmarks/results/mixed_precision/results.csv``. Expected: params in bf16 with the default state
(float32) end as in float32, to within the spread over seeds; arithmetic in bf16 is as good with
fixed momenta and worse with linear ones.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

import mu2_optax.linen
from benchmarks import files
from mu2_optax.sweep import load_digits

Batch = dict[str, np.ndarray]
LEARNING_RATE, BATCH = 0.3, 64
EPOCHS, SEEDS = 10, 5
PRECISIONS = {  # of the params, of the arithmetic, of the state
    "float32": (jnp.float32, jnp.float32, None),
    "bf16 params": (jnp.bfloat16, jnp.float32, None),
    "bf16 params and arithmetic": (jnp.bfloat16, jnp.bfloat16, None),
    "bf16 params, arithmetic and state": (jnp.bfloat16, jnp.bfloat16, jnp.bfloat16),
}
MOMENTA = {
    "fixed_momentum()": mu2_optax.fixed_momentum(),
    "linear_momentum()": mu2_optax.linear_momentum(),
}


def digits() -> tuple[Batch, Batch]:
    """1,437 images for training and 360 for testing, of shape (8, 8, 1), with pixels in [0, 1].

    The package holds out every fifth image; the published numbers are those of the last fifth.
    """
    data = load_digits(standardize=False)
    held_out = np.arange(len(data.train_y) + len(data.test_y)) % 5 == 4
    image = np.empty((len(held_out), 8, 8, 1), np.float32)
    label = np.empty(len(held_out), np.int32)
    image[~held_out, ..., 0], image[held_out, ..., 0] = data.train_x, data.test_x
    label[~held_out], label[held_out] = data.train_y, data.test_y
    cut = len(label) * 4 // 5
    return {"image": image[:cut], "label": label[:cut]}, {
        "image": image[cut:],
        "label": label[cut:],
    }


def batches(data: Batch, epochs: int, seed: int, size: int = BATCH) -> Iterator[Batch]:
    """Shuffled batches of whole size."""
    rng = np.random.default_rng(seed)
    count = len(data["label"])
    for _ in range(epochs):
        order = rng.permutation(count)
        for start in range(0, count - size + 1, size):
            yield {name: array[order[start : start + size]] for name, array in data.items()}


class CNN(linen.Module):
    """Two convolutions with BatchNorm and one dense layer.

    Attributes:
      param_dtype: The precision of the params.
      dtype: The precision of the arithmetic.
    """

    param_dtype: Any = jnp.float32
    dtype: Any = jnp.float32

    @linen.compact
    def __call__(self, x: jax.Array, train: bool = True) -> jax.Array:
        """The logits, in float32."""
        precision = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        for features in (16, 32):
            x = linen.Conv(features, (3, 3), **precision)(x)
            x = linen.BatchNorm(use_running_average=not train, momentum=0.9, **precision)(x)
            x = linen.avg_pool(linen.relu(x), (2, 2), (2, 2))
        x = linen.Dense(10, **precision)(x.reshape(x.shape[0], -1))
        return x.astype(jnp.float32)


def create(model: CNN, tx: Any, key: jax.Array) -> mu2_optax.linen.TrainState:
    """The state of a model before training."""
    variables = model.init(key, jnp.zeros((1, 8, 8, 1)), train=False)
    return mu2_optax.linen.TrainState.create(apply_fn=model.apply, tx=tx, **variables)


@jax.jit
def train_step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
    """One step of the optimizer in the train state; returns the batch's loss as well."""

    def loss_fn(params: Any) -> tuple[jax.Array, Any]:
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            batch["image"],
            mutable=["batch_stats"],
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean(), updates["batch_stats"]

    evaluate = mu2_optax.value_and_grad(loss_fn, has_aux=True)
    (loss, batch_stats), grads, again = evaluate(state.params)
    return state.apply_gradients(grads=grads, batch_stats=batch_stats, **again), loss


def accuracy(state: Any, data: Any) -> float:
    """The share of right answers with the running statistics."""
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    logits = state.apply_fn(variables, data["image"], train=False)
    return float(jnp.mean(logits.argmax(-1) == data["label"]))


def in_precision(momentum: str, precision: str, seed: int, epochs: int) -> dict[str, Any]:
    """The test accuracy and the last epoch's mean loss."""
    train, test = digits()
    param_dtype, dtype, state_dtype = PRECISIONS[precision]
    tx = mu2_optax.mu2_sgd(LEARNING_RATE, MOMENTA[momentum], state_dtype=state_dtype)
    state, losses = create(CNN(param_dtype, dtype), tx, jax.random.key(seed)), []
    for batch in batches(train, epochs, seed):
        state, loss = train_step(state, batch)
        losses.append(float(loss))
    last = losses[-(len(train["label"]) // BATCH) :]
    row = {"optimizer": f"{momentum}, {precision}", "learning_rate": LEARNING_RATE, "seed": seed}
    return row | {"test_accuracy": accuracy(state, test), "training_loss": np.mean(last)}


def main() -> None:
    """Trains, prints and writes the results."""
    rows = []
    for case in itertools.product(MOMENTA, PRECISIONS, range(SEEDS)):
        rows.append(in_precision(*case, EPOCHS))
        print(*rows[-1].values(), flush=True)
    files.write_rows(files.RESULTS / "mixed_precision" / "results.csv", rows)


if __name__ == "__main__":
    main()
