"""Conditional gradient (Frank-Wolfe): an update rule that has no learning rate."""

from typing import Any

import optax
from jax.typing import DTypeLike

from mu2_optax._internal.checks import check_callable
from mu2_optax._internal.tree_checks import check_gradient, check_like, check_params
from mu2_optax._internal.trees import cast_like, widened
from mu2_optax._internal.types import Params, Transform, Updates
from mu2_optax._optimizers.double_momentum import Mu2State, double_momentum
from mu2_optax._paper.momenta import DoubleMomentum, linear_momentum
from mu2_optax.lmo._sets import Oracle


def frank_wolfe(lmo: Oracle) -> optax.GradientTransformationExtraArgs:
    r"""Moves to the point of K that lies furthest against the gradient.

    .. math:: w_{t+1} = \arg\min_{v \in K} \langle d_t, v \rangle

    It is the limit of a projected gradient step as the learning rate grows. Use it as the ``inner``
    of :func:`mu2_optax.mu2` or :func:`mu2_optax.anytime`, whose averaging :math:`x_{t+1} = x_t +
    \gamma_{t+1}(w_{t+1} - x_t)` makes x the Frank-Wolfe iterate with step size γ. By itself it
    jumps from vertex to vertex. Do not scale its steps (``weighted_steps=True``, a learning rate
    after it): they would leave K.

    Args:
      lmo: A linear minimization oracle such as those of :mod:`mu2_optax.lmo`: a function from
        tree to tree.

    Returns:
      A transform without state; extra args are ignored.

    Examples:
      >>> import jax.numpy as jnp, optax, mu2_optax
      >>> from mu2_optax import lmo
      >>> inner = mu2_optax.frank_wolfe(lmo.l1_ball(1.0))
      >>> tx = mu2_optax.anytime(inner, mu2_optax.linear_momentum().gamma)
      >>> params = jnp.zeros(3)
      >>> updates, state = tx.update(jnp.array([1.0, -3.0, 2.0]), tx.init(params), params)
      >>> optax.apply_updates(params, updates).round(4)
      Array([0.    , 0.6667, 0.    ], dtype=float32)

    References:
      Frank and Wolfe, `An Algorithm for Quadratic Programming
      <https://doi.org/10.1002/nav.3800030109>`_, 1956; Jaggi, `Revisiting Frank-Wolfe
      <https://proceedings.mlr.press/v28/jaggi13.html>`_, ICML 2013
    """
    check_callable("lmo", lmo, "mu2_optax.lmo.l2_ball(1.0)")

    def init(params: Params) -> optax.EmptyState:
        check_params(params)
        return optax.EmptyState()

    def update(
        updates: Updates, state: optax.EmptyState, params: Params = None, **extra_args: Any
    ) -> tuple[Any, optax.EmptyState]:
        del extra_args
        check_params(params)
        check_gradient("grads", updates, params)
        vertex = lmo(updates)
        check_like(
            "lmo(d)", vertex, params, "A linear minimization oracle returns a point like params."
        )
        return cast_like(optax.tree.sub(widened(vertex), widened(params)), params), state

    return optax.GradientTransformationExtraArgs(init, update)


def mu2_frank_wolfe(
    lmo: Oracle,
    momentum: DoubleMomentum = linear_momentum(offset=1),
    *,
    lean: bool = False,
    state_dtype: DTypeLike | None = None,
) -> Transform[Mu2State]:
    r"""Frank-Wolfe along the corrected momentum: μ² without a learning rate.

    .. math::
      d_t &= g_t + (1 - \beta_t)\,(d_{t-1} - \tilde g_{t-1}) \\
      w_{t+1} &= \arg\min_{v \in K} \langle d_t, v \rangle \\
      x_{t+1} &= x_t + \gamma_{t+1}\,(w_{t+1} - x_t)

    The bound :math:`E\|d_t - \nabla f(x_t)\|^2 \le \tilde\sigma^2/(t + 1)` holds for any update
    rule that keeps w in K, so it holds here; the excess loss is then of order
    :math:`LD^2/T + D\tilde\sigma/\sqrt T` (see :func:`mu2_optax.theory.frank_wolfe_bound`), with
    nothing to tune but the set K. The first params should lie in K; if they do not, their weight in
    the average fades like 1/t².

    Args:
      lmo: A linear minimization oracle such as those of :mod:`mu2_optax.lmo`.
      momentum: α, β and γ; the default is that of the theorem, because a step to a vertex does not
        shrink: only an average whose γ decays comes to rest.
      lean: Whether to recover the last point x instead of storing it; see :func:`mu2`.
      state_dtype: The dtype of w and d; see :func:`corrected_momentum`.

    Returns:
      A transform whose ``update`` also takes ``grad_fn`` and ``batch``, or ``prev_grads``. Its
      state is a :class:`mu2_optax.Mu2State`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> from mu2_optax import lmo
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2_frank_wolfe(lmo.l2_ball(2.0))
      >>> params = jnp.array([1.0, 1.0])
      >>> state = tx.init(params)
      >>> @jax.jit
      ... def step(params, state, batch):
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     return optax.apply_updates(params, updates), state
      >>> for batch in 0.5 + jax.random.normal(jax.random.key(0), (500, 2)):
      ...     params, state = step(params, state, batch)
      >>> bool(jnp.all(jnp.abs(params - 0.5) < 0.15))
      True

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR
      2025, for the estimate; Zhang et al., `One Sample Stochastic Frank-Wolfe
      <https://arxiv.org/abs/1910.04322>`_, AISTATS 2020, for a close relative
    """
    inner = frank_wolfe(lmo)
    return double_momentum("mu2_frank_wolfe", inner, momentum, None, lean, state_dtype)
