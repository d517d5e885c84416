"""Nothing to choose: a learning rate that grows by itself, inside anytime averaging."""

from typing import Any

import optax

from mu2_optax._anytime import AnytimeState, anytime
from mu2_optax._checks import check_rate
from mu2_optax._directions import unit_directions
from mu2_optax._grown_rate import grown_rate
from mu2_optax._masks import Mask
from mu2_optax._momentum import linear_momentum
from mu2_optax._projections import Projection
from mu2_optax._query_ahead import query_ahead
from mu2_optax._types import Transform
from mu2_optax._weights import ScalarOrSchedule


def mu2_auto(
    factor: Any = 1.0,
    *,
    spectral: Mask = False,
    weight_decay: ScalarOrSchedule | None = None,
    projection: Projection | None = None,
    state_dtype: Any = None,
) -> Transform[AnytimeState]:
    r"""Nothing to choose: no learning rate, no radius, no momenta; one gradient a step.

    .. math::
      y_t &= x_t + 0.3\,(w_t - x_t), \qquad g_t = \nabla f(y_t; z_t) \\
      e_t &= \langle g_t, y_t - y_{t-1} \rangle, \qquad E_t = E_{t-1} + e_t, \qquad
      N_t^2 = N_{t-1}^2 + \tfrac12 (e_t - e_{t-1})^2 \\
      \eta_t &= 1.5\,\eta_{t-1} \text{ if } E_t < -2 N_t \text{ and } e_t < 0,
      \text{ otherwise } \eta_{t-1} \\
      v_t &= 0.999\,v_{t-1} + 0.001\,g_t^2, \qquad \hat v_t = v_t / (1 - 0.999^t) \\
      w_{t+1} &= \Pi\big(w_t - \eta_t\,(g_t / \sqrt{\hat v_t} + \lambda w_t)\big), \qquad
      x_{t+1} = x_t + \frac{2}{t + 2}\,(w_{t+1} - x_t)

    The average x is the params: what you evaluate and save. The step of every coordinate has the
    size of the learning rate (as in Adam), which starts at a ten-thousandth of the params' size and
    grows while the steps still go downhill at their end, as seen by the next batch. Scaling the
    loss changes nothing (for gradients from about :math:`10^{-15}` to :math:`10^{18}`; smaller ones
    count as zero), and the number of steps need not be known.

    The rate never shrinks, and never passes a million times the params' size: a loss without a
    minimum, such as a linear one, keeps going down but stays finite. That the growth ends near a
    good rate is observed, not proven.

    It is the composition of :func:`query_ahead`, :func:`anytime`, :func:`grown_rate` and
    :func:`unit_directions`.

    Args:
      factor: A factor on the first learning rate; it hardly matters.
      spectral: The matrices whose steps are orthogonal matrices, as in Muon, instead of
        :math:`g_t/\sqrt{\hat v_t}`: a tree of booleans like params, or a function from params to
        one. Worth it for the hidden matrices of transformers (not embeddings, not the last layer).
      weight_decay: λ: decoupled decay of w, times the learning rate, as in AdamW.
      projection: A function from tree to tree that projects w onto the set.
      state_dtype: The dtype of w. By default that of the params, but at least float32; in bfloat16
        steps below 1/256 of a coordinate of w would be lost. v and y stay in float32.

    Returns:
      A transform whose ``update`` also needs ``grad_fn`` and ``batch``. Its state is an
      :class:`AnytimeState` around a :class:`GrownRateState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2_auto()
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     return optax.apply_updates(params, updates), state
      >>> for batch in jax.random.normal(jax.random.key(0), (1000, 2)):
      ...     params, state = step(params, state, batch)
      >>> bool(jnp.linalg.norm(params) < 0.3)
      True

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR
      2025, and Defazio et al., `The Road Less Scheduled <https://arxiv.org/abs/2405.15682>`_,
      NeurIPS 2024, for averaging with queries at the average or near it
    """
    direction = unit_directions(spectral)
    if weight_decay is not None:
        check_rate("weight_decay", weight_decay)
        direction = optax.chain(direction, optax.add_decayed_weights(weight_decay))
    average = anytime(
        grown_rate(direction, factor=factor),
        linear_momentum().gamma,
        projection=projection,
        state_dtype=state_dtype,
    )
    return query_ahead(average, 0.3)
