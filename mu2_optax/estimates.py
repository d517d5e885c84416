r"""Corrected estimates of anything along the trajectory, not only of the gradient.

Corrected momentum works for every operator that is smooth in the params: the loss itself, gradients
of another loss, Hessian-vector products, Hessians, statistics of activations.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import check_callable, check_keyed
from mu2_optax._internal.tree_checks import (
    check_gradient,
    check_like,
    check_params,
    check_state,
    check_stored,
)
from mu2_optax._internal.trees import add, cast_like, copied_like, stored_copy, wide_zeros, widened
from mu2_optax._internal.types import Batch, GradFn, Memory, Params, ScalarOrSchedule, Tree, Updates
from mu2_optax._paper.estimate import carried_correction
from mu2_optax._paper.measured import total_error
from mu2_optax._paper.weights import Seen, Weight, as_weight, check_weight

__all__ = [
    "CorrectedEstimate",
    "CorrectedEstimateState",
    "Operator",
    "corrected_estimate",
    "hessian_diagonal",
    "hessian_vector_product",
]

Operator: TypeAlias = Callable[[Params, Batch], Tree]
"""A function of (params, batch) whose result is a tree of floating-point arrays."""


class CorrectedEstimateState(NamedTuple):
    """State of :func:`corrected_estimate`.

    Attributes:
      t: The number of updates made.
      x: The params of the last update.
      value: The estimate there.
      beta_memory: What ``beta`` remembers; None for a number or a schedule.
    """

    t: jax.Array
    x: Tree
    value: Tree
    beta_memory: Memory = None

    @property
    def error(self) -> jax.Array:
        """The estimated squared error of ``value``, where β has an error bar."""
        return total_error(self.beta_memory)


class CorrectedEstimate(NamedTuple):
    """What :func:`corrected_estimate` returns.

    Attributes:
      init: A function of (params, batch) that returns a state. It reads only the shapes of the
        batch.
      update: A function of (state, params, batch) that returns (estimate, state).
    """

    init: Callable[[Params, Batch], CorrectedEstimateState]
    update: Callable[[CorrectedEstimateState, Params, Batch], tuple[Tree, CorrectedEstimateState]]


def corrected_estimate(operator: Operator, beta: ScalarOrSchedule | Weight) -> CorrectedEstimate:
    r"""Tracks the mean of an operator along a trajectory with corrected momentum.

    .. math::
      e_t = A(x_t; z_t) + (1 - \beta_t)\,(e_{t-1} - A(x_{t-1}; z_t)), \qquad e_1 = A(x_1; z_1)

    Here A is ``operator``, :math:`x_t` is the ``params`` and :math:`z_t` the ``batch`` of an
    ``update``, and :math:`e_t` estimates :math:`E_z A(x_t; z)`. With :math:`\beta_t = 1/t`, and
    where the steps :math:`\|x_t - x_{t-1}\|` shrink like 1/t, as they do under anytime averaging,
    its expected squared error shrinks like 1/t. Without the correction it would be either as noisy
    as one batch (:math:`\beta_t = 1`), or out of date: a plain average of old values estimates the
    mean at old params. Under an optimizer whose steps do not shrink, the estimate has no such
    guarantee; a larger β then forgets faster.

    Both evaluations see the same ``batch``; whatever is random in the operator must be a part of
    it. Use it next to any optimizer, inside jit and scan.

    Args:
      operator: A function of (params, batch) that returns a tree of floating-point arrays.
      beta: β in [0, 1], a number or a schedule such as ``polynomial_momentum(0).beta``, which is
        1/t.

    Returns:
      A :class:`CorrectedEstimate`: a pair of functions ``init`` and ``update``.

    Examples:
      The training loss without another pass over the data:

      >>> import jax, jax.numpy as jnp, mu2_optax
      >>> from mu2_optax import estimates
      >>> loss = lambda x, z: jnp.mean((x - z) ** 2)  # its mean over z is x**2 + 1
      >>> tracked = estimates.corrected_estimate(loss, mu2_optax.polynomial_momentum(0).beta)
      >>> batches = jax.random.normal(jax.random.key(0), (1000, 4))
      >>> state = tracked.init(0.0, batches[0])
      >>> def update(state, inputs):
      ...     x, batch = inputs
      ...     value, state = tracked.update(state, x, batch)
      ...     return state, value
      >>> trajectory = 1 / jnp.arange(1.0, 1001.0)
      >>> state, values = jax.lax.scan(update, state, (trajectory, batches))
      >>> bool(abs(values[-1] - 1) < 0.05)
      True

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR
      2025, section on general operators
    """
    check_callable("operator", operator, "a loss of (params, batch)")
    check_weight("beta", beta)
    beta = as_weight(beta)

    def init(params: Params, batch: Batch) -> CorrectedEstimateState:
        check_params(params)
        shapes = _checked_shapes(operator, params, batch)
        x = stored_copy(params, None, exact=True)
        value = wide_zeros(shapes)
        return CorrectedEstimateState(jnp.zeros([], jnp.int32), x, value, beta.first(value))

    def update(
        state: CorrectedEstimateState, params: Params, batch: Batch
    ) -> tuple[Updates, CorrectedEstimateState]:
        check_state(state, CorrectedEstimateState)
        check_params(params)
        check_stored(params, state.x)
        now = operator(params, batch)
        check_like(
            "operator(params, batch)", now, state.value, "Call `init` with a batch of that kind."
        )
        before = operator(cast_like(state.x, params), batch)
        forgotten, memory = beta.step(state.beta_memory, state.t, Seen(now, before, state.value))
        carried = carried_correction(state.t, forgotten, state.value, before)
        value = cast_like(add(widened(now), carried), state.value)
        x = copied_like(params, state.x)
        t = optax.safe_increment(state.t)
        return value, CorrectedEstimateState(t, x, value, memory)

    return CorrectedEstimate(init, update)


def hessian_vector_product(grad_fn: GradFn, vector: Tree) -> Operator:
    r"""The operator :math:`x \mapsto \nabla^2 f(x; z)\,v`, for :func:`corrected_estimate`.

    Args:
      grad_fn: A function of (params, batch) that returns the gradient.
      vector: v, a tree like the params.

    Returns:
      A function of (params, batch).

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from mu2_optax import estimates
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum(z * x**2))
      >>> product = estimates.hessian_vector_product(grad_fn, jnp.array([1.0, 0.0]))
      >>> product(jnp.ones(2), jnp.array([3.0, 5.0]))
      Array([6., 0.], dtype=float32)

    References:
      Pearlmutter, `Fast Exact Multiplication by the Hessian
      <https://doi.org/10.1162/neco.1994.6.1.147>`_, 1994
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")

    def product(params: Params, batch: Batch) -> Any:
        check_like("vector", vector, params, "It is multiplied by the Hessian at params.")
        tangent = cast_like(vector, params)
        grads, product = jax.jvp(lambda x: grad_fn(x, batch), (params,), (tangent,))
        check_gradient("grad_fn(params, batch)", grads, params)
        return product

    return product


