"""bfloat16 against float32 on a small CNN: accuracy, and the bytes of the optimizer's state.

    python benchmarks/mixed_precision.py

takes about 4 minutes on a 2-core x86-64 CPU, no GPU, prints two tables and writes
`benchmarks/results/mixed_precision/results.json`. Expected: bf16 params with the default state
(float32) end as float32 does, to within the spread over seeds; bf16 arithmetic in the model is as
good with fixed momenta and worse with linear ones.
"""

import json
import pathlib
from typing import Any

import digits
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen

import mu2_optax
import mu2_optax.linen

EPOCHS, SEEDS, LEARNING_RATE = 10, 5, 0.3
RESULTS = pathlib.Path(__file__).parent / "results" / "mixed_precision"

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
    "mu2(adam)": lambda dtype: mu2_optax.mu2(optax.adam(0.1), state_dtype=dtype),
}


class CNN(linen.Module):
    """Two convolutions with BatchNorm and one dense layer."""

    param_dtype: Any
    dtype: Any

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


@jax.jit
def train_step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
    """One step of the optimizer in the train state."""

    def loss_fn(params: Any) -> tuple[jax.Array, Any]:
        logits, updates = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats},
            batch["image"],
            mutable=["batch_stats"],
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return losses.mean(), updates["batch_stats"]

    evaluate = mu2_optax.linen.value_and_grad(loss_fn, has_aux=True)
    (loss, batch_stats), grads, again = evaluate(state.params)
    return state.apply_gradients(grads=grads, batch_stats=batch_stats, **again), loss


def run(param_dtype: Any, dtype: Any, tx: Any, seed: int) -> tuple[float, float]:
    """The test accuracy after training, and the mean loss of the last epoch."""
    train, test = digits.load()
    model = CNN(param_dtype, dtype)
    variables = model.init(jax.random.key(seed), train["image"][:1], train=False)
    state = mu2_optax.linen.TrainState.create(apply_fn=model.apply, tx=tx, **variables)
    losses = []
    for batch in digits.batches(train, EPOCHS, seed):
        state, loss = train_step(state, batch)
        losses.append(float(loss))
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    logits = model.apply(variables, test["image"], train=False)
    accuracy = float(jnp.mean(logits.argmax(-1) == test["label"]))
    return accuracy, float(np.mean(losses[-len(losses) // EPOCHS :]))


def bytes_per_parameter(make: Any, param_dtype: Any, state_dtype: Any) -> float:
    """The size of the state, measured on a model of a million parameters."""
    params = jnp.zeros(10**6, param_dtype)
    leaves = jax.tree.leaves(make(state_dtype).init(params))
    return round(sum(leaf.nbytes for leaf in leaves) / params.size, 1)


def main() -> None:
    """Trains, prints and writes the results."""
    memory = {
        name: {
            precision: bytes_per_parameter(make, param_dtype, state_dtype)
            for precision, (param_dtype, _, state_dtype) in PRECISIONS.items()
        }
        for name, make in OPTIMIZERS.items()
    }
    print("bytes of state per parameter")
    for name, row in memory.items():
        print(f"  {name}: {row}")
    accuracy: dict[str, Any] = {}
    for momentum_name, momentum in MOMENTA.items():
        for precision, (param_dtype, dtype, state_dtype) in PRECISIONS.items():
            tx = mu2_optax.mu2_sgd(LEARNING_RATE, momentum, state_dtype=state_dtype)
            runs = np.array([run(param_dtype, dtype, tx, seed) for seed in range(SEEDS)])
            mean, spread = runs.mean(0), runs.std(0, ddof=1)
            accuracy.setdefault(momentum_name, {})[precision] = {
                "test accuracy": [round(float(mean[0]), 4), round(float(spread[0]), 4)],
                "training loss": [round(float(mean[1]), 4), round(float(spread[1]), 4)],
            }
            print(f"{momentum_name}, {precision}: {accuracy[momentum_name][precision]}", flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = {
        "settings": {
            "epochs": EPOCHS,
            "seeds": SEEDS,
            "learning rate": LEARNING_RATE,
            "batch": 64,
            "machine": "2-core x86-64 CPU, no GPU",
        },
        "mean and standard deviation over seeds": accuracy,
        "bytes of state per parameter": memory,
    }
    (RESULTS / "results.json").write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
