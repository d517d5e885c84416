"""What is known of the estimate d: its norm, and its error where β measures it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from mu2_optax._internal.trees import inverse_or_zero, norm
from mu2_optax._internal.types import OptState, Tree
from mu2_optax._optimizers.extra_sgd import Mu2ExtraState
from mu2_optax._optimizers.lean import LeanMu2State
from mu2_optax._paper.estimate import CorrectedMomentumState
from mu2_optax._paper.measured import measured
from mu2_optax._reading.find import find


class ErrorBar(NamedTuple):
    r"""The error of a gradient estimate; see :func:`error_bar`.

    Attributes:
      error: The estimated :math:`E\|d - \nabla f(x)\|^2`.
      noise: The estimated noise of one batch, σ².
      errors: The error of each tensor, a tree like d with a number for each leaf.
      noises: The noise of each tensor, likewise.
      noise_scale: The gradient noise scale :math:`\sigma^2/\|\nabla f(x)\|^2 \approx
        R/(\|d\|^2 - P)`: about how many times larger a batch would still pay off. Far below that,
        doubling the batch nearly halves the number of steps; far above it, it saves hardly any. It
        is infinite where the gradient is no larger than its error.
      norm_bound: :math:`\|d\| + \sqrt P`, which :math:`\|\nabla f(x)\|` hardly exceeds: to stop
        only when the gradient itself is small, and not when d is small by chance.
    """

    error: jax.Array
    noise: jax.Array
    errors: Tree
    noises: Tree
    noise_scale: jax.Array
    norm_bound: jax.Array


def error_bar(state: OptState) -> ErrorBar:
    r"""The estimated error of the gradient estimate d that an optimizer's state holds.

    .. math:: P_t \approx E\|d_t - \nabla f(x_t)\|^2

    The β of the optimizer must measure it: :func:`measured_beta` or :func:`with_error_bar`. It
    assumes that the samples of different steps are independent. Where they are correlated by ρ from
    step to step, the true error is about :math:`(1 + \rho)/(1 - \rho)` times as large; where data
    are sorted, a hundred times: shuffle them.

    Args:
      state: The state of an optimizer, or of any chain or wrapper around one corrected momentum.

    Returns:
      An :class:`ErrorBar`. Where its ``error`` is above its ``noise``, a plain gradient would be
      the better estimate. Before the second step, the first that measures them, all errors are 0,
      ``noise_scale`` is infinite and ``norm_bound`` the largest finite number.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: 0.5 * jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2_sgd(0.1, mu2_optax.linear_momentum(beta=mu2_optax.measured_beta()))
      >>> params = jnp.zeros(100)
      >>> state = tx.init(params)
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     return optax.apply_updates(params, updates), state
      >>> for batch in jax.random.normal(jax.random.key(0), (200, 100)):
      ...     params, state = step(params, state, batch)
      >>> bar = mu2_optax.error_bar(state)
      >>> bool(80 < bar.noise < 120), bool(bar.error < bar.noise / 50)
      (True, True)

    References:
      McCandlish et al., `An Empirical Model of Large-Batch Training
      <https://arxiv.org/abs/1812.06162>`_, 2018, for the noise scale
    """
    holder = find_estimate(state)
    memory = measured(holder.beta_memory)
    structure, known = jax.tree.structure(holder.d), holder.t >= 2
    errors, noises = (
        jax.tree.unflatten(structure, list(values)) for values in (memory.error, memory.noise)
    )
    size, noise, error = norm(holder.d).astype(float), *map(norm, memory.roots[1:])
    return ErrorBar(
        error=jnp.sum(memory.error),
        noise=jnp.sum(memory.noise),
        errors=errors,
        noises=noises,
        noise_scale=jnp.where(known, _noise_scale(size, noise, error), jnp.inf),
        norm_bound=_if_known(known, size + error),
    )


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
    return _if_known(holder.t >= 1, norm(holder.d))


def find_estimate(state: OptState) -> CorrectedMomentumState | LeanMu2State | Mu2ExtraState:
    """The only part of an optimizer's state that holds an estimate d."""
    return find(
        state,
        (CorrectedMomentumState, LeanMu2State, Mu2ExtraState),
        "estimate d of the gradient",
        "use one optimizer with corrected momentum: mu2_sgd, mu2_extra_sgd, storm, ...",
    )


def _noise_scale(size: jax.Array, noise: jax.Array, error: jax.Array) -> jax.Array:
    """R/(‖d‖² - P), from the three roots."""
    sizes = jnp.stack([size, noise, error])
    d, noise, error = (sizes * inverse_or_zero(jnp.max(sizes))) ** 2  # in units without overflow
    drowned = (d <= error) & (noise > 0)
    return jnp.where(drowned, jnp.inf, noise * inverse_or_zero(d - error))


def _if_known(known: jax.Array, norm: jax.Array) -> jax.Array:
    """The norm, or the largest finite number, so that an unknown norm stops no run."""
    return jnp.where(known, norm, jnp.finfo(norm.dtype).max)
