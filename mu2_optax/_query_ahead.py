"""Gradients between the average and the iterate."""

from typing import Any

import optax

from mu2_optax._anytime import AnytimeState
from mu2_optax._checks import (
    check_gradient,
    check_params,
    check_state,
    check_stored,
    check_transform,
    check_unit_interval,
)
from mu2_optax._same_sample import GradFn, gradient_at
from mu2_optax._trees import add, cast_like, refined, scaled, subtract, widened
from mu2_optax._weights import ScalarOrSchedule, as_schedule, weight_at


def query_ahead(
    averaging: optax.GradientTransformation, share: ScalarOrSchedule = 0.3
) -> optax.GradientTransformationExtraArgs:
    r"""Takes the gradient between the average and the iterate, instead of at the average.

    .. math:: y_t = x_t + \lambda\,(w_t - x_t), \qquad g_t = \nabla f(y_t; z_t)

    The params stay the average x, which is what you evaluate and save. The gradient that is given
    to ``update`` is that at x, as always, but it is not used: in a compiled step XLA leaves its
    computation out, so that a step still costs one gradient (and the forward pass of a loss that
    you log).

    Args:
      averaging: An optimizer whose state is an :class:`AnytimeState`: :func:`anytime` around
        anything, such as :func:`anytime_sgd`.
      share: λ in [0, 1], a number or a schedule; 0 is the gradient at the average, 1 that at the
        iterate.

    Returns:
      A transform with the state of ``averaging``, whose ``update`` also needs ``grad_fn`` and
      ``batch``.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.query_ahead(mu2_optax.anytime_sgd(0.1, mu2_optax.linear_momentum()))
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> grads = grad_fn(params, 3.0)
      >>> updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=3.0)

    References:
      Defazio et al., `The Road Less Scheduled <https://arxiv.org/abs/2405.15682>`_, NeurIPS 2024
    """
    check_transform("averaging", averaging)
    check_unit_interval("share", share)
    share_at = as_schedule(share)
    update_average = optax.with_extra_args_support(averaging).update

    def init(params: Any) -> AnytimeState:
        state = averaging.init(params)
        if not isinstance(state, AnytimeState):
            raise TypeError(
                "`averaging` must be an optimizer whose state is an AnytimeState, got one with "
                f"{type(state).__name__}; use `anytime(inner, gamma)` around an Optax optimizer."
            )
        return state

    def update(
        updates: Any,
        state: Any,
        params: Any = None,
        *,
        grad_fn: GradFn | None = None,
        batch: Any = None,
        **extra_args: Any,
    ) -> tuple[Any, Any]:
        check_params(params)
        check_state(state, AnytimeState)
        check_stored(params, state.w)
        check_gradient("grads", updates, params)
        x = widened(refined(params, state.x))
        ahead = subtract(cast_like(state.w, x), x)
        y = add(x, scaled(weight_at(share_at, state.t), ahead))
        grads = gradient_at(y, params, grad_fn, batch, "query_ahead")
        return update_average(
            grads, state, params, grad_fn=grad_fn, batch=batch, query=y, **extra_args
        )

    return optax.GradientTransformationExtraArgs(init, update)
