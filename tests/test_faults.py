"""Batches that are not finite, and runs that diverge."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mu2_optax
import mu2_optax.linen
import mu2_optax.lmo
import mu2_optax.nnx

STEPS, FAULTS, SEEDS = 200, 20, 16
OPTIMIZERS = {
    "mu2_sgd": mu2_optax.mu2_sgd(0.1),
    "mu2_extra_sgd": mu2_optax.mu2_extra_sgd(0.1, mu2_optax.fixed_momentum()),
    "mu2_adam": mu2_optax.mu2_adam(0.05, mu2_optax.linear_momentum()),
}
SOLUTION = np.arange(1.0, 5.0, dtype=np.float32)


def grad_fn(x, batch):
    """Least squares, with whatever the batch wants to break at this point."""
    a, b, fault = batch
    return jax.grad(lambda x: jnp.mean((a @ x - b) ** 2) / 2)(x) + fault


def samples():
    """For each seed and step: a batch, and whether the step is broken."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(SEEDS, STEPS, 8, 4)).astype(np.float32)
    b = a @ SOLUTION + 0.5 * rng.normal(size=(SEEDS, STEPS, 8)).astype(np.float32)
    broken = rng.permuted(np.tile(np.arange(STEPS) < FAULTS, (SEEDS, 1)), axis=1)
    return a, b, broken


def excess_loss(tx, where, fault, a, b, broken):
    """The excess loss after a run with faults in some steps, and how many were rejected."""

    def step(carry, sample):
        x, state = carry
        a, b, fault = sample
        in_grads, in_again = (fault if where == w else 0.0 for w in ("grads", "again"))
        grads = grad_fn(x, (a, b, in_grads))
        batch = (a, b, in_again)
        updates, state = tx.update(grads, state, x, grad_fn=grad_fn, batch=batch)
        return (optax.apply_updates(x, updates), state), None

    start = jnp.zeros(4)
    samples = (a, b, jnp.where(broken, fault, 0.0))
    (x, state), _ = jax.lax.scan(step, (start, tx.init(start)), samples)
    return jnp.sum((x - SOLUTION) ** 2) / 2, state.total


@pytest.mark.parametrize("where", ["grads", "again"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_faults_at_random_steps_end_within_noise_of_the_clean_run(name, where):
    tx = mu2_optax.reject_nonfinite(OPTIMIZERS[name])
    one_run = functools.partial(excess_loss, tx, where)
    run = jax.jit(jax.vmap(one_run, in_axes=(None, 0, 0, 0)))
    data = samples()
    clean, rejected = run(0.0, *data)
    assert int(rejected.sum()) == 0
    for fault in (np.nan, np.inf, -np.inf):
        faulty, rejected = run(fault, *data)
        np.testing.assert_array_equal(rejected, FAULTS)
        noise = np.std(faulty - clean) / SEEDS**0.5
        # three standard errors, and as much again as a tenth of the steps is worth
        assert np.mean(faulty - clean) < 3 * noise + 0.2 * np.mean(clean)


@pytest.mark.parametrize("guarded", [False, True])
def test_a_diverging_loss_is_inf_in_the_metrics_and_no_exception(guarded):
    tx = mu2_optax.mu2_sgd(1e6)
    if guarded:
        tx = mu2_optax.reject_nonfinite(tx, max_consecutive=2)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state, target):
        loss_fn = lambda params: jnp.sum((params["x"] - target) ** 4)
        loss, grads, again = mu2_optax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads, **again), loss

    params = {"x": jnp.ones(3)}
    state = mu2_optax.linen.TrainState.create(apply_fn=None, params=params, tx=tx)
    losses = []
    for i in range(30):
        state, loss = step(state, jnp.float32(i % 3))
        losses.append(float(loss))
    assert losses[0] < np.inf
    assert np.inf in losses


def compiled_lines(tx, leaves):
    """The lines of the compiled program of one step: what the time to compile grows with."""
    params = {str(number): jnp.ones((8, 8)) for number in range(leaves)}

    def step(params, state, target):
        grad_fn = jax.grad(lambda p, z: sum(jnp.sum((v - z) ** 2) for v in p.values()))
        grads = grad_fn(params, target)
        return tx.update(grads, state, params, grad_fn=grad_fn, batch=target)

    return jax.jit(step).lower(params, tx.init(params), 1.0).compile().as_text().count("\n")


WHOLE_TREE = {
    "reject_nonfinite": mu2_optax.reject_nonfinite(mu2_optax.mu2_sgd(0.1)),
    "l2 projection": mu2_optax.mu2_sgd(0.1, projection=mu2_optax.onto_l2_ball(1.0)),
    "l2 oracle": mu2_optax.mu2_frank_wolfe(mu2_optax.lmo.l2_ball(1.0)),
    "l1 oracle": mu2_optax.mu2_frank_wolfe(mu2_optax.lmo.l1_ball(1.0)),
    "simplex oracle": mu2_optax.mu2_frank_wolfe(mu2_optax.lmo.simplex()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE_TREE)
def test_what_depends_on_all_leaves_compiles_in_time_linear_in_their_number(name):
    tx = WHOLE_TREE[name]
    assert compiled_lines(tx, 80) < 1.1 * (80 / 20) * compiled_lines(tx, 20)


@pytest.mark.slow
def test_the_guard_compiles_to_little_more_than_that_of_optax():
    inner = mu2_optax.mu2_sgd(0.1)
    ours = compiled_lines(mu2_optax.reject_nonfinite(inner), 80)
    assert ours < 2 * compiled_lines(optax.apply_if_finite(inner, 5), 80)
