"""The optimizers, as compositions of corrected momentum and anytime averaging."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._anytime import AnytimeState, anytime
from mu2_optax._batches import Part
from mu2_optax._checks import (
    check_mask,
    check_params,
    check_rate,
    check_state,
    check_stored,
    check_transform,
    check_unit_interval,
)
from mu2_optax._corrected import CorrectedMomentumState, corrected_momentum
from mu2_optax._inner import warn_of_momentum
from mu2_optax._lean import check_lean, footprint, last_point, were_moved
from mu2_optax._momentum import DoubleMomentum, check_momentum, fixed_momentum
from mu2_optax._projections import Projection, projected
from mu2_optax._types import Transform, Tree
from mu2_optax._weights import ScalarOrSchedule, Weight, as_weight


class Mu2State(NamedTuple):
    """State of :func:`mu2`: the two mechanisms', with the paper's letters on top.

    Attributes:
      corrected: The state of the corrected momentum; its x is None in a lean state.
      averaged: The state of the averaging.
      gamma: The last γ, in a lean state; otherwise None.
      left: By what the params are known again, in a lean state; otherwise None.
    """

    corrected: CorrectedMomentumState
    averaged: AnytimeState
    gamma: Any = None
    left: Any = None

    @property
    def t(self) -> jax.Array:
        """The number of steps taken."""
        return self.corrected.t

    @property
    def w(self) -> Tree:
        """The iterate that the inner optimizer moves."""
        return self.averaged.w

    @property
    def x(self) -> Any:
        """The point of the last gradient, where ``d`` is the estimate; params are one step on.

        None in a lean state.
        """
        return self.corrected.x

    @property
    def d(self) -> Tree:
        """The estimate of the gradient at ``x``."""
        return self.corrected.d

    @property
    def error(self) -> jax.Array:
        """The estimated squared error of d, where β has an error bar."""
        return self.corrected.error


def mu2(
    inner: optax.GradientTransformation,
    momentum: DoubleMomentum = fixed_momentum(),
    *,
    projection: Projection | None = None,
    weighted_steps: bool = False,
    weight_decay: ScalarOrSchedule | None = None,
    mask: Any = None,
    part: Part | None = None,
    lean: bool = False,
    state_dtype: Any = None,
) -> Transform[Mu2State]:
    r"""Double momentum around an Optax optimizer.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      w_{t+1} &= \Pi(w_t + [\alpha_t]\,\text{inner}(d_t, w_t) - \lambda_t w_t) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Here :math:`x` is ``params``, :math:`g_t = \nabla f(x_t; z_t)` is the gradient that is given to
    ``update``, and :math:`\tilde g_{t-1} = \nabla f(x_{t-1}; z_t)` is taken on the same batch. This
    is :func:`corrected_momentum` followed by :func:`anytime`.

    The averaging is a momentum, so ``inner`` should have none of its own: for Adam use
    :func:`mu2_adam`, which leaves its first moment out. Where a momentum of ``inner`` can be seen,
    there is a warning. docs/wrappers.md lists which optimizers of Optax are fit.

    Args:
      inner: An Optax optimizer with its learning rate and without momentum; it moves w.
      momentum: α, β and γ; see the presets of :class:`DoubleMomentum`.
      projection: A function from tree to tree that projects w onto the set.
      weighted_steps: Whether the step is multiplied by :math:`\alpha_t`, as in the theorems.
      weight_decay: λ in [0, 1], a number or a schedule: the share of w (not of params) that each
        step takes away. It is *not* multiplied by the learning rate, which only ``inner`` knows:
        for the λ of :func:`mu2_sgd` or ``optax.adamw`` pass ``learning_rate * λ``.
      mask: Which leaves decay: a tree of booleans, or a function from params to one. All by
        default.
      part: The samples that the correction is taken on, a share of the batch or a function; see
        :func:`corrected_momentum`. The whole batch by default.
      lean: Whether the state is w and d alone, in Adam's memory. The last point is then recovered,
        :math:`x_{t-1} = x_t + \tfrac{\gamma_t}{1 - \gamma_t}(x_t - w_t)`, to the last places of
        its precision. That needs :math:`\gamma_t < 1` and params that nothing else moves: where
        they are not those that the last update led to (weight decay or scaling after the
        optimizer, another checkpoint), or :math:`\gamma_t` was 1, d starts anew with the gradient
        of the step.
      state_dtype: The dtype of w and d. By default that of the params, but at least float32.

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
    check_mask(mask, weight_decay)
    warn_of_momentum(inner)
    inner = _weighted(inner, momentum, weighted_steps)
    if weight_decay is not None:
        check_unit_interval("weight_decay", weight_decay)
        shrink = _negative(weight_decay)
        inner = optax.chain(inner, optax.add_decayed_weights(shrink, mask))
    estimate = corrected_momentum(momentum.beta, part=part, state_dtype=state_dtype)
    average = anytime(inner, momentum.gamma, projection=projection, state_dtype=state_dtype)

    def init(params: Any) -> Mu2State:
        return Mu2State(estimate.init(params), average.init(params))

    def update(
        updates: Any, state: Mu2State, params: Any = None, **extra_args: Any
    ) -> tuple[Any, Mu2State]:
        check_state(state, Mu2State)
        d, corrected = estimate.update(updates, state.corrected, params, **extra_args)
        move, averaged = average.update(d, state.averaged, params, **extra_args)
        return move, Mu2State(corrected, averaged)

    tx = optax.GradientTransformationExtraArgs(init, update)
    return _without_the_last_point(tx, momentum) if lean else tx


