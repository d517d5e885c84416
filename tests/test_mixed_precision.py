"""bfloat16 params, and what their optimizer remembers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cnn import CLASSES, LinenCNN, batches, linen_variables, nnx_model
from flax import nnx
from test_linen import train_step
from test_nnx import train_step as nnx_train_step

import mu2_optax
import mu2_optax.linen

STEPS, SEEDS = 80, 3
STEP = jax.jit(train_step)


def last_losses(dtype, tx):
    """The mean loss of the last quarter of a run, for each seed."""
    variables = linen_variables(dtype=dtype)
    start = mu2_optax.linen.TrainState.create(
        apply_fn=LinenCNN(dtype=dtype).apply, tx=tx, **variables
    )
    found = []
    for seed in range(SEEDS):
        state, losses = start, []
        for batch in batches(STEPS, size=32, seed=seed):
            state, loss = STEP(state, batch)
            losses.append(float(loss))
        found.append(np.mean(losses[-STEPS // 4 :]))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.params)} == {
        leaf.dtype for leaf in jax.tree.leaves(variables["params"])
    }
    return np.array(found)


def test_bfloat16_params_with_the_default_state_train_as_well_as_float32():
    tx = mu2_optax.mu2_sgd(0.5, mu2_optax.linear_momentum())
    full, half = (last_losses(dtype, tx) for dtype in (jnp.float32, jnp.bfloat16))
    assert full.mean() < 0.8 * np.log(CLASSES)
    assert half.mean() < full.mean() + full.std(ddof=1)  # within the spread over seeds


def test_nnx_keeps_bfloat16_params_and_a_float32_state():
    model = nnx_model()
    narrow = jax.tree.map(lambda p: p.astype(jnp.bfloat16), nnx.state(model, nnx.Param))
    nnx.update(model, narrow)
    optimizer = nnx.Optimizer(model, mu2_optax.mu2_sgd(0.5), wrt=nnx.Param)
    for batch in batches(3):
        loss = nnx_train_step(model, optimizer, batch)
    assert np.isfinite(loss)
    params = jax.tree.leaves(nnx.as_pure(nnx.state(model, nnx.Param)))
    state = jax.tree.leaves(nnx.as_pure(optimizer.opt_state))
    assert {leaf.dtype for leaf in params} == {jnp.dtype(jnp.bfloat16)}
    assert {leaf.dtype for leaf in state if leaf.ndim} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    ("make", "in_float32", "in_bfloat16", "narrow"),
    [
        (lambda dtype: mu2_optax.mu2_sgd(0.1, state_dtype=dtype), 12, 16, 6),
        (lambda dtype: mu2_optax.mu2_extra_sgd(0.1, state_dtype=dtype), 8, 12, 4),
        (lambda dtype: mu2_optax.mu2_adam(0.1, state_dtype=dtype), 16, 20, 8),
    ],
    ids=["mu2_sgd", "mu2_extra_sgd", "mu2_adam"],
)
def test_the_memory_of_a_state_is_what_the_documentation_says(
    make, in_float32, in_bfloat16, narrow
):
    def bytes_per_parameter(param_dtype, state_dtype):
        state = make(state_dtype).init(jnp.zeros(1000, param_dtype))
        return sum(leaf.nbytes for leaf in jax.tree.leaves(state) if leaf.ndim) / 1000

    assert bytes_per_parameter(jnp.float32, None) == in_float32
    assert bytes_per_parameter(jnp.bfloat16, None) == in_bfloat16
    assert bytes_per_parameter(jnp.bfloat16, jnp.bfloat16) == narrow
