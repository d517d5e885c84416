"""Adam with double momentum: averaging takes the place of Adam's first moment."""

import optax
from jax.typing import DTypeLike

from mu2_optax._internal.checks import check_mask, check_rate
from mu2_optax._internal.masks import Mask, checked_mask
from mu2_optax._internal.types import Scalar, ScalarOrSchedule, Transform
from mu2_optax._optimizers.double_momentum import Mu2State, double_momentum
from mu2_optax._paper.momenta import DoubleMomentum, fixed_momentum
from mu2_optax._paper.projections import Projection


def mu2_adam(
    learning_rate: ScalarOrSchedule,
    momentum: DoubleMomentum = fixed_momentum(),
    *,
    b2: Scalar = 0.999,
    eps: Scalar = 1e-8,
    weight_decay: ScalarOrSchedule | None = None,
    weight_decay_mask: Mask | None = None,
    projection: Projection | None = None,
    lean: bool = False,
    state_dtype: DTypeLike | None = None,
) -> Transform[Mu2State]:
    r"""Double momentum around Adam without its first moment; two gradients a step.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      v_t &= b_2\,v_{t-1} + (1 - b_2)\,d_t^2, \qquad \hat v_t = v_t/(1 - b_2^t) \\
      w_{t+1} &= \Pi(w_t - \eta\,(d_t / (\sqrt{\hat v_t} + \epsilon) + \lambda w_t)) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Here :math:`x` is ``params``. It is ``mu2(optax.adam(learning_rate, b1=0.0, b2=b2, eps=eps))``
    with one tree fewer in the state. The averaging takes the place of Adam's first moment: with
    :math:`\gamma = 0.1`, params trail w by about ten steps, as a first moment with
    :math:`b_1 = 0.9` trails the gradient. With both, params would trail twice as far.

    Args:
      learning_rate: η, a number or a schedule; the one for Adam is a good first choice.
      momentum: α (not used), β and γ.
      b2: The decay of the second moment.
      eps: Added to the root of the second moment.
      weight_decay: λ, a number or a schedule; as in ``optax.adamw`` it is multiplied by η. It is w
        that decays, and params follow as its average. None by default.
      weight_decay_mask: Which leaves decay: a tree of booleans, or a function from params to one.
        All by default.
      projection: A function from tree to tree that projects w onto the set.
      lean: Whether to recover the last point x instead of storing it; see :func:`mu2`.
      state_dtype: The dtype of w and d; see :func:`corrected_momentum`.

    Returns:
      A transform whose ``update`` also takes ``grad_fn`` and ``batch``, or ``prev_grads``. Its
      state is a :class:`Mu2State`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2_adam(0.1)
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> grads = grad_fn(params, 3.0)
      >>> updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=3.0)
      >>> optax.apply_updates(params, updates)
      Array([1.01, 2.01], dtype=float32)

    References:
      Kingma and Ba, `Adam <https://arxiv.org/abs/1412.6980>`_, ICLR 2015; Loshchilov and
      Hutter, `AdamW <https://arxiv.org/abs/1711.05101>`_, ICLR 2019;
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR 2025
    """
    check_rate("learning_rate", learning_rate)
    check_mask(weight_decay_mask, weight_decay)
    decays = checked_mask("weight_decay_mask", weight_decay_mask)
    parts = [optax.scale_by_rms(b2, eps, eps_in_sqrt=False, bias_correction=True)]
    if weight_decay is not None:
        check_rate("weight_decay", weight_decay)
        parts.append(optax.add_decayed_weights(weight_decay, decays))
    inner = optax.chain(*parts, optax.scale_by_learning_rate(learning_rate))
    return double_momentum("mu2_adam", inner, momentum, projection, lean, state_dtype)
