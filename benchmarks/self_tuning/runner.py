"""One compiled training: a function of a rate and a seed, measured at points along the run."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.optimizers import Optimizer, Setting
from benchmarks.self_tuning.task import TEST, VALIDATION, Task
from benchmarks.training import Functions, run_measured

POINTS = 20  # where the validation metric is measured, evenly along the run


@functools.lru_cache(maxsize=2)  # images are large
def _arrays(load: Any, data_dir: str | None) -> Any:
    return jax.tree.map(jnp.asarray, load(data_dir))


def load(task: Task, data_dir: str | None = None) -> Any:
    """The data of a task on the device; the last ones that were asked for are kept."""
    return _arrays(task.load, data_dir)


@functools.lru_cache(maxsize=4)
def make_beginning(make: Callable[[Any], Functions], steps: int) -> Callable[..., Any]:
    """From (data, seed) to params, rows and world; compiled once for all optimizers."""

    def begin(data: Any, seed: Any) -> tuple[Any, Any, Any]:
        functions = make(data)
        init_key, draw_key, world_key = jax.random.split(jax.random.key(seed), 3)
        rows = functions.draw(draw_key, steps)
        return functions.init(init_key), rows, functions.world(world_key)

    return jax.jit(begin)


def make_train(
    task: Task, optimizer: Optimizer, steps: int | None = None
) -> Callable[..., dict[str, Any]]:
    """Makes the training of a task with an optimizer.

    Args:
      task: What is learnt.
      optimizer: The optimizer.
      steps: A multiple of 20; by default the task's.

    Returns:
      A function of (data, rate, seed), compiled once, to ``curve``, the validation metric at 20
      points, ``validation`` and ``test``, the final ones. What is not finite comes back as NaN.
    """
    steps = steps or task.steps
    if steps % POINTS:
        raise ValueError(f"`steps` must be a multiple of {POINTS}, got {steps}.")

    begin = make_beginning(task.make, steps)

    @jax.jit
    def train_from(beginning: Any, data: Any, rate: Any) -> dict[str, Any]:
        functions = task.make(data)

        def measured(params: Any, state: Any, rows: Any, part: str) -> Any:
            value = functions.measure(optimizer.evaluate(state, params), rows, part)
            return jnp.where(jnp.isfinite(value), value, jnp.nan)

        def at_point(params: Any, state: Any, rows: Any) -> Any:
            test = measured(params, state, rows, TEST) if task.mean_of_run else ()
            return measured(params, state, rows, VALIDATION), test

        params, state, (curve, test) = run_measured(
            functions, optimizer.make(rate, Setting(steps=steps)), beginning, at_point, POINTS
        )
        if task.mean_of_run:
            return {"curve": curve, VALIDATION: curve.mean(), TEST: test.mean()}
        test = measured(params, state, beginning[1], TEST)
        return {"curve": curve, VALIDATION: curve[-1], TEST: test}

    return lambda data, rate, seed: train_from(begin(data, seed), data, rate)


def as_numbers(result: dict[str, Any]) -> dict[str, Any]:
    """A result in Python's numbers; the curve as a list."""
    return {name: jax.device_get(value).tolist() for name, value in result.items()}
