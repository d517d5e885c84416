"""Runs of the algorithms on known problems: the error of the estimate and the excess loss."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mu2_optax
from benchmarks.theory.known_problems import Problem
from mu2_optax import mu2_frank_wolfe, theory
from mu2_optax.lmo import l2_ball as l2_ball_oracle


@dataclasses.dataclass(frozen=True, eq=False)
class Method:
    """An algorithm as the theory runs it.

    Attributes:
      name: For tables and legends.
      build: A function of (learning rate, projection) that returns an optimizer.
      estimate: A function of (gradient, x before the step, x after it, state) that returns the
        gradient estimate d, the point x where it is one, and the point that is the output.
      averaged: Whether the theory's output is the mean of those points, as it is for SGD.
      part: The share of the batch that is evaluated again.
    """

    name: str
    build: Callable[[Any, Callable[[Any], Any]], optax.GradientTransformation]
    estimate: Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]
    averaged: bool = False
    part: float = 1.0


def _corrected(grads: Any, before: Any, after: Any, state: Any) -> tuple[Any, Any, Any]:
    return state.d, state.x, state.x


def _plain(grads: Any, before: Any, after: Any, state: Any) -> tuple[Any, Any, Any]:
    return grads, before, before


LINEAR, UNIFORM = mu2_optax.linear_momentum(offset=1), mu2_optax.polynomial_momentum(0)
METHODS = {
    "mu2_sgd": Method(
        "μ²-SGD",
        lambda eta, ball: mu2_optax.mu2_sgd(eta, LINEAR, projection=ball, weighted_steps=True),
        _corrected,
    ),
    **{
        f"mu2_sgd_part_{parts}": Method(
            f"μ²-SGD, 1/{parts} of the batch",
            lambda eta, ball: mu2_optax.mu2_sgd(eta, LINEAR, projection=ball, weighted_steps=True),
            _corrected,
            part=1 / parts,
        )
        for parts in (2, 4, 8)
    },
    **{
        f"mu2_extra_sgd_{name}": Method(
            f"μ²-ExtraSGD, {name}",
            lambda eta, ball, hint=hint: mu2_optax.mu2_extra_sgd(
                eta, LINEAR, projection=ball, hint=hint
            ),
            lambda grads, before, after, state: (state.d, after, after),
            part=part,
        )
        for name, (hint, part) in {
            "part": (None, 1 / 8),
            "hint": (1 / 8, 1.0),
            "hint_and_part": (1 / 2, 1 / 4),
        }.items()
    },
    "uniform": Method(
        "μ²-SGD, uniform weights",
        lambda eta, ball: mu2_optax.mu2_sgd(eta, UNIFORM, projection=ball),
        _corrected,
    ),
    "mu2_extra_sgd": Method(
        "μ²-ExtraSGD",
        lambda eta, ball: mu2_optax.mu2_extra_sgd(eta, LINEAR, projection=ball),
        lambda grads, before, after, state: (state.d, after, after),
    ),
    "mu2_frank_wolfe": Method(
        "μ²-Frank-Wolfe (no rate)",
        lambda eta, ball: mu2_frank_wolfe(l2_ball_oracle(optax.tree.norm(ball(jnp.full(1, 1e9))))),
        _corrected,
    ),
    "storm": Method(
        "STORM, fixed rate",
        lambda eta, ball: mu2_optax.storm(eta, lambda count: 1 / (count + 1), projection=ball),
        lambda grads, before, after, state: (state[0].d, state[0].x, before),
    ),
    "anytime": Method(
        "Anytime-SGD",
        lambda eta, ball: mu2_optax.anytime_sgd(eta, LINEAR, projection=ball, weighted_steps=True),
        _plain,
    ),
    "sgd": Method(
        "SGD",
        lambda eta, ball: mu2_optax.projected(optax.sgd(eta), ball),
        _plain,
        averaged=True,
    ),
}


def _stepper(problem: Problem, method: Method, eta: Any, key: jax.Array) -> tuple[Any, Any]:
    """The first carry, and a step from (carry, t) to (carry, d, the point x of d)."""
    tx = method.build(eta, mu2_optax.onto_l2_ball(problem.radius))
    linear = lambda x, z: jax.lax.stop_gradient(problem.grad_fn(x, z)) @ x  # of this gradient
    gradient = mu2_optax.value_and_grad(linear, part=method.part)
    x = jnp.zeros(problem.dim)

    def step(carry: Any, t: jax.Array) -> tuple[Any, Any, Any]:
        x, state, _, mean = carry
        z = problem.sample(jax.random.fold_in(key, t))
        _, grads, again = gradient(x, z)
        updates, state = tx.update(grads, state, x, **again)
        after = optax.apply_updates(x, updates)
        d, point, output = method.estimate(grads, x, after, state)
        return (after, state, output, mean + (output - mean) / t), d, point

    return (x, tx.init(x), x, x), step


@functools.partial(jax.jit, static_argnums=(0, 1, 3))
def _errors(problem: Problem, method: Method, eta: Any, steps: int, keys: jax.Array) -> jax.Array:
    def run(key: jax.Array) -> jax.Array:
        first, step = _stepper(problem, method, eta, key)

        def scanned(carry: Any, t: jax.Array) -> tuple[Any, jax.Array]:
            carry, d, point = step(carry, t)
            return carry, jnp.sum((d - problem.gradient(point)) ** 2)

        return jax.lax.scan(scanned, first, jnp.arange(1, steps + 1))[1]

    return jax.vmap(run)(keys)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _final(problem: Problem, method: Method, etas: Any, steps: Any, keys: jax.Array) -> jax.Array:
    def run(eta: Any, key: jax.Array) -> jax.Array:
        first, step = _stepper(problem, method, eta, key)
        carry = jax.lax.fori_loop(1, steps + 1, lambda t, carry: step(carry, t)[0], first)
        return problem.excess(carry[3] if method.averaged else carry[2])

    return jax.vmap(jax.vmap(run, in_axes=(None, 0)), in_axes=(0, None))(etas, keys)


def errors(
    problem: Problem, name: str, eta: float, steps: int, seeds: int, key: int = 0
) -> np.ndarray:
    """The squared errors of d, for every seed and step."""
    keys = jax.random.split(jax.random.key(key), seeds)
    return np.asarray(_errors(problem, METHODS[name], eta, steps, keys))


def final_excess(
    problem: Problem, name: str, etas: Any, steps: int, seeds: int, key: int = 0
) -> np.ndarray:
    """The excess loss after ``steps`` steps, for every learning rate and seed."""
    keys = jax.random.split(jax.random.key(key), seeds)
    return np.asarray(_final(problem, METHODS[name], jnp.asarray(etas), steps, keys))


def rate(problem: Problem, name: str, steps: int) -> float:
    """The learning rate of the theorem; for the others, what gives them a comparable step."""
    if name in ("mu2_sgd", "mu2_extra_sgd", "uniform"):
        L = problem.smoothness
        return float(theory.max_learning_rate(smoothness=L, steps=steps, method=name))
    if name == "anytime":
        return rate(problem, "mu2_sgd", steps)
    return 1 / (8 * problem.smoothness)


def variance(problem: Problem, part: float = 1.0) -> float:
    """The effective variance of a problem, with the correction on a part of the batch."""
    return float(
        theory.effective_variance(
            gradient_variance=problem.gradient_variance,
            smoothness_variance=problem.smoothness_variance,
            diameter=problem.diameter,
            part=part,
        )
    )


def bound(problem: Problem, name: str, eta: float, steps: int) -> float:
    """The bound of the excess loss that the theorems give."""
    known = {"steps": steps, "diameter": problem.diameter, "variance": variance(problem)}
    if name == "mu2_frank_wolfe":
        gap = float(problem.excess(jnp.zeros(problem.dim)))
        L = problem.smoothness
        return float(theory.frank_wolfe_bound(smoothness=L, initial_gap=gap, **known))
    return float(theory.excess_loss_bound(learning_rate=eta, method=name, **known))


def slope(steps: Any, values: np.ndarray, resamples: int = 1000) -> tuple[float, float, float]:
    """The slope of log(mean over seeds) against log(steps), with a 95% interval.

    ``values`` has the shape (len(steps), seeds). Seeds are resampled (bootstrap); for a single,
    deterministic run the interval is that of the least-squares fit.
    """
    x = np.log(np.asarray(steps, float))
    if values.shape[1] == 1:
        (fit, _), covariance = np.polyfit(x, np.log(values[:, 0]), 1, cov=True)
        away = 1.96 * float(np.sqrt(covariance[0, 0]))
        return float(fit), float(fit) - away, float(fit) + away
    rng = np.random.default_rng(0)
    picks = rng.integers(0, values.shape[1], (resamples, values.shape[1]))
    fits = [np.polyfit(x, np.log(values[:, pick].mean(1)), 1)[0] for pick in picks]
    low, high = np.quantile(fits, [0.025, 0.975])
    return float(np.polyfit(x, np.log(values.mean(1)), 1)[0]), float(low), float(high)


def within_twice_best(etas: Any, means: np.ndarray) -> tuple[float, float, float]:
    """The ends of the range of rates around the best one within twice its loss, and their ratio."""
    etas = np.asarray(etas)
    good = np.nan_to_num(means, nan=np.inf) <= 2 * np.nanmin(means)
    low = high = int(np.nanargmin(means))
    while low > 0 and good[low - 1]:
        low -= 1
    while high < len(etas) - 1 and good[high + 1]:
        high += 1
    return float(etas[low]), float(etas[high]), float(etas[high] / etas[low])
