"""What a measured error tells: the error bar of d, and how large a batch would pay off."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from mu2_optax._internal.trees import inverse_or_zero, norm
from mu2_optax._internal.types import OptState, Tree
from mu2_optax._optimizers.extra_sgd import Mu2ExtraState
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
    """

    error: jax.Array
    noise: jax.Array
    errors: Tree
    noises: Tree


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
      the better estimate. All are 0 before the second step, the first that measures them.

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
    """
    holder = find_estimate(state)
    memory = measured(holder.beta_memory)
    structure = jax.tree.structure(holder.d)
    errors, noises = (
        jax.tree.unflatten(structure, list(values)) for values in (memory.error, memory.noise)
    )
    return ErrorBar(jnp.sum(memory.error), jnp.sum(memory.noise), errors, noises)


def noise_scale(state: OptState) -> jax.Array:
    r"""The gradient noise scale, in units of the present batch.

    .. math:: \frac{\sigma^2}{\|\nabla f(x)\|^2} \approx \frac{R}{\|d\|^2 - P}

    About how many times larger a batch would still pay off: far below that, doubling the batch
    nearly halves the number of steps; far above it, it saves hardly any. It is infinite where the
    gradient is no larger than its error, and before the second step, when nothing has been measured
    yet.

    Args:
      state: The state of an optimizer whose β measures its error; see :func:`error_bar`.

    Returns:
      A scalar.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax
      >>> tx = mu2_optax.storm(0.1, mu2_optax.measured_beta())
      >>> params = jnp.zeros(2)
      >>> state = tx.init(params)
      >>> for grads in jnp.array([[3.0, 1.0], [3.0, -1.0]]):
      ...     _, state = tx.update(grads, state, params, prev_grads=grads)
      >>> round(float(mu2_optax.noise_scale(state)), 2)  # 2 / (9 - 1)
      0.25

    References:
      McCandlish et al., `An Empirical Model of Large-Batch Training
      <https://arxiv.org/abs/1812.06162>`_, 2018
    """
    holder = find_estimate(state)
    _, noises, errors = measured(holder.beta_memory).roots
    sizes = jnp.stack([norm(holder.d).astype(float), norm(noises), norm(errors)])
    d, noise, error = (sizes * inverse_or_zero(jnp.max(sizes))) ** 2  # in units without overflow
    drowned = (d <= error) & (noise > 0)
    return jnp.where(drowned | (holder.t < 2), jnp.inf, noise * inverse_or_zero(d - error))


def find_estimate(state: OptState) -> CorrectedMomentumState | Mu2ExtraState:
    """The only part of an optimizer's state that holds an estimate d."""
    return find(
        state,
        (CorrectedMomentumState, Mu2ExtraState),
        "estimate d of the gradient",
        "use one optimizer with corrected momentum: mu2_sgd, mu2_extra_sgd, storm, ...",
    )
