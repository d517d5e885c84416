"""bfloat16 against float32 on a small CNN: accuracy, and the bytes of the optimizer's state.

    python -m benchmarks.mixed_precision

takes about 4 minutes on a 2-core x86-64 CPU, no GPU, prints two tables and writes
``benchmarks/results/mixed_precision/results.csv``. Expected: bf16 params with the
default state (float32) end as float32 does, to within the spread over seeds; bf16 arithmetic in the
model is as good with fixed momenta and worse with linear ones.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mu2_optax
from benchmarks import digits, experiment, files, small_cnn

EPOCHS, SEEDS, LEARNING_RATE = 10, 5, 0.3

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
OPTIMIZERS = {
    "mu2_sgd": lambda dtype: mu2_optax.mu2_sgd(0.1, state_dtype=dtype),
    "mu2_extra_sgd": lambda dtype: mu2_optax.mu2_extra_sgd(0.1, state_dtype=dtype),
    "mu2_adam": lambda dtype: mu2_optax.mu2_adam(0.1, state_dtype=dtype),
}


def make_train(momentum: Any, precision: str, epochs: int) -> Any:
    """Training in one precision, which gives the test accuracy and the last epoch's mean loss."""
    param_dtype, dtype, state_dtype = PRECISIONS[precision]
    train_set, test_set = digits.load()
    model = small_cnn.CNN(param_dtype, dtype)

    def train(learning_rate: float, key: jax.Array) -> dict[str, float]:
        tx = mu2_optax.mu2_sgd(learning_rate, momentum, state_dtype=state_dtype)
        state = small_cnn.create(model, tx, key)
        losses = []
        for batch in digits.batches(train_set, epochs, experiment.seed_of(key)):
            state, loss = small_cnn.train_step(state, batch)
            losses.append(float(loss))
        return {
            "test_accuracy": small_cnn.accuracy(state, test_set),
            "training_loss": float(np.mean(losses[-len(losses) // epochs :])),
        }

    return train


def bytes_per_parameter(make: Any, param_dtype: Any, state_dtype: Any) -> float:
    """The size of the state, measured on a model of a million parameters."""
    params = jnp.zeros(10**6, param_dtype)
    leaves = jax.tree.leaves(make(state_dtype).init(params))
    return round(sum(leaf.nbytes for leaf in leaves) / params.size, 1)


def main() -> None:
    """Trains, prints and writes the results."""
    print("bytes of state per parameter")
    for name, make in OPTIMIZERS.items():
        row = {
            precision: bytes_per_parameter(make, param_dtype, state_dtype)
            for precision, (param_dtype, _, state_dtype) in PRECISIONS.items()
        }
        print(f"  {name}: {row}")
    rows = []
    for name, momentum in MOMENTA.items():
        for precision in PRECISIONS:
            train = make_train(momentum, precision, EPOCHS)
            found = [train(LEARNING_RATE, jax.random.key(seed)) for seed in range(SEEDS)]
            run = {"optimizer": f"{name}, {precision}", "learning_rate": LEARNING_RATE}
            rows += [{**run, "seed": seed, **metrics} for seed, metrics in enumerate(found)]
            for metric in found[0]:
                values = np.array([metrics[metric] for metrics in found])
                shown = f"{values.mean():.4f} ± {values.std(ddof=1):.4f}"
                print(run["optimizer"], metric, shown, flush=True)
    files.write_rows(files.RESULTS / "mixed_precision" / "results.csv", rows)


if __name__ == "__main__":
    main()
