"""μ²: double momentum around any Optax optimizer, and around SGD."""

import optax
from jax.typing import DTypeLike

from mu2_optax._internal.checks import check_mask, check_rate, check_transform
from mu2_optax._internal.masks import Mask, checked_mask
from mu2_optax._internal.types import ScalarOrSchedule, Transform
from mu2_optax._optimizers.double_momentum import Mu2State, double_momentum
from mu2_optax._optimizers.inner_momentum import warn_of_momentum
from mu2_optax._paper.momenta import (
    DoubleMomentum,
    check_momentum,
    fixed_momentum,
    with_weighted_steps,
)
from mu2_optax._paper.projections import Projection


def mu2(
    inner: optax.GradientTransformation,
    momentum: DoubleMomentum = fixed_momentum(),
    *,
    projection: Projection | None = None,
    weighted_steps: bool = False,
    lean: bool = False,
    state_dtype: DTypeLike | None = None,
) -> Transform[Mu2State]:
    r"""Double momentum around an Optax optimizer.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      w_{t+1} &= \Pi(w_t + [\alpha_t]\,\text{inner}(d_t, w_t)) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Here :math:`x` is ``params``, :math:`g_t = \nabla f(x_t; z_t)` is the gradient that is given to
    ``update``, and :math:`\tilde g_{t-1} = \nabla f(x_{t-1}; z_t)` is taken on the same batch. This
    is :func:`corrected_momentum` followed by :func:`anytime`.

    The averaging is a momentum, so ``inner`` should have none of its own: for Adam use
    :func:`mu2_adam`, which leaves out its first moment. ``mu2`` warns if ``inner`` visibly has one.
    docs/wrappers.md lists the Optax optimizers that are suitable. Weight decay goes inside
    ``inner`` too, which sees w as its params: ``optax.adamw(1e-3, b1=0.0, weight_decay=0.1)``.

    Args:
      inner: An Optax optimizer with its learning rate and without momentum; it moves w.
      momentum: α, β and γ; see the presets of :class:`DoubleMomentum`.
      projection: A function from tree to tree that projects w onto the set.
      weighted_steps: Whether the step is multiplied by :math:`\alpha_t`, as in the theorems.
      lean: Whether to store only w and d, which takes as much memory as Adam. Every step then
        recovers the last point, :math:`x_{t-1} = x_t + \tfrac{\gamma_t}{1 - \gamma_t}(x_t - w_t)`,
        up to rounding. That needs :math:`\gamma_t < 1`; after a :math:`\gamma_t` of 1, d starts
        again from the gradient of the step. It also needs params that nothing else moves: moving
        them by δ (weight decay or scaling after the optimizer, another checkpoint) puts an error of
        :math:`\nabla^2 f\,\delta/(1 - \gamma_t)` into d, which no error bar includes and which
        fades at the rate β. :func:`checked` detects such moves. The state is a ``LeanMu2State``.
      state_dtype: The dtype of w and d; see :func:`corrected_momentum`.

    Returns:
      A transform whose ``update`` also takes ``grad_fn`` and ``batch``, or ``prev_grads``. Its
      state is a :class:`Mu2State`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2(optax.rmsprop(0.1))
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> grads = grad_fn(params, 3.0)
      >>> updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=3.0)
      >>> params = optax.apply_updates(params, updates)
      >>> state.d
      Array([-4., -2.], dtype=float32)

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR 2025
    """
    check_transform("inner", inner)
    check_momentum(momentum)
    warn_of_momentum(inner)
    inner = with_weighted_steps(inner, momentum, weighted_steps)
    return double_momentum("mu2", inner, momentum, projection, lean, state_dtype)


def mu2_sgd(
    learning_rate: ScalarOrSchedule,
    momentum: DoubleMomentum = fixed_momentum(),
    *,
    projection: Projection | None = None,
    weighted_steps: bool = False,
    weight_decay: ScalarOrSchedule | None = None,
    weight_decay_mask: Mask | None = None,
    lean: bool = False,
    state_dtype: DTypeLike | None = None,
) -> Transform[Mu2State]:
    r"""μ²-SGD, the paper's Algorithm 1: SGD with double momentum, two gradients a step.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      w_{t+1} &= \Pi(w_t - \eta\,[\alpha_t]\,(d_t + \lambda w_t)) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Here :math:`x` is ``params``. With ``linear_momentum(offset=1)`` and a compact set, the expected
    squared error of d is at most :math:`\tilde\sigma^2/t` whatever the learning rate; that is why
    one rate works over orders of magnitude. Without a projection there is no such guarantee, and
    large rates may diverge.

    Args:
      learning_rate: η, a number or a schedule.
      momentum: α, β and γ: :func:`fixed_momentum`, the paper's choice for deep networks, or
        :func:`linear_momentum`, its choice for convex losses on a compact set.
      projection: A function from tree to tree that projects w onto the set.
      weighted_steps: Whether the step is :math:`\eta\alpha_t` (the theorems, where η is of the
        order of 1/T: :func:`mu2_optax.theory.max_learning_rate`) or η (the experiments).
      weight_decay: λ, a number or a schedule, multiplied by the learning rate as in
        ``optax.adamw``. It is w that decays, and params follow as its average. None by default.
      weight_decay_mask: Which leaves decay: a tree of booleans, or a function from params to one.
        All by default.
      lean: Whether to recover the last point x instead of storing it; see :func:`mu2`.
      state_dtype: The dtype of w and d; see :func:`corrected_momentum`.

    Returns:
      A transform whose ``update`` also takes ``grad_fn`` and ``batch``, or ``prev_grads``. Its
      state is a :class:`Mu2State`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> ball = mu2_optax.onto_l2_ball(5.0)
      >>> tx = mu2_optax.mu2_sgd(0.1, mu2_optax.linear_momentum(), projection=ball)
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     return optax.apply_updates(params, updates), state
      >>> for batch in jax.random.normal(jax.random.key(0), (500, 2)):
      ...     params, state = step(params, state, batch)
      >>> bool(jnp.linalg.norm(params) < 0.2)
      True

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR 2025
    """
    check_rate("learning_rate", learning_rate)
    check_mask(weight_decay_mask, weight_decay)
    decays = checked_mask("weight_decay_mask", weight_decay_mask)
    inner = optax.sgd(learning_rate)
    if weight_decay is not None:
        check_rate("weight_decay", weight_decay)
        inner = optax.chain(optax.add_decayed_weights(weight_decay, decays), inner)
    check_momentum(momentum)
    inner = with_weighted_steps(inner, momentum, weighted_steps)
    return double_momentum("mu2_sgd", inner, momentum, projection, lean, state_dtype)
