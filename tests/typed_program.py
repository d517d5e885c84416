"""A small program as a user would write it, for tests/test_types.py.

It is checked and never run. A line that ends with ``# error: rule`` holds a mistake that a type
checker must find; every other line must pass. ``reveal_type`` says what an editor would show.
"""

from typing import reveal_type

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from mu2_optax.sweep import SweepResult, plateau_width, plot_sweep, sweep


def loss(params: dict[str, jax.Array], batch: jax.Array) -> jax.Array:
    return jnp.sum((params["w"] - batch) ** 2)


grad_fn = jax.grad(loss)
params = {"w": jnp.zeros(3)}

# Rates and momenta: Python's numbers, NumPy's, JAX's, schedules.
mu2_optax.mu2_sgd(1)
mu2_optax.mu2_sgd(np.float32(0.1), mu2_optax.fixed_momentum(beta=np.float64(0.9)))
mu2_optax.mu2_sgd(jnp.float32(0.1), mu2_optax.linear_momentum(offset=1))
mu2_optax.mu2_sgd(optax.cosine_decay_schedule(0.1, 100), weight_decay=lambda count: 1e-4)
mu2_optax.mu2_sgd("0.1")  # error: reportArgumentType
mu2_optax.mu2_sgd(0.1, momentum=0.9)  # error: reportArgumentType
mu2_optax.mu2_sgd(0.1, projection=1.0)  # error: reportArgumentType
mu2_optax.mu2_sgd(0.1, nesterov=True)  # error: reportCallIssue
mu2_optax.mu2(0.1)  # error: reportArgumentType
mu2_optax.DoubleMomentum(1.0, mu2_optax.measured_beta(), lambda count: 0.5**count)
mu2_optax.DoubleMomentum(1.0, 0.9, gamma="0.1")  # error: reportArgumentType

# A step, and the letters of its state.
tx = mu2_optax.mu2_sgd(
    0.1,
    mu2_optax.linear_momentum(beta=mu2_optax.measured_beta()),
    projection=mu2_optax.per_tensor(mu2_optax.onto_l2_ball(1.0)),
)
state = tx.init(params)
reveal_type(state)  # shown: Mu2State
updates, state = tx.update(
    grad_fn(params, jnp.ones(3)), state, params, grad_fn=grad_fn, batch=jnp.ones(3)
)
params = optax.apply_updates(params, updates)
reveal_type(state.t)  # shown: Array
reveal_type(state.averaged)  # shown: AnytimeState
reveal_type(mu2_optax.error_bar(state).error)  # shown: Array
norm = optax.tree.norm(state.d)
print(state.velocity)  # error: reportAttributeAccessIssue

# The others know their states too, and all of them are transforms of Optax.
reveal_type(mu2_optax.mu2_auto().init(params))  # shown: AnytimeState
reveal_type(mu2_optax.mu2_adam(1e-3, weight_decay=0.1).init(params))  # shown: Mu2State
reveal_type(mu2_optax.mu2_extra_sgd(0.1).init(params))  # shown: Mu2ExtraState
accumulating = mu2_optax.accumulate_gradients(tx, every=4)
reveal_type(accumulating.init(params))  # shown: AccumulateGradientsState
chained = optax.chain(mu2_optax.reject_nonfinite(tx), optax.identity())
wrapped: optax.GradientTransformation = mu2_optax.hold_fixed(tx, {"w": False})


# What the theorems say, of numbers and of arrays.
bound = mu2_optax.theory.error_bound(t=np.arange(1, 4), variance=jnp.float32(2.0))
reveal_type(bound)  # shown: Array
mu2_optax.theory.error_bound(t=3, variance="2.0")  # error: reportArgumentType


# A sweep.
def train(learning_rate: jax.Array, key: jax.Array) -> dict[str, jax.Array]:
    return {"loss": learning_rate * jax.random.normal(key) ** 2}


result = sweep(train, [0.1, np.float32(1.0), 10], seeds=3, strategy="vmap")
result = sweep(train, np.logspace(-3, 1, 5), seeds=[0, 7], label="mine")
result = sweep(train, {"learning_rate": [0.1, 1.0], "width": [8, 16]}, seeds=3)
reveal_type(result)  # shown: SweepResult
reveal_type(plateau_width(result, "loss", tolerance=0.1).value)  # shown: float
finished: SweepResult = result
sweep(train, [0.1], seeds=3, strategy="vmpa")  # error: reportArgumentType
sweep(train, 0.1, seeds=3)  # error: reportArgumentType
result.select(learning_rate=0.1)
print(result.accuracy)  # error: reportAttributeAccessIssue
plot_sweep({"mine": result, "other": result}, "loss", "sweep.png")
plot_sweep([0.1, 1.0], "loss", "sweep.png")  # error: reportArgumentType