def hessian_diagonal(grad_fn: GradFn) -> Operator:
    r"""The operator whose mean is the diagonal of the Hessian (Hutchinson's estimator).

    .. math:: A(x; (k, z)) = v \odot \nabla^2 f(x; z)\,v, \qquad v_i = \pm 1 \text{ drawn with } k

    Args:
      grad_fn: A function of (params, batch) that returns the gradient.

    Returns:
      A function of (params, (key, batch)): the key of the probe is a part of the sample, so that
      both evaluations of a correction use the same v.

    Examples:
      >>> import jax, jax.numpy as jnp
      >>> from mu2_optax import estimates
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum(z * x**2))
      >>> diagonal = estimates.hessian_diagonal(grad_fn)
      >>> diagonal(jnp.ones(2), (jax.random.key(0), jnp.array([3.0, 5.0])))
      Array([ 6., 10.], dtype=float32)

    References:
      Bekas, Kokiopoulou and Saad, `An estimator for the diagonal of a matrix
      <https://doi.org/10.1016/j.apnum.2007.01.003>`_, 2007
    """
    check_callable("grad_fn", grad_fn, "jax.grad(loss)")

    def diagonal(params: Params, batch: Batch) -> Any:
        check_keyed("batch", batch)
        key, sample = batch
        probe = optax.tree.random_like(key, params, jax.random.rademacher)
        product = hessian_vector_product(grad_fn, probe)(params, sample)
        return jax.tree.map(lambda v, hv: v.astype(hv.dtype) * hv, probe, product)

    return diagonal


def _checked_shapes(operator: Operator, params: Params, batch: Batch) -> Any:
    shapes = jax.eval_shape(operator, params, batch)
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes):
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            place = jax.tree_util.keystr(path) or "the root"
            raise TypeError(
                f"`operator` must return floating-point arrays, got {leaf.dtype} at {place}; an "
                "estimate of a mean is not an integer: cast it (a 0/1 accuracy, say) to float."
            )
    return shapes
