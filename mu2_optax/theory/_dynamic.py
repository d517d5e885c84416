r"""Batch sizes that change from step to step: compiled once, with memory for one microbatch.

With :math:`b_t = \lceil T/t \rceil` (:func:`mu2_optax.theory.batch_size`) the error of the gradient
estimate is small from the first step on.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import (
    check_callable,
    check_iterations,
    check_keyed,
    check_steps,
    check_transform,
)
from mu2_optax._internal.means import mean_like, wide_zeros
from mu2_optax._internal.tree_checks import check_params
from mu2_optax._internal.trees import add, widened
from mu2_optax._internal.types import Batch, GradFn, Numbers, OptState, Params, Tree
from mu2_optax.theory._rates import batch_size

Sample = Callable[[jax.Array], Batch]


class DynamicRun(NamedTuple):
    """What :func:`run_dynamic` returns.

    Attributes:
      params: The params after the last step.
      state: The state after the last step.
      samples: How many microbatches were drawn.
      records: What ``record`` returned, stacked over the steps; None without ``record``.
    """

    params: Params
    state: OptState
    samples: jax.Array
    records: Tree


def dynamic_batches(grad_fn: GradFn, sample: Sample) -> GradFn:
    r"""The mean of ``grad_fn`` over a number of microbatches that is known only at run time.

    .. math:: \bar g(x, (k, b)) = \frac1b \sum_{i=1}^b g(x, z_i), \qquad
      z_i = \text{sample}(\text{fold\_in}(k, i))

    The microbatches are drawn inside the loop, so that memory does not depend on b. A second
    evaluation draws them again from the same key, so that both see the same samples.

    Args:
      grad_fn: A function of (params, microbatch).
      sample: A function from a key to a microbatch: draw it, or draw indices into data.

    Returns:
      A function of (params, (key, count)), where ``count`` may be a tracer; use it for both
      evaluations of a step.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from mu2_optax import theory
      >>> grad_fn = jax.grad(lambda x, z: 0.5 * (x - z) ** 2)
      >>> mean = jax.jit(theory.dynamic_batches(grad_fn, jax.random.normal))
      >>> small, large = (abs(mean(0.0, (jax.random.key(0), count))) for count in (1, 10_000))
      >>> bool(large < 0.03 < small)
      True

    References:
      Dahan and Levy, appendix on uniformly small errors
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")
    check_callable("sample", sample, "lambda key: jax.random.normal(key, (8,))")

    def mean(params: Params, batch: Batch) -> Any:
        check_keyed("count", batch)
        key, count = batch
        check_steps("count", count)

        def add_next(i: jax.Array, total: Any) -> Any:
            grads = grad_fn(params, sample(jax.random.fold_in(key, i)))
            return add(total, widened(grads))

        shapes = jax.eval_shape(lambda k: grad_fn(params, sample(k)), key)
        total = jax.lax.fori_loop(0, count, add_next, wide_zeros(shapes))
        return mean_like(shapes, total, count)

    return mean


def run_dynamic(
    tx: optax.GradientTransformation,
    grad_fn: GradFn,
    sample: Sample,
    params: Params,
    key: jax.Array,
    *,
    steps: int,
    size: Callable[[jax.Array, int], Numbers] | None = None,
    record: Callable[[Params, OptState], Tree] | None = None,
) -> DynamicRun:
    r"""A whole run with batch sizes :math:`b_t = \lceil T/t \rceil`, in one compiled loop.

    .. math:: E\|d_t - \nabla f(x_t)\|^2 \le \tilde\sigma^2/T \quad\text{for every } t \le T,
      \qquad \sum_{t=1}^T b_t = O(T \log T)

    Args:
      tx: An optimizer such as ``mu2_sgd(rate, linear_momentum(offset=1), projection=ball)``.
      grad_fn: A function of (params, microbatch).
      sample: A function from a key to a microbatch.
      params: The first params.
      key: A key; step t draws its microbatches from ``fold_in(key, t)``.
      steps: T.
      size: A function of (t, T), where t starts at 1, that returns the batch size, at least 1;
        :func:`mu2_optax.theory.batch_size` if it is not given.
      record: A function of (params, state) after a step; its results are stacked.

    Returns:
      A :class:`DynamicRun`.

    Examples:
      >>> import jax, jax.numpy as jnp, mu2_optax
      >>> from mu2_optax import theory
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2_sgd(0.1, mu2_optax.linear_momentum(1))
      >>> draw = lambda key: jax.random.normal(key, (2,))
      >>> run = theory.run_dynamic(tx, grad_fn, draw, jnp.ones(2), jax.random.key(0), steps=100)
      >>> int(run.samples)
      573

    References:
      Dahan and Levy, appendix on uniformly small errors
    """
    check_transform("tx", tx)
    check_params(params)
    check_iterations("steps", steps)
    mean = dynamic_batches(grad_fn, sample)
    update = optax.with_extra_args_support(tx).update
    times = jnp.arange(1, steps + 1, dtype=jnp.int32)
    counts = _sizes(size, steps)

    def step(
        carry: tuple[Any, Any, jax.Array], now: tuple[jax.Array, jax.Array]
    ) -> tuple[Any, Any]:
        params, state, samples = carry
        t, count = now
        batch = (jax.random.fold_in(key, t), count)
        updates, state = update(mean(params, batch), state, params, grad_fn=mean, batch=batch)
        params = optax.apply_updates(params, updates)
        out = None if record is None else record(params, state)
        return (params, state, samples + count), out

    first = (jax.tree.map(jnp.asarray, params), tx.init(params), jnp.zeros([], jnp.int32))
    (params, state, samples), records = jax.lax.scan(step, first, (times, counts))
    return DynamicRun(params, state, samples, records)


def _sizes(size: Callable[[jax.Array, int], Numbers] | None, steps: int) -> jax.Array:
    """The batch size of each step, computed before the run, even if the run is traced."""
    with jax.ensure_compile_time_eval():
        times = jnp.arange(1, steps + 1, dtype=jnp.int32)
        if size is None:
            return batch_size(t=times, steps=steps)
        counts = jax.vmap(lambda t: jnp.asarray(size(t, steps)))(times)
    if not isinstance(counts, jax.core.Tracer):
        for t, count in enumerate(counts.tolist(), 1):
            if not (count >= 1 and count == int(count)):
                raise ValueError(
                    f"`size` must return whole numbers of at least 1, got {count} for step {t}; a "
                    "mean needs a sample, for example `lambda t, T: jnp.maximum(T // t - 10, 1)`."
                )
    return counts.astype(jnp.int32)
