"""The norm of the gradient estimate, with and without its error."""

import jax
import jax.numpy as jnp

from mu2_optax._internal.trees import norm as norm_of
from mu2_optax._internal.types import OptState
from mu2_optax._paper.measured import measured
from mu2_optax._reading.error_bar import find_estimate


def estimate_norm(state: OptState) -> jax.Array:
    r"""The norm of the gradient estimate d that an optimizer's state holds.

    .. math:: \|d_t\| = \Big(\sum_i d_{t,i}^2\Big)^{1/2}

    The state may be that of any chain or wrapper around one corrected momentum.

    Args:
      state: The state of an optimizer.

    Returns:
      A scalar, at least in float32. It is the largest finite number as long as there is no
      estimate: before the first step, in the calls before the first step of
      :func:`mu2_optax.accumulate_gradients`, and while every step has been rejected.

    Examples:
      >>> import jax.numpy as jnp, optax, mu2_optax
      >>> from mu2_optax import stopping
      >>> tx = optax.chain(mu2_optax.mu2_sgd(0.1), optax.clip(1.0))
      >>> params, grads = jnp.zeros(2), jnp.array([3.0, 4.0])
      >>> _, state = tx.update(grads, tx.init(params), params, prev_grads=grads)
      >>> float(stopping.estimate_norm(state))
      5.0
    """
    holder = find_estimate(state)
    return _if_known(holder.t >= 1, norm_of(holder.d))


def gradient_norm_bound(state: OptState) -> jax.Array:
    r"""A norm that takes the error of the estimate into account.

    .. math:: \|\nabla f(x_t)\| \le \|d_t\| + \|d_t - \nabla f(x_t)\| \approx \|d_t\| + \sqrt{P_t}

    Pass it as ``norm`` to :func:`mu2_optax.stopping.run_until` or
    :class:`mu2_optax.stopping.NormBelow`, to stop only when the gradient itself is below the
    tolerance, and not when d is small by chance. It holds for samples that are independent from
    step to step; with correlated or sorted ones it is far too small: see
    :func:`mu2_optax.error_bar`.

    Args:
      state: The state of an optimizer whose β measures its error: :func:`mu2_optax.measured_beta`
        or :func:`mu2_optax.with_error_bar`.

    Returns:
      A scalar, at least in float32. Before the second step, when the error is not yet known, it is
      the largest finite number.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> from mu2_optax import stopping
      >>> tx = mu2_optax.storm(0.1, mu2_optax.measured_beta())
      >>> params = jnp.zeros(2)
      >>> state = tx.init(params)
      >>> for grads in jnp.array([[3.0, 1.0], [3.0, -1.0]]):
      ...     _, state = tx.update(grads, state, params, prev_grads=grads)
      >>> float(stopping.gradient_norm_bound(state))  # d = (3, 0), P = 1
      4.0
    """
    holder = find_estimate(state)
    error = norm_of(measured(holder.beta_memory).roots[2])
    return _if_known(holder.t >= 2, estimate_norm(state) + error)


def _if_known(known: jax.Array, norm: jax.Array) -> jax.Array:
    """The norm, or the largest finite number, so that an unknown norm stops no run."""
    return jnp.where(known, norm, jnp.finfo(norm.dtype).max)
