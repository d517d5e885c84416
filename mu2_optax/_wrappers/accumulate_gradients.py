"""Accumulation across calls: many microbatches, one step."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._gradients.same_sample import gradient_at
from mu2_optax._internal.checks import check_iterations, check_transform
from mu2_optax._internal.means import mean_like
from mu2_optax._internal.tree_checks import check_gradient, check_like, check_params, check_update
from mu2_optax._internal.trees import add, stored_zeros, widened
from mu2_optax._internal.types import Batch, GradFn, OptState, Params, Transform, Tree, Updates
from mu2_optax._optimizers.extra_sgd import Mu2ExtraState
from mu2_optax._optimizers.lean import LeanMu2State
from mu2_optax._paper.estimate import CorrectedMomentumState
from mu2_optax._reading.find import find_all


class AccumulateGradientsState(NamedTuple):
    """State of :func:`accumulate_gradients`.

    Attributes:
      calls: The number of calls since the last step.
      grads: The sum of the gradients of these calls.
      prev_grads: The sum of their gradients at the previous point; None if ``inner`` needs none.
      inner_state: The state of ``inner``.
    """

    calls: jax.Array
    grads: Tree
    prev_grads: Tree
    inner_state: OptState


def accumulate_gradients(
    inner: optax.GradientTransformation, every: int
) -> Transform[AccumulateGradientsState]:
    r"""Collects *both* gradients over k calls, then takes one step.

    .. math::
      g_t = \frac1k \sum_{i=1}^k \nabla f(x_t; z_{t,i}), \qquad
      \tilde g_{t-1} = \frac1k \sum_{i=1}^k \nabla f(x_{t-1}; z_{t,i})

    Each call takes the gradient at params on its own microbatch, and evaluates that microbatch once
    more at the previous point. The first k − 1 updates are zero; the last is the step of ``inner``
    on the two means. If the k microbatches are equally large, that is the step on all of them as
    one batch. If all microbatches are there in one call,
    ``value_and_grad(loss_fn, accumulate=True)`` needs less memory. ``optax.MultiSteps`` around an
    optimizer that evaluates ``grad_fn`` again is silently wrong: it would evaluate it on the last
    microbatch alone. Around :func:`mu2_auto` it is correct.

    Args:
      inner: An optimizer with at most one :func:`corrected_momentum` in it, such as
        :func:`mu2_sgd`; or one without, such as :func:`mu2_auto` or a plain Optax optimizer. Not
        :func:`mu2_extra_sgd`, whose third point depends on the mean of the whole step. To train a
        part of the params, put :func:`hold_fixed` around the result.
      every: k, the number of calls per step.

    Returns:
      A transform whose ``update`` takes ``grad_fn`` and ``batch``, or ``prev_grads``, in every
      call; other extra args reach ``inner`` from the last call. Its state is a
      :class:`AccumulateGradientsState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.mean((x - z) ** 2))
      >>> tx = mu2_optax.accumulate_gradients(mu2_optax.mu2_sgd(0.5), every=2)
      >>> params = jnp.array(1.0)
      >>> state = tx.init(params)
      >>> for batch in [jnp.array([2.0, 3.0]), jnp.array([4.0, 5.0])]:
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     print(updates)
      0.0
      0.25
    """
    check_transform("inner", inner)
    check_iterations("every", every)
    inner = optax.with_extra_args_support(inner)

    def init(params: Params) -> AccumulateGradientsState:
        check_params(params)
        inner_state = inner.init(params)
        corrected = _corrected(inner_state)
        if corrected is not None:
            remedy = (
                "Put `hold_fixed` around `accumulate_gradients`: "
                "`hold_fixed(accumulate_gradients(tx, every), mask)`."
            )
            check_like("the params of the corrected momentum", corrected.x, params, remedy)
        return AccumulateGradientsState(
            calls=jnp.zeros([], jnp.int32),
            grads=stored_zeros(params, None),
            prev_grads=None if corrected is None else stored_zeros(params, None),
            inner_state=inner_state,
        )

    def update(
        updates: Updates,
        state: AccumulateGradientsState,
        params: Params = None,
        *,
        grad_fn: GradFn | None = None,
        batch: Batch = None,
        prev_grads: Updates = None,
        **extra_args: Any,
    ) -> tuple[Updates, AccumulateGradientsState]:
        check_update(updates, state, params, AccumulateGradientsState, like="grads")
        corrected = _corrected(state.inner_state)
        grads = add(state.grads, widened(updates))
        sums = None
        if corrected is not None:
            if prev_grads is None:
                prev_grads = gradient_at(
                    corrected.x, params, updates, grad_fn, batch, "accumulate_gradients"
                )
            else:
                check_gradient("prev_grads", prev_grads, params)
            sums = add(state.prev_grads, widened(prev_grads))

        def wait() -> tuple[Updates, AccumulateGradientsState]:
            calls = optax.safe_increment(state.calls)
            return optax.tree.zeros_like(params), AccumulateGradientsState(
                calls, grads, sums, state.inner_state
            )

        def step() -> tuple[Updates, AccumulateGradientsState]:
            g = mean_like(params, grads, every)
            more = {} if sums is None else {"prev_grads": mean_like(params, sums, every)}
            move, inner_state = inner.update(
                g, state.inner_state, params, grad_fn=_no_gradient, batch=(), **more, **extra_args
            )
            calls = jnp.zeros_like(state.calls)
            return move, AccumulateGradientsState(
                calls, optax.tree.zeros_like(grads), optax.tree.zeros_like(sums), inner_state
            )

        return jax.lax.cond(state.calls + 1 == every, step, wait)

    return optax.GradientTransformationExtraArgs(init, update)


def _corrected(state: OptState) -> CorrectedMomentumState | None:
    """The only corrected momentum in a state, if there is one."""
    found = find_all(state, (CorrectedMomentumState, LeanMu2State, Mu2ExtraState))
    match found:
        case []:
            return None
        case [LeanMu2State()]:
            raise ValueError(
                "`inner` must store its last point, got an optimizer with `lean=True`; leave that "
                "out, or use `value_and_grad(..., accumulate=True)`."
            )
        case [CorrectedMomentumState() as one]:
            return one
    raise ValueError(
        "`inner` must hold at most one corrected momentum and no mu2_extra_sgd, got a state with "
        f"{', '.join(type(node).__name__ for node in found)}; use "
        "`value_and_grad(..., accumulate=True)`, with all microbatches in one call."
    )


def _no_gradient(params: Params, batch: Batch) -> Any:
    """The gradient that ``inner`` must not ask for: the batches of the earlier calls are gone."""
    raise ValueError(
        "`inner` must need no gradient besides those of corrected momentum, got an optimizer that "
        "takes one more; use `value_and_grad(..., accumulate=True)`, with all microbatches in one "
        "call (and put `checked` around `accumulate_gradients`)."
    )
