r"""Stopping when the gradient is small.

The norm of a stochastic gradient says nothing about convergence: at the minimum it is still about
σ. The error of the corrected estimate d shrinks, :math:`E\|d_t - \nabla f(x_t)\|^2 \le
\tilde\sigma^2/(t + 1)`, so its norm can be used the way gradient descent uses the gradient's (Dahan
and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR 2025).
"""

import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from mu2_optax._internal.checks import check_callable, check_iterations, check_nonnegative
from mu2_optax._internal.types import Batch, OptState, Params, Scalar, Tree
from mu2_optax._reading.error_bar import estimate_norm

__all__ = [
    "NormBelow",
    "StopReason",
    "estimate_norm",
    "run_until",
]

Step = Callable[[Params, OptState, Batch], tuple[Params, OptState]]


class StopReason(enum.IntEnum):
    """Why a run has ended.

    Attributes:
      TOLERANCE: The norm stayed at or below the tolerance for ``patience`` steps.
      MAX_STEPS: The steps, or the batches, were used up.
      NONFINITE: The norm became NaN or infinite.
    """

    TOLERANCE = 0
    MAX_STEPS = 1
    NONFINITE = 2


class RunResult(NamedTuple):
    """What :func:`run_until` returns.

    Attributes:
      params: The params after the last step.
      state: The state after the last step.
      steps: How many steps were taken.
      reason: A :class:`StopReason` as an int32; ``StopReason(int(result.reason)).name`` names it.
      norm: The norm of the estimate after the last step.
    """

    params: Params
    state: OptState
    steps: jax.Array
    reason: jax.Array
    norm: jax.Array


