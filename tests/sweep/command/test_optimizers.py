"""The lines of Python that the command gives for its optimizers make the same optimizers."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mu2_optax
from mu2_optax.sweep._command.optimizers import (
    OPTIMIZERS,
    Setting,
    make_optimizer,
    python_template,
)

RATE, STEPS, RADIUS = 0.3, 40, 1.5


def params_after(tx, steps=4):
    """Where a few steps on a skewed bowl lead."""
    scales = {"w": jnp.arange(1.0, 7.0).reshape(2, 3), "b": jnp.ones(3)}
    gradient = jax.grad(lambda p, batch: sum(jnp.sum(scales[k] * (p[k] - batch) ** 2) for k in p))
    params = {"w": jnp.ones((2, 3)), "b": jnp.zeros(3)}
    state = tx.init(params)
    tx = optax.with_extra_args_support(tx)
    for i in range(steps):
        batch = 0.1 * i
        grads = gradient(params, batch)
        updates, state = tx.update(grads, state, params, grad_fn=gradient, batch=batch)
        params = optax.apply_updates(params, updates)
    return jax.tree.leaves(params)


CASES = [(name, False) for name in OPTIMIZERS]
CASES += [(name, True) for name, known in OPTIMIZERS.items() if known.in_ball]


@pytest.mark.parametrize(("name", "ball"), CASES)
def test_the_line_makes_what_was_run(name, ball):
    line = python_template(name, RADIUS if ball else None, STEPS)
    assert ("{learning_rate}" in line) == OPTIMIZERS[name].has_rate
    made = eval(
        line.replace("{learning_rate}", str(RATE)), {"mu2_optax": mu2_optax, "optax": optax}
    )
    setting = Setting(mu2_optax.fixed_momentum(), None, STEPS)
    if ball:
        projection = mu2_optax.onto_l2_ball(RADIUS)
        setting = Setting(mu2_optax.linear_momentum(), projection, STEPS)
    run = make_optimizer(name, RATE, setting)
    for a, b in zip(params_after(made), params_after(run), strict=True):
        np.testing.assert_array_equal(a, b)


def test_lines_are_as_short_as_they_can_be():
    assert python_template("mu2_auto", None, None) == "mu2_optax.mu2_auto()"
    assert python_template("mu2_sgd", None, None) == "mu2_optax.mu2_sgd({learning_rate})"
    ball = "mu2_optax.onto_l2_ball(3.0)"
    assert python_template("sgd", 3.0, None) == (
        f"mu2_optax.projected(optax.sgd({{learning_rate}}), {ball})"
    )
    assert python_template("mu2_auto", 3.0, None) == f"mu2_optax.mu2_auto(projection={ball})"
