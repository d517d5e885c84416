"""For a trial run: checks the gradients given to an optimizer, and that its params stay put."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import checkify

from mu2_optax._gradients.same_sample import gradient_at
from mu2_optax._internal.checks import check_callable, check_positive, check_transform
from mu2_optax._internal.tree_checks import check_update
from mu2_optax._internal.trees import copied_like, norm, widened
from mu2_optax._internal.types import Batch, GradFn, OptState, Params, Transform, Tree, Updates
from mu2_optax._optimizers.extra_sgd import Mu2ExtraState
from mu2_optax._paper.averaging import AnytimeState
from mu2_optax._reading.find import find_all

_CHANGED = (
    "`grads` must be `grad_fn(params, batch)`, got gradients that differ from it by {off} of its "
    "norm. Whatever changes a gradient (clipping, weight decay, scaling, a mean over devices or "
    "microbatches) must be inside `grad_fn`, or come after the estimate, inside `inner`; whatever "
    "is random in the loss must be a part of `batch`."
)
_MOVED = (
    "`params` must be those after the last update, because the state keeps an iterate that does "
    "not follow them, got params that differ from those by {off} of their norm. Whatever else "
    "moves params (weight decay or scaling after the optimizer) must be inside `inner`; a step "
    "whose update is dropped must leave the state as it was."
)


class CheckedState(NamedTuple):
    """State of :func:`checked`.

    Attributes:
      params: The params after the last update, where something in the state of ``inner`` does not
        follow whatever else moves them; otherwise None.
      inner_state: The state of ``inner``.
    """

    params: Tree
    inner_state: OptState


def checked(
    inner: optax.GradientTransformation,
    *,
    tolerance: float | None = None,
    report: Callable[[str], object] | None = None,
) -> Transform[CheckedState]:
    r"""Checks in every step that the given gradient is the one that ``grad_fn`` returns.

    .. math:: \|g_t - \nabla f(x_t; z_t)\| \le \text{tolerance} \cdot \|\nabla f(x_t; z_t)\|

    Here :math:`g_t` is ``updates`` and :math:`\nabla f(x_t; z_t)` is ``grad_fn(params, batch)``,
    which costs one more gradient a step. Use it for a trial run: an optimizer that evaluates
    ``grad_fn`` again is silently wrong if something changes one gradient and not the other:
    clipping, weight decay or scaling before it in a chain, a ``pmean`` after ``grad_fn``,
    ``optax.MultiSteps``, a dropout key that is not in ``batch``.

    Where the params are the average and the state keeps the iterate (:func:`mu2`,
    :func:`anytime` without ``ahead``, :func:`mu2_extra_sgd`), it also checks that the params are
    those that the last update led to: something else may have scaled or dropped it, or moved them
    after it. Params that are loaded before the first step are the start. :func:`mu2_auto` and
    :func:`storm` follow the params wherever they are moved.

    Args:
      inner: An optimizer such as :func:`mu2_sgd`, at its place in the program.
      tolerance: By default :math:`\epsilon^{2/3}` of the narrowest gradient: 2e-5 in float32, 0.04
        in bfloat16. A gradient that was compiled apart from ``grad_fn`` is rounded differently.
      report: A function of a message, such as ``print`` or ``warnings.warn``, that is called on the
        host in every step that fails. Without it, a failing step is an error of
        ``jax.experimental.checkify``: raised at once outside jit, and inside it by ``error, out =
        jax.jit(checkify.checkify(step))(...)`` and ``error.throw()``.

    Returns:
      A transform with a :class:`CheckedState`; extra args are passed to ``inner``.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = optax.chain(optax.clip(1.0), mu2_optax.checked(mu2_optax.mu2_sgd(0.1)))
      >>> params = jnp.array([1.0, 2.0])
      >>> grads = grad_fn(params, 9.0)
      >>> tx.update(grads, tx.init(params), params, grad_fn=grad_fn, batch=9.0)
      ... # doctest: +ELLIPSIS, +IGNORE_EXCEPTION_DETAIL
      Traceback (most recent call last):
      JaxRuntimeError: `grads` must be `grad_fn(params, batch)`, got gradients that differ ...

    References:
      JAX, `checkify <https://docs.jax.dev/en/latest/debugging/checkify_guide.html>`_
    """
    check_transform("inner", inner)
    if tolerance is not None:
        check_positive("tolerance", tolerance, "it is relative; leave it out for the default.")
    if report is not None:
        check_callable("report", report, "print")
    inner = optax.with_extra_args_support(inner)

    def init(params: Params) -> CheckedState:
        state = inner.init(params)
        left = jax.tree.map(lambda p: jnp.array(p, copy=True), params) if _behind(state) else None
        return CheckedState(left, state)

    def update(
        updates: Updates,
        state: CheckedState,
        params: Params = None,
        *,
        grad_fn: GradFn | None = None,
        batch: Batch = None,
        **extra_args: Any,
    ) -> tuple[Updates, CheckedState]:
        check_update(updates, state, params, CheckedState)
        again = gradient_at(params, params, updates, grad_fn, batch, "checked")
        _check(_CHANGED, updates, again, tolerance, report)
        if state.params is not None:
            started = functools.reduce(jnp.maximum, [p.t for p in _behind(state.inner_state)]) > 0
            last = jax.tree.map(lambda a, p: jnp.where(started, a, p), state.params, params)
            _check(_MOVED, params, last, tolerance, report)
        move, inner_state = inner.update(
            updates, state.inner_state, params, grad_fn=grad_fn, batch=batch, **extra_args
        )
        left = state.params
        if left is not None:
            left = copied_like(optax.apply_updates(params, move), left)
        return move, CheckedState(left, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def _behind(state: OptState) -> list[Any]:
    """The parts of a state that keep an iterate which does not follow the params."""
    found = find_all(state, (AnytimeState, Mu2ExtraState))
    return [part for part in found if isinstance(part, Mu2ExtraState) or part.ahead is None]


def _check(
    message: str, given: Any, expected: Any, tolerance: Any, report: Callable[[str], object] | None
) -> None:
    """Raises or reports an error if two trees differ; two non-finite trees count as equal."""
    eps = max((float(jnp.finfo(jnp.result_type(a)).eps) for a in jax.tree.leaves(given)), default=0)
    allowed = eps ** (2 / 3) if tolerance is None else tolerance
    away, size = norm(optax.tree.sub(widened(given), widened(expected))), norm(expected)
    broken = ~jnp.isfinite(norm(given)) & ~jnp.isfinite(size)
    good = (away <= allowed * size) | broken
    off = away / jnp.where(size > 0, size, 1)
    if report is None:
        checkify.check(good, message, off=off)
    else:
        jax.debug.callback(functools.partial(_tell, report, message), good, off)


def _tell(report: Callable[[str], object], message: str, good: Any, off: Any) -> None:
    if not np.all(good):
        report(message.format(off=f"{float(np.max(off)):.2g}"))