def run_until(
    step: Step,
    params: Params,
    state: OptState,
    batches: Callable[[jax.Array], Batch] | Tree,
    *,
    tolerance: Scalar,
    max_steps: int | jax.Array,
    patience: int = 10,
    norm: Callable[[OptState], Scalar] = estimate_norm,
) -> RunResult:
    r"""Runs steps, in one compiled loop, until the norm of the gradient estimate stays small.

    Stops after the first step t with

    .. math:: \|d_\tau\| \le \text{tolerance} \quad\text{for}\quad \tau = t - p + 1, \dots, t

    where p is ``patience``, or when the steps are used up, or when the norm is no longer finite.
    Because :math:`\|\nabla f(x_t)\| \le \|d_t\| + \|d_t - \nabla f(x_t)\|` and the last term is
    about :math:`\tilde\sigma/\sqrt t`, a tolerance well below :math:`\tilde\sigma/\sqrt{T}` needs
    more than T steps.

    Args:
      step: A function of (params, state, batch) that returns (params, state). It may be jitted.
      params: The first params.
      state: The first state.
      batches: A function from the step count (a traced int32 that starts at 0) to a batch, or a
        tree of stacked batches with a leading axis that counts the steps.
      tolerance: What the norm is compared with; a number or a tracer.
      max_steps: The largest number of steps; a number or a tracer. It must not exceed the number of
        stacked batches; if it is a tracer, the run ends with the batches.
      patience: For how many steps in a row the norm must be small. One small norm may be chance,
        especially in the first steps, where the estimate is as noisy as a gradient. It counts calls
        of ``step``: with :func:`mu2_optax.accumulate_gradients` take a multiple of ``every``.
      norm: A function from the state to the number that is compared; by default the norm of d. With
        a β that measures its error, ``lambda state: mu2_optax.error_bar(state).norm_bound`` takes
        that error into account; it holds for samples that are independent from step to step.

    Returns:
      A NamedTuple of ``params`` and ``state`` after the last step, the number of ``steps``, the
      ``reason`` (a :class:`StopReason` as an int32) and the last ``norm``. Every value in it may be
      a tracer, so that a whole run can be jitted or vmapped.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> from mu2_optax import stopping
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2_sgd(0.1, mu2_optax.linear_momentum())
      >>> def step(params, state, batch):
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     return optax.apply_updates(params, updates), state
      >>> draw = lambda count: jax.random.normal(jax.random.fold_in(jax.random.key(0), count), (2,))
      >>> params = jnp.array([3.0, -4.0])
      >>> result = stopping.run_until(
      ...     step, params, tx.init(params), draw, tolerance=0.1, max_steps=10_000
      ... )
      >>> stopping.StopReason(int(result.reason)).name, bool(result.steps < 5000)
      ('TOLERANCE', True)
    """
    check_callable("step", step, "a jitted training step of (params, state, batch)")
    check_callable("norm", norm, "mu2_optax.stopping.estimate_norm")
    check_nonnegative("tolerance", tolerance, "it is compared with a norm.")
    check_iterations("patience", patience)
    max_steps = _concrete(max_steps)
    batch_at, most = _batch_at(batches, max_steps)
    start = jax.eval_shape(functools.partial(_value, norm), state)

    def go_on(carry: tuple[Any, ...]) -> jax.Array:
        _, _, count, small, value = carry
        return (count < most) & (small < patience) & ~_broken(count, value)

    def body(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        params, state, count, small, _ = carry
        params, state = _pair(step(params, state, batch_at(count)))
        value = norm(state)
        small = jnp.where(value <= tolerance, small + 1, 0)
        return params, state, count + 1, small, value

    zero = jnp.zeros([], jnp.int32)
    first = (params, state, zero, zero, jnp.zeros(start.shape, start.dtype))
    params, state, steps, small, value = jax.lax.while_loop(go_on, body, first)
    ended = jnp.where(small >= patience, StopReason.TOLERANCE.value, StopReason.MAX_STEPS.value)
    reason = jnp.where(_broken(steps, value), StopReason.NONFINITE.value, ended)
    return RunResult(params, state, steps, reason.astype(jnp.int32), value)


class NormBelow:
    r"""The rule of :func:`run_until` for a Python loop.

    .. math:: \|d_\tau\| \le \text{tolerance} \quad\text{for}\quad \tau = t - p + 1, \dots, t

    Each call reads one number from the device, so it waits for the step to end; call it every few
    steps if that matters.

    Attributes:
      reason: A :class:`StopReason` once the rule has fired, otherwise None.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> from mu2_optax import stopping
      >>> tx = mu2_optax.mu2_sgd(0.1)
      >>> params, stop = jnp.array(1.0), stopping.NormBelow(0.5, patience=2)
      >>> state = tx.init(params)
      >>> for grads in jnp.array([1.0, 0.2, 0.1, 0.0]):
      ...     _, state = tx.update(grads, state, params, prev_grads=grads)
      ...     if stop(state):
      ...         break
      >>> float(grads), stop.reason.name
      (0.10000000149011612, 'TOLERANCE')
    """

    def __init__(
        self,
        tolerance: float,
        patience: int = 10,
        norm: Callable[[OptState], Scalar] = estimate_norm,
    ) -> None:
        check_nonnegative("tolerance", tolerance, "it is compared with a norm.")
        check_iterations("patience", patience)
        check_callable("norm", norm, "mu2_optax.stopping.estimate_norm")
        self.reason: StopReason | None = None
        self._tolerance, self._patience, self._norm = tolerance, patience, norm
        self._small = 0

    def __call__(self, state: OptState) -> bool:
        """Whether to stop, after the step that gave ``state``."""
        value = float(_value(self._norm, state))
        self._small = self._small + 1 if value <= self._tolerance else 0
        if not jnp.isfinite(value):
            self.reason = StopReason.NONFINITE
        elif self._small >= self._patience:
            self.reason = StopReason.TOLERANCE
        return self.reason is not None


def _value(norm: Callable[[OptState], Scalar], state: OptState) -> Any:
    """The norm of a state; if it has none, the error says what else to pass."""
    try:
        return norm(state)
    except ValueError as error:
        error.add_note(
            "`norm` decides when a run stops: pass any function from the state to the number to "
            "compare with the tolerance."
        )
        raise


def _broken(count: jax.Array, value: jax.Array) -> jax.Array:
    return (count > 0) & ~jnp.isfinite(value)


def _pair(result: Any) -> tuple[Any, Any]:
    """The result of a step, checked."""
    if not isinstance(result, tuple) or len(result) != 2:
        kind = f"{len(result)} values" if isinstance(result, tuple) else type(result).__name__
        raise ValueError(
            f"`step` must return (params, state), got {kind}; drop the loss and other metrics: "
            "`lambda params, state, batch: step(params, state, batch)[:2]`."
        )
    return result


def _concrete(max_steps: Any) -> Any:
    """A Python integer, checked, unless it is a tracer."""
    if isinstance(max_steps, jax.core.Tracer):
        return max_steps
    if isinstance(max_steps, jax.Array) and jnp.issubdtype(max_steps.dtype, jnp.integer):
        max_steps = max_steps.item()
    check_iterations("max_steps", max_steps)
    return int(max_steps)


def _batch_at(batches: Any, max_steps: Any) -> tuple[Callable[[jax.Array], Any], Any]:
    """A function from the step count to a batch, and the number of steps that have batches."""
    if callable(batches):
        return batches, max_steps
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(batches)]
    lengths = {shape[0] if shape else 0 for shape in shapes}
    if len(lengths) != 1 or (isinstance(max_steps, int) and max_steps > min(lengths)):
        raise ValueError(
            "`batches` must be a function of the step count, or a tree whose leaves have one "
            f"leading axis of at least `max_steps` = {max_steps} batches, got leaves of shapes "
            f"{shapes}; to go through n batches again and again, pass "
            "`lambda count: jax.tree.map(lambda a: a[count % n], batches)`."
        )
    most = jnp.minimum(max_steps, lengths.pop())
    return lambda count: jax.tree.map(lambda a: a[count], batches), most
