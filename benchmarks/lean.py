"""What a lean state changes: the run against float64, and the bytes of the state.

    python -m benchmarks.lean

μ²-SGD on logistic regression (digits, batch 32, rate 1, the whole vector in a ball of radius 4),
with the last point stored and with ``lean=True``, which recovers it, in float32 and bfloat16. All
runs see the same batches; float64 with the stored point is the truth. It writes
``benchmarks/results/lean/results.csv``. Expected: the two are about as far from the truth as each
other, 1e-7 to 1e-5 in float32. Takes less than a minute on a 2-core x86-64 CPU without a GPU.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.files import RESULTS, write_rows
from mu2_optax.sweep import load_digits

STEPS, BATCH, TIMES = 2_000, 32, (10, 100, 2_000)
MOMENTA = {
    "linear": mu2_optax.linear_momentum(),
    "fixed": mu2_optax.fixed_momentum(),
    "β measured": mu2_optax.linear_momentum(beta=mu2_optax.measured_beta()),
}


def run(momentum: mu2_optax.DoubleMomentum, dtype: Any, lean: bool, data: Any) -> tuple[Any, ...]:
    """The params and estimates at ``TIMES``, in float64, and bytes of state for each param."""
    images, labels, rows = data
    images, labels = jnp.asarray(images, dtype), jnp.asarray(labels)
    ball = mu2_optax.onto_l2_ball(4.0)
    tx = mu2_optax.mu2_sgd(1.0, momentum, projection=ball, lean=lean)

    def loss(params: Any, rows: Any) -> Any:
        logits = images[rows] @ params
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[rows]).mean()

    grad_fn = jax.grad(loss)

    def step(carry: Any, rows: Any) -> tuple[Any, Any]:
        params, state = carry
        grads = grad_fn(params, rows)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=rows)
        return (optax.apply_updates(params, updates), state), (params, state.d)

    params = jnp.zeros((images.shape[1], 10), dtype)
    state = tx.init(params)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(state)) / params.size
    _, seen = jax.jit(lambda carry: jax.lax.scan(step, carry, rows))((params, state))
    at = np.array(TIMES) - 1
    x, d = (np.asarray(a[at].astype(float)).astype(np.float64) for a in seen)
    return x, d, size


def main() -> None:
    """Measures."""
    digits = load_digits()
    images = digits.train_x.reshape(len(digits.train_x), -1)
    rows = np.random.default_rng(0).integers(0, len(images), (STEPS, BATCH))
    data = (images, digits.train_y, rows)
    table = []
    for name, momentum in MOMENTA.items():
        with jax.enable_x64(True):
            true_x, true_d, _ = run(momentum, jnp.float64, False, data)
        for dtype in (jnp.float32, jnp.bfloat16):
            for lean in (False, True):
                x, d, size = run(momentum, dtype, lean, data)
                row = {"momentum": name, "dtype": jnp.dtype(dtype).name, "lean": lean}
                row["state_bytes_per_param"] = round(size, 1)
                for k, t in enumerate(TIMES):
                    row[f"x_away_at_{t}"] = float(np.abs(x[k] - true_x[k]).max())
                    away = np.linalg.norm(d[k] - true_d[k]) / np.linalg.norm(true_d[k])
                    row[f"d_away_at_{t}"] = float(away)
                table.append(row)
                print(row)
    write_rows(RESULTS / "lean" / "results.csv", table, digits=3)


if __name__ == "__main__":
    main()
