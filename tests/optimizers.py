"""Every optimizer of the library, and a small problem for all; a new one is a line in ``CASES``."""

import dataclasses
import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
import pytest

import mu2_optax as m
from mu2_optax import lmo


@dataclasses.dataclass(frozen=True)
class Case:
    """An optimizer as a function of its learning rate, and rates that suit the test problems.

    ``near`` is how near it comes to the minimum of Rosenbrock's function.
    """

    make: Callable
    rate: float = 0.1
    rosenbrock: float = 1e-3
    near: float = 3e-2  # the contract's: an average still holds a share of its first iterates


BALL = m.onto_l2_ball(50.0)

CASES = {
    "mu2_sgd": Case(m.mu2_sgd),
    "mu2_sgd linear": Case(lambda learning_rate: m.mu2_sgd(learning_rate, m.linear_momentum())),
    "mu2_sgd polynomial": Case(
        lambda learning_rate: m.mu2_sgd(learning_rate, m.polynomial_momentum(3), projection=BALL)
    ),
    "mu2_sgd measured": Case(
        lambda learning_rate: m.mu2_sgd(
            learning_rate, m.polynomial_momentum(3, beta=m.measured_beta())
        )
    ),
    "storm measured": Case(lambda learning_rate: m.storm(learning_rate, m.measured_beta())),
    "mu2_adam": Case(m.mu2_adam, 5e-3, 5e-4),
    "mu2_adam weight_decay": Case(
        lambda learning_rate: m.mu2_adam(learning_rate, weight_decay=1e-6), 5e-3, 5e-4
    ),
    "mu2_sgd weight_decay": Case(functools.partial(m.mu2_sgd, weight_decay=1e-6)),
    "mu2_extra_sgd": Case(
        lambda learning_rate: m.mu2_extra_sgd(learning_rate, projection=BALL), 0.1, 2e-4
    ),
    "mu2_extra_sgd fixed": Case(
        lambda learning_rate: m.mu2_extra_sgd(learning_rate, m.fixed_momentum())
    ),
    "mu2_frank_wolfe": Case(lambda learning_rate: m.mu2_frank_wolfe(lmo.l2_ball(12.0))),
    "mu2_auto": Case(lambda learning_rate: m.mu2_auto()),
    "mu2_auto decayed": Case(
        lambda learning_rate: m.mu2_auto(weight_decay=1e-6, projection=BALL), near=0.1
    ),
    "mu2_auto spectral": Case(lambda learning_rate: m.mu2_auto(spectral=True)),
    "distance_rate": Case(
        lambda learning_rate: m.anytime(
            m.distance_rate(m.unit_directions()), m.polynomial_momentum(2.0).gamma
        )
    ),
    "mu2_sgd lean": Case(functools.partial(m.mu2_sgd, lean=True)),
    "mu2_adam lean": Case(functools.partial(m.mu2_adam, lean=True), 5e-3, 5e-4),
    "storm": Case(lambda learning_rate: m.storm(learning_rate, 0.1)),
    "anytime_sgd": Case(
        lambda learning_rate: m.anytime_sgd(learning_rate, m.polynomial_momentum(3))
    ),
    "projected sgd": Case(lambda learning_rate: m.projected(optax.sgd(learning_rate), BALL)),
    "reject_nonfinite": Case(lambda learning_rate: m.reject_nonfinite(m.mu2_sgd(learning_rate))),
    "accumulate_gradients": Case(
        lambda learning_rate: m.accumulate_gradients(m.mu2_sgd(learning_rate), 2)
    ),
    "chain": Case(
        lambda learning_rate: optax.chain(
            m.corrected_momentum(0.5),
            optax.clip_by_global_norm(1e3),
            m.anytime(optax.sgd(learning_rate), 0.2),
        )
    ),
}

# Options of optimizers that stand above already, and wrappers, which have tests of their own. They
# pass those lines of the contract that an option can break.
VARIANTS = {
    "reject_nonfinite",
    "accumulate_gradients",
    "chain",
    "mu2_sgd polynomial",
    "storm measured",
    "mu2_adam weight_decay",
    "mu2_sgd weight_decay",
    "mu2_extra_sgd fixed",
    "mu2_auto decayed",
    "distance_rate",
    "mu2_auto spectral",
    "mu2_sgd lean",
    "mu2_adam lean",
}
MECHANISMS = [name for name in CASES if name not in VARIANTS]

# These choose their steps themselves, and what is said of learning rates is not said of them.
UNRATED = {"mu2_frank_wolfe", "mu2_auto"}


def each_of(names):
    """Parametrizes a test over some of the cases."""
    return pytest.mark.parametrize("case", [pytest.param(CASES[name], id=name) for name in names])


every_optimizer = each_of(CASES)
every_mechanism = each_of(MECHANISMS)
every_mechanism_with_a_rate = each_of([name for name in MECHANISMS if name not in UNRATED])


def each_with(names, first, others):
    """Parametrizes a test over pairs: all cases with the first value, mechanisms with all."""
    pairs = [(name, first) for name in CASES]
    pairs += [(name, other) for name in MECHANISMS for other in others]
    ids = [f"{name}-{value}" for name, value in pairs]
    return pytest.mark.parametrize(names, [(CASES[name], value) for name, value in pairs], ids=ids)


def square(tree):
    return sum(jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(tree))


def start(dtype=jnp.float32):
    return {"a": jnp.array([1.0, -2.0, 0.5, 3.0], dtype), "b": [jnp.array([[0.3], [0.7]], dtype)]}


def grad_fn(params, batch):
    return jax.grad(lambda p: 0.5 * square(jax.tree.map(lambda a: a - batch.astype(a.dtype), p)))(
        params
    )


BATCHES = jnp.array([0.1, -0.3, 0.25, 0.4, -0.2])


def step(tx, params, state, batch):
    grads = grad_fn(params, batch)
    updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
    return optax.apply_updates(params, updates), state
