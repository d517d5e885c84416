"""A network as the function of a rate and a key that a sweep takes: one compiled step, in a loop.

On a CPU, XLA runs convolutions inside ``lax.scan`` many times slower than outside, so the loop is
Python's. The learning rate is an argument of the compiled step: one compile for all cells.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from benchmarks.experiment import Case
from benchmarks.optimizers import OPTIMIZERS, Setting


class Network(NamedTuple):
    """A network and its data, as pure functions.

    Attributes:
      init: From a key to (params, statistics).
      loss: Of (params, statistics, batch) in training mode; returns (loss, statistics).
      measure: Of (params, statistics), returns the test accuracy and the test loss.
      recalibrated: Of (params, statistics, key), returns the statistics at these params.
      batches: From (key, steps) to an iterator over the batches of training.
    """

    init: Callable[[jax.Array], tuple[Any, Any]]
    loss: Callable[[Any, Any, Any], tuple[Any, Any]]
    measure: Callable[[Any, Any], tuple[float, float]]
    recalibrated: Callable[[Any, Any, jax.Array], Any]
    batches: Callable[[jax.Array, int], Iterator[Any]]


def make_train(network: Network) -> Callable[[Case], Callable[..., dict[str, float]]]:
    """From a case to its training; cases of one optimizer share its compiled step."""
    compiled = functools.cache(functools.partial(make_steps, network))

    def of_case(case: Case) -> Callable[..., dict[str, float]]:
        def train(learning_rate: float, key: jax.Array) -> dict[str, float]:
            init, step = compiled(case.optimizer)
            rate = np.float32(learning_rate)
            params, statistics = network.init(key)
            state = init(rate, params)
            for batch in network.batches(key, case.steps):
                params, statistics, state = step(rate, params, statistics, state, batch)
            final = OPTIMIZERS[case.optimizer].evaluate(state, params)
            if final is not params:  # schedule-free: the running statistics are not its average's
                statistics = network.recalibrated(final, statistics, key)
            accuracy, loss = network.measure(final, statistics)
            return {
                "test_accuracy": accuracy if np.isfinite(loss) else float("nan"),
                "test_loss": loss,
            }

        return train

    return of_case


def make_steps(network: Network, optimizer: str) -> tuple[Any, Any]:
    """The compiled first state of an optimizer, and its compiled step."""
    make = OPTIMIZERS[optimizer].make
    value_and_grad = jax.value_and_grad(network.loss, has_aux=True)

    def grad_fn(params: Any, sample: Any) -> Any:
        return value_and_grad(params, *sample)[1]

    @jax.jit
    def init(learning_rate: Any, params: Any) -> Any:
        return make(learning_rate, Setting()).init(params)

    @jax.jit
    def step(learning_rate: Any, params: Any, statistics: Any, state: Any, batch: Any) -> Any:
        tx = make(learning_rate, Setting())
        sample = (statistics, batch)  # both evaluations normalise and drop alike
        (_, statistics), grads = value_and_grad(params, *sample)
        updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=sample)
        return optax.apply_updates(params, updates), statistics, state

    return init, step


def shuffled(images: int, batch: int, seed: int, count: int) -> Iterator[Any]:
    """The rows of ``count`` batches: all images in a new order in each epoch, none left over."""
    rng = np.random.default_rng(seed)
    epochs = -(-count * batch // images)
    order = np.concatenate([rng.permutation(images) for _ in range(epochs)])
    return (order[start : start + batch] for start in range(0, count * batch, batch))
