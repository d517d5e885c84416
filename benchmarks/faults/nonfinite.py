"""NaN and Inf in a twentieth of the gradients, with ``reject_nonfinite`` around each optimizer.

Least squares with noise, a fault in one of twenty steps, at random, in the gradient at the params
or in those that the optimizer asks for. A run survives if every such step was rejected and it ends
as a run does that never saw their batches; and all seeds together do if their mean excess loss is
that of runs with all batches and no faults, within three standard errors.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax as m
from benchmarks.faults.count import LOST, Count, count
from mu2_optax import lmo

STEPS, SHARE = 400, 0.05
FAULTY = int(STEPS * SHARE)
SOLUTION = np.arange(1.0, 5.0, dtype=np.float32)
BALL = m.onto_l2_ball(50.0)
OPTIMIZERS = {
    "mu2_sgd": m.mu2_sgd(0.1),
    "mu2_sgd, linear": m.mu2_sgd(0.1, m.linear_momentum(), projection=BALL),
    "mu2_sgd, measured β": m.mu2_sgd(0.1, m.linear_momentum(beta=m.measured_beta())),
    "mu2_sgd, lean": m.mu2_sgd(0.1, lean=True),
    "mu2_sgd, part": m.mu2_sgd(0.1),
    "mu2_extra_sgd": m.mu2_extra_sgd(0.05, projection=BALL),
    "mu2_adam": m.mu2_adam(0.05, m.linear_momentum()),
    "mu2_adamw": m.mu2_adamw(0.05, m.linear_momentum(), weight_decay=1e-4),
    "mu2_frank_wolfe": m.mu2_frank_wolfe(lmo.l2_ball(10.0)),
    "mu2_auto": m.mu2_auto(),
    "storm": m.storm(0.1, 0.1),
    "anytime_sgd": m.anytime_sgd(0.1, m.linear_momentum()),
    "projected sgd": m.projected(optax.sgd(0.05), BALL),
    "chain": optax.chain(
        m.corrected_momentum(0.5), optax.clip_by_global_norm(1e3), m.anytime(optax.sgd(0.1), 0.2)
    ),
}
# In the gradient at the params, or in those that the optimizer asks for; some read one alone.
WHERE = ("grads", "again")
READS = {"mu2_auto": ("grads",), "anytime_sgd": ("grads",), "projected sgd": ("grads",)}
PART = {"mu2_sgd, part": 1 / 4}  # of the batch that is evaluated again
FAULTS = (np.nan, np.inf, -np.inf)


def grad_fn(x, batch):
    """The gradient of least squares, and a fault where the batch has one."""
    a, b, fault = batch
    return jax.grad(lambda x: jnp.mean((a @ x - b) ** 2) / 2)(x) + jnp.mean(fault)


def samples(seeds: int) -> tuple[np.ndarray, ...]:
    """For each seed and step a batch, and whether the step has a fault."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=(seeds, STEPS, 8, 4)).astype(np.float32)
    b = a @ SOLUTION + 0.5 * rng.normal(size=(seeds, STEPS, 8)).astype(np.float32)
    broken = rng.permuted(np.tile(np.arange(STEPS) < FAULTY, (seeds, 1)), axis=1)
    return a, b, broken


def excess_loss(tx: Any, part: float, where: str, fault, a, b, broken):
    """The excess loss at the end of a run, and how many steps were rejected."""

    def step(carry, sample):
        x, state = carry
        a, b, fault = sample
        whole, faulty = (a, b, jnp.zeros(8)), (a, b, jnp.full(8, fault))
        gradient = m.grad_in_parts(grad_fn, part)
        grads, _ = gradient(x, faulty if where == "grads" else whole)
        _, again = gradient(x, faulty if where == "again" else whole)
        updates, state = tx.update(grads, state, x, **again)
        return (optax.apply_updates(x, updates), state), None

    x = jnp.zeros(4)
    faults = jnp.where(broken, fault, 0.0)
    (x, state), _ = jax.lax.scan(step, (x, tx.init(x)), (a, b, faults))
    return jnp.sum((x - SOLUTION) ** 2) / 2, state.total


def without(arrays: tuple[np.ndarray, ...], broken: np.ndarray) -> list[np.ndarray]:
    """The samples without those that have a fault."""
    left = [[array[seed][~broken[seed]] for seed in range(len(broken))] for array in arrays]
    return [np.stack(array) for array in left]


def runs(name: str, seeds: int, faults: tuple[float, ...] = FAULTS) -> list[str]:
    """How the runs of an optimizer ended, for each fault and each gradient that it may be in."""
    tx, data, outcomes = m.reject_nonfinite(OPTIMIZERS[name]), samples(seeds), []
    for where in READS.get(name, WHERE):
        one_run = functools.partial(excess_loss, tx, PART.get(name, 1), where)
        run = jax.jit(jax.vmap(one_run, in_axes=(None, 0, 0, 0)))
        clean, _ = map(np.asarray, run(0.0, *data))
        shorter, _ = map(np.asarray, run(0.0, *without(data, data[-1])))
        for fault in faults:
            faulty, rejected = map(np.asarray, run(fault, *data))
            noise = np.sqrt((np.var(faulty) + np.var(clean)) / seeds)
            within = abs(np.mean(faulty) - np.mean(clean)) < 3 * noise
            alike = np.isclose(faulty, shorter, rtol=1e-4, atol=1e-7) & (rejected == FAULTY)
            outcomes += ["within noise" if within and one else LOST for one in alike]
    return outcomes


def measure(seeds: int) -> list[Count]:
    """Every optimizer, with so many seeds."""
    fault = f"{SHARE:.0%} of gradients not finite"
    return [count(fault, name, runs(name, seeds)) for name in OPTIMIZERS]
