"""One compiled training: a function of a rate and a seed, measured at points along the run.

For a quick look, with any Optax transform:

    from benchmarks.self_tuning.runner import run_once
    from benchmarks.self_tuning.tasks import TASKS

    run_once(TASKS["mlp_fashion"], optax.adam(1e-3), seed=0)
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.optimizers import at_params
from benchmarks.self_tuning.task import TEST, VALIDATION, Functions, Task

POINTS = 20  # where the validation metric is measured, evenly along the run
Make = Callable[[Any, int], Any]
Evaluate = Callable[[Any, Any], Any]


@functools.lru_cache(maxsize=2)  # images are large
def _arrays(load: Any, data_dir: str | None) -> Any:
    return jax.tree.map(jnp.asarray, load(data_dir))


def load(task: Task, data_dir: str | None = None) -> Any:
    """The data of a task on the device; the last ones that were asked for are kept."""
    return _arrays(task.load, data_dir)


@functools.lru_cache(maxsize=4)
def _beginning(make: Callable[[Any], Functions], steps: int) -> Callable[..., Any]:
    """From (data, seed) to params, rows and world; compiled once for all optimizers."""

    def begin(data: Any, seed: Any) -> tuple[Any, Any, Any]:
        functions = make(data)
        init_key, draw_key, world_key = jax.random.split(jax.random.key(seed), 3)
        rows = functions.draw(draw_key, steps)
        return functions.init(init_key), rows, functions.world(world_key)

    return jax.jit(begin)


def make_train(
    task: Task, make: Make, evaluate: Evaluate = at_params, steps: int | None = None
) -> Callable[..., dict[str, Any]]:
    """Makes the training of a task with an optimizer.

    Args:
      task: What is learnt.
      make: From (rate, steps) to the optimizer. Its ``update`` is given ``value`` (the loss),
        ``grad_fn`` and ``batch`` beside the usual, if it takes them.
      evaluate: From (state, params) to the params to evaluate.
      steps: A multiple of 20; by default the task's.

    Returns:
      A function of (data, rate, seed), compiled once, to ``curve``, the validation metric at 20
      points, ``validation`` and ``test``, the final ones. What is not finite comes back as NaN.
    """
    steps = steps or task.steps
    if steps % POINTS:
        raise ValueError(f"`steps` must be a multiple of {POINTS}, got {steps}.")

    begin = _beginning(task.make, steps)

    @jax.jit
    def train_from(beginning: Any, data: Any, rate: Any) -> dict[str, Any]:
        params, rows, world = beginning
        functions = task.make(data)
        tx = optax.with_extra_args_support(make(rate, steps))
        grad_fn = jax.grad(functions.loss)

        def step(carry: Any, row: Any) -> tuple[Any, None]:
            params, state, world = carry
            if functions.collect is None:
                batch = functions.batch(row)
            else:
                batch, world = functions.collect(world, params, row)
            value, grads = jax.value_and_grad(functions.loss)(params, batch)
            extra = {"value": value, "grad_fn": grad_fn, "batch": batch}
            updates, state = tx.update(grads, state, params, **extra)
            return (optax.apply_updates(params, updates), state, world), None

        def measured(state: Any, params: Any, part: str) -> Any:
            value = functions.measure(evaluate(state, params), rows, part)
            return jnp.where(jnp.isfinite(value), value, jnp.nan)

        def stretch(carry: Any, some: Any) -> tuple[Any, Any]:
            carry, _ = jax.lax.scan(step, carry, some)
            params, state, _ = carry
            test = measured(state, params, TEST) if task.mean_of_run else ()
            return carry, (measured(state, params, VALIDATION), test)

        stretches = jax.tree.map(lambda a: a.reshape(POINTS, -1, *a.shape[1:]), rows)
        carry = (params, tx.init(params), world)
        (params, state, _), (curve, test_curve) = jax.lax.scan(stretch, carry, stretches)
        if task.mean_of_run:
            return {"curve": curve, VALIDATION: curve.mean(), TEST: test_curve.mean()}
        return {"curve": curve, VALIDATION: curve[-1], TEST: measured(state, params, TEST)}

    return lambda data, rate, seed: train_from(begin(data, seed), data, rate)


def as_numbers(result: dict[str, Any]) -> dict[str, Any]:
    """A result in Python's numbers; the curve as a list."""
    return {name: jax.device_get(value).tolist() for name, value in result.items()}


def run_once(
    task: Task,
    tx: Any,
    steps: int | None = None,
    seed: int = 0,
    *,
    eval_params: Evaluate = at_params,
    data_dir: str | None = None,
) -> dict[str, Any]:
    """Trains once with any Optax transform, for research.

    Args:
      task: One of ``TASKS``.
      tx: The optimizer; for one training function over many rates see `make_train`.
      steps: A multiple of 20; by default the task's.
      seed: Of the first params and the batches.
      eval_params: From (state, params) to the params to evaluate.
      data_dir: The folder of the data; by default what `examples.data` says.

    Returns:
      ``curve``, ``validation`` and ``test``.
    """
    train = make_train(task, lambda rate, steps: tx, eval_params, steps)
    return as_numbers(train(load(task, data_dir), 1.0, seed))


def better(task: Task, a: float, b: float) -> bool:
    """Whether a metric is better than another; anything is better than NaN."""
    if math.isnan(a):
        return False
    return math.isnan(b) or (a > b if task.higher_is_better else a < b)
