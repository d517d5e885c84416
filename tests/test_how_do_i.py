"""The recipes of docs/how_do_i.md run, and what the page says of them is true."""

import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mu2_optax

pytestmark = pytest.mark.usefixtures("compiled_quickly")

PAGE = (pathlib.Path(__file__).parent.parent / "docs" / "how_do_i.md").read_text()
PROBLEM, *RECIPES = PAGE.split("\n## … ")


def blocks(text):
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def scope():
    names = {}
    exec(blocks(PROBLEM)[0], names)
    return names


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.split("\n")[0].rstrip("?"))
def test_each_recipe_runs_by_itself(recipe):
    names = scope()
    for block in blocks(recipe):
        exec(block, names)
    params = jax.tree.leaves(names.get("params", {}))
    assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in params)


def test_sgd_with_momentum_and_its_drop_in_move_alike():
    """A constant gradient: after many steps both move by the effective rate."""
    gradient = lambda params, batch: jnp.ones(())

    def speed(tx):
        params, state = jnp.zeros(()), tx.init(jnp.zeros(()))
        for _ in range(200):
            updates, state = tx.update(1.0 + 0 * params, state, params, **extra)
            params = params + updates
        return float(updates)

    extra = {}
    assert speed(optax.sgd(0.1, momentum=0.9)) == pytest.approx(-1.0, rel=1e-3)
    extra = {"grad_fn": gradient, "batch": ()}
    assert speed(mu2_optax.mu2_sgd(1.0)) == pytest.approx(-1.0, rel=1e-3)


def test_beta_is_the_share_that_is_forgotten():
    """With gradients of zero from the second step on, a tenth of d remains."""
    tx = mu2_optax.corrected_momentum(0.9)
    params = jnp.zeros(())
    _, state = tx.update(jnp.ones(()), tx.init(params), params, prev_grads=params)
    _, state = tx.update(params, state, params, prev_grads=params)
    assert float(state.d) == pytest.approx(0.1)


WRAPPED = {
    "itself": lambda tx: tx,
    "chain": lambda tx: optax.chain(tx, optax.identity()),
    "named_chain": lambda tx: optax.named_chain(("mu2", tx)),
    "reject_nonfinite": mu2_optax.reject_nonfinite,
    "accumulate_gradients": lambda tx: mu2_optax.accumulate_gradients(tx, 1),
    "freeze": lambda tx: mu2_optax.hold_fixed(tx, False),
}


@pytest.mark.parametrize("name", WRAPPED)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_state_is_found_in_every_wrapper(name, dtype):
    tx = WRAPPED[name](mu2_optax.mu2_adamw(0.1))
    state = tx.init({"a": jnp.ones(2, dtype)})
    inside = optax.tree.get(state, "Mu2State")
    for letter in ("d", "w"):
        assert optax.tree.get(state, letter) is getattr(inside, letter)
    assert int(inside.t) == 0
    np.testing.assert_array_equal(inside.x["a"], 1.0)
    assert optax.tree.get(state, "CorrectedMomentumState") is inside.corrected
    assert optax.tree.get(state, "AnytimeState") is inside.averaged
    with pytest.raises(KeyError):
        optax.tree.get(state, "t")