def mu2_sgd(
    learning_rate: ScalarOrSchedule,
    momentum: DoubleMomentum = fixed_momentum(),
    *,
    projection: Projection | None = None,
    weighted_steps: bool = False,
    weight_decay: ScalarOrSchedule | None = None,
    mask: Any = None,
    part: Part | None = None,
    lean: bool = False,
    state_dtype: Any = None,
) -> Transform[Mu2State]:
    r"""μ²-SGD, the paper's Algorithm 1: SGD with double momentum, two gradients a step.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      w_{t+1} &= \Pi(w_t - \eta\,[\alpha_t]\,(d_t + \lambda w_t)) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Here :math:`x` is ``params``. With ``linear_momentum(offset=1)`` and a compact set, the expected
    squared error of d is at most :math:`\tilde\sigma^2/t` whatever the learning rate; that is why
    one rate works over orders of magnitude. Without a projection the guarantee is gone, and large
    rates may diverge.

    Args:
      learning_rate: η, a number or a schedule.
      momentum: α, β and γ. :func:`fixed_momentum` suits deep networks, :func:`linear_momentum`
        convex losses on a compact set.
      projection: A function from tree to tree that projects w onto the set.
      weighted_steps: Whether the step is :math:`\eta\alpha_t` (the theorems, where η is of the
        order of 1/T: :func:`mu2_optax.theory.max_learning_rate`) or η (the experiments).
      weight_decay: λ, a number or a schedule, multiplied by the learning rate as in
        ``optax.adamw``. The point that decays is w, which the step moves; params follow as its
        average. None by default.
      mask: Which leaves decay: a tree of booleans, or a function from params to one. All by
        default.
      part: The samples that the correction is taken on, a share of the batch or a function; see
        :func:`corrected_momentum`. The whole batch by default.
      lean: Whether the state is without the last point x, which the average and w tell as well:
        see :func:`mu2`.
      state_dtype: The dtype of w and d. By default that of the params, but at least float32.

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
    check_mask(mask, weight_decay)
    inner = optax.sgd(learning_rate)
    if weight_decay is not None:
        check_rate("weight_decay", weight_decay)
        inner = optax.chain(optax.add_decayed_weights(weight_decay, mask), inner)
    return mu2(
        inner,
        momentum,
        projection=projection,
        weighted_steps=weighted_steps,
        part=part,
        lean=lean,
        state_dtype=state_dtype,
    )


def storm(
    learning_rate: ScalarOrSchedule,
    beta: ScalarOrSchedule | Weight,
    *,
    projection: Projection | None = None,
    part: Part | None = None,
    state_dtype: Any = None,
) -> optax.GradientTransformationExtraArgs:
    r"""STORM: SGD along the corrected momentum, without averaging; two gradients a step.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      x_{t+1} &= \Pi(x_t - \eta\,d_t)

    Args:
      learning_rate: η, a number or a schedule.
      beta: β in [0, 1], a number or a schedule.
      projection: A function from tree to tree that projects params onto the set.
      part: The samples that the correction is taken on, a share of the batch or a function; see
        :func:`corrected_momentum`. The whole batch by default.
      state_dtype: The dtype of d. By default that of the params, but at least float32.

    Returns:
      A transform whose ``update`` also takes ``grad_fn`` and ``batch``, or ``prev_grads``.

    Examples:
      >>> import mu2_optax
      >>> tx = mu2_optax.storm(0.1, beta=lambda count: 1 / (count + 1))

    References:
      Cutkosky and Orabona, `Momentum-Based Variance Reduction in Non-Convex SGD
      <https://arxiv.org/abs/1905.10018>`_, NeurIPS 2019
    """
    check_rate("learning_rate", learning_rate)
    estimate = corrected_momentum(beta, part=part, state_dtype=state_dtype)
    tx = optax.chain(estimate, optax.sgd(learning_rate))
    return projected(tx, projection or (lambda tree: tree))


def anytime_sgd(
    learning_rate: ScalarOrSchedule,
    momentum: DoubleMomentum,
    *,
    projection: Projection | None = None,
    weighted_steps: bool = False,
    state_dtype: Any = None,
) -> Transform[AnytimeState]:
    r"""Anytime-SGD: SGD whose gradients are taken at the average; one gradient a step.

    .. math::
      w_{t+1} &= \Pi(w_t - \eta\,[\alpha_t]\,g_t) \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    Args:
      learning_rate: η, a number or a schedule.
      momentum: α and γ; β is not used.
      projection: A function from tree to tree that projects w onto the set.
      weighted_steps: Whether the step is multiplied by :math:`\alpha_t`.
      state_dtype: The dtype of w. By default that of the params, but at least float32.

    Returns:
      A transform with an :class:`AnytimeState`; it needs no extra args and ignores them.

    Examples:
      >>> import mu2_optax
      >>> tx = mu2_optax.anytime_sgd(0.1, mu2_optax.linear_momentum())

    References:
      Cutkosky, `Anytime Online-to-Batch, Optimism and Acceleration
      <https://arxiv.org/abs/1903.00974>`_, ICML 2019
    """
    check_rate("learning_rate", learning_rate)
    check_momentum(momentum)
    inner = _weighted(optax.sgd(learning_rate), momentum, weighted_steps)
    return anytime(inner, momentum.gamma, projection=projection, state_dtype=state_dtype)


def _without_the_last_point(
    tx: optax.GradientTransformationExtraArgs, momentum: DoubleMomentum
) -> optax.GradientTransformationExtraArgs:
    """:func:`mu2` with x recovered in every step instead of stored."""
    check_lean(momentum)
    gamma = as_weight(momentum.gamma)

    def lean(state: Mu2State, gamma: jax.Array, params: Any) -> Mu2State:
        corrected = state.corrected._replace(x=None)
        return state._replace(corrected=corrected, gamma=gamma, left=footprint(params))

    def init(params: Any) -> Mu2State:
        return lean(tx.init(params), jnp.ones([], float), params)

    def update(
        updates: Any, state: Mu2State, params: Any = None, **extra_args: Any
    ) -> tuple[Any, Mu2State]:
        check_params(params)
        check_stored(params, state.w)
        t, averaged = state.t, state.averaged
        # Where the last point is not known, d starts anew with this gradient, as in the first step.
        known = (state.gamma < 1) & ~were_moved(params, state.left)
        x = last_point(params, averaged.x, averaged.w, state.gamma)
        corrected = state.corrected._replace(t=jnp.where(known, t, 0), x=x)
        move, after = tx.update(updates, Mu2State(corrected, averaged), params, **extra_args)
        corrected = after.corrected._replace(t=after.averaged.t)
        share, _ = gamma.step(averaged.gamma_memory, after.averaged.t)
        after = after._replace(corrected=corrected)
        return move, lean(after, share, optax.apply_updates(params, move))

    return optax.GradientTransformationExtraArgs(init, update)


def _weighted(
    inner: optax.GradientTransformation, momentum: DoubleMomentum, weighted_steps: bool
) -> optax.GradientTransformation:
    """``inner`` with its steps multiplied by α, if they are weighted."""
    if not weighted_steps:
        return inner
    return optax.chain(inner, optax.scale_by_schedule(momentum.alpha))


def _negative(value: ScalarOrSchedule) -> ScalarOrSchedule:
    """Minus a number, or minus a schedule."""
    return (lambda count: -value(count)) if callable(value) else -value
