"""μ²-ExtraSGD: the accelerated algorithm, with the same two mechanisms in extragradient order."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from mu2_optax._gradients.batches import check_share, split_batch
from mu2_optax._gradients.part import GradOnPart
from mu2_optax._gradients.same_sample import gradient_at
from mu2_optax._internal.checks import check_rate
from mu2_optax._internal.tree_checks import check_params, check_update
from mu2_optax._internal.trees import (
    cast_like,
    scaled,
    stored_average,
    stored_copy,
    stored_zeros,
    widened,
)
from mu2_optax._internal.types import (
    Batch,
    GradFn,
    Memory,
    Params,
    ScalarOrSchedule,
    Transform,
    Tree,
    Updates,
)
from mu2_optax._paper.estimate import corrected
from mu2_optax._paper.followed import averaged, from_params_at_first
from mu2_optax._paper.momenta import DoubleMomentum, check_momentum, linear_momentum
from mu2_optax._paper.projections import Projection, as_projection
from mu2_optax._paper.weights import StepGradients, as_adaptive, as_schedule, weight_at


class Mu2ExtraState(NamedTuple):
    """State of :func:`mu2_extra_sgd`.

    Attributes:
      t: The number of steps taken.
      y: The point that every step of w starts from.
      d: The estimate of the gradient at params.
      x: The average in the precision of the state, where params are narrower than that; otherwise
        None, because params are the average.
      beta_memory: What ``momentum.beta`` remembers; None for a number or a schedule.
    """

    t: jax.Array
    y: Tree
    d: Tree
    x: Tree = None
    beta_memory: Memory = None


def mu2_extra_sgd(
    learning_rate: ScalarOrSchedule,
    momentum: DoubleMomentum = linear_momentum(offset=1),
    *,
    projection: Projection | None = None,
    weighted_steps: bool = True,
    hint: float | None = None,
    state_dtype: DTypeLike | None = None,
) -> Transform[Mu2ExtraState]:
    r"""μ²-ExtraSGD, the paper's Algorithm 2: accelerated, three gradients a step.

    All gradients of a step are taken on its one sample :math:`z_t`:

    .. math::
      \hat x_t &= x_{t-1} + \gamma_t\,(y_{t-1} - x_{t-1}) \\
      \hat d_t &= \nabla f(\hat x_t; z_t) + (1 - \beta_t)\,(d_{t-1} - \nabla f(x_{t-1}; z_t)) \\
      w_t &= \Pi(y_{t-1} - \eta\,[\alpha_t]\,\hat d_t) \\
      x_t &= x_{t-1} + \gamma_t\,(w_t - x_{t-1}) \\
      d_t &= \nabla f(x_t; z_t) + (1 - \beta_t)\,(d_{t-1} - \nabla f(x_{t-1}; z_t)) \\
      y_t &= \Pi(y_{t-1} - \eta\,[\alpha_t]\,d_t)

    Here ``params`` is :math:`x_{t-1}` before the step and :math:`x_t` after it, ``updates`` is
    :math:`\nabla f(x_{t-1}; z_t)`, and ``grad_fn`` is called twice more. The learning rate 1/(2L),
    where L is the smoothness of the loss, is optimal with and without noise. Because :math:`x_t`
    depends on :math:`z_t` through the hint, d keeps a small bias where samples curve differently
    (measured in docs/guarantees.md); where the estimate itself matters, as for stopping, set
    ``hint`` to take the hint on separate samples, or use :func:`mu2_sgd`.

    Args:
      learning_rate: η, a number or a schedule.
      momentum: α, β and γ. This default and that of ``weighted_steps`` are those of the theorem,
        because 1/(2L) is the rate of these weights; those of :func:`mu2_sgd` are from the
        experiments, which the paper reports for Algorithm 1 alone.
      projection: A function from tree to tree that projects w and y onto the set.
      weighted_steps: Whether the step is :math:`\eta\alpha_t` (the theorem) or η.
      hint: None for the paper's algorithm. With a share in (0, 1) of the samples,
        :math:`\hat d_t` is taken on that share alone (the first samples), and the change from
        :math:`x_{t-1}` to :math:`x_t` on the other samples; :math:`x_t` then does not depend on
        those, and d has no bias. A step still costs 3 gradients. With a part S of the batch
        (:func:`value_and_grad`), it is a share of S, and a step costs 1 + 2|S|/|B| gradients with
        or without a hint.
      state_dtype: The dtype of y and d; see :func:`corrected_momentum`.

    Returns:
      A transform whose ``update`` also needs ``grad_fn`` and ``batch``. Its state is a
      :class:`Mu2ExtraState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> grad_fn = jax.grad(lambda x, z: jnp.sum((x - z) ** 2))
      >>> tx = mu2_optax.mu2_extra_sgd(0.1)
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> grads = grad_fn(params, 3.0)
      >>> updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=3.0)
      >>> optax.apply_updates(params, updates)
      Array([1.8, 2.4], dtype=float32)

    References:
      Dahan and Levy, `Do Stochastic, Feel Noiseless <https://arxiv.org/abs/2304.04172>`_, ICLR 2025
    """
    check_rate("learning_rate", learning_rate)
    check_momentum(momentum)
    if hint is not None:
        check_share("hint", hint)
    eta = as_schedule(learning_rate)
    beta = as_adaptive(momentum.beta)
    project = as_projection(projection)

    def init(params: Params) -> Mu2ExtraState:
        check_params(params)
        return Mu2ExtraState(
            t=jnp.zeros([], jnp.int32),
            y=stored_copy(params, state_dtype),
            d=stored_zeros(params, state_dtype),
            x=stored_average(params, state_dtype),
            beta_memory=beta.first(params),
        )

    def update(
        updates: Updates,
        state: Mu2ExtraState,
        params: Params = None,
        *,
        grad_fn: GradFn | None = None,
        batch: Batch = None,
        **extra_args: Any,
    ) -> tuple[Updates, Mu2ExtraState]:
        del extra_args
        check_update(updates, state, params, Mu2ExtraState, like="y")

        def gradient(point: Any, grad_fn: GradFn | None, batch: Batch) -> Any:
            return gradient_at(point, params, updates, grad_fn, batch, "mu2_extra_sgd")

        t = state.t
        y = widened(from_params_at_first(params, state.y, t))
        gamma_t, step = weight_at(momentum.gamma, t), weight_at(eta, t)
        if weighted_steps:
            step = step * weight_at(momentum.alpha, t)

        to_hint, _ = averaged(params, state.x, y, gamma_t)
        x_hat = optax.apply_updates(params, to_hint)
        if hint is None or batch is None:
            seen = StepGradients(gradient(x_hat, grad_fn, batch), updates, state.d)
        else:
            own, batch, share = split_batch("hint", hint, batch)
            _check_rest(hint, share)
            whole = GradOnPart.of(grad_fn)
            on_part = whole.on_part
            at_hint, at_params = gradient(x_hat, on_part, own), gradient(params, on_part, own)
            seen = StepGradients(at_hint, at_params, state.d, share * (whole.share or 1.0))
            grad_fn = GradOnPart(on_part, updates, gradient(params, on_part, batch))
        beta_t, beta_memory = beta.step(state.beta_memory, t, seen)
        d_hat = corrected(t, beta_t, seen.grads, state.d, seen.prev_grads)
        w = project(optax.tree.sub(y, scaled(step, d_hat)))
        move, x = averaged(params, state.x, w, gamma_t)
        g = gradient(optax.apply_updates(params, move), grad_fn, batch)
        d = corrected(t, beta_t, g, state.d, updates)
        y = project(optax.tree.sub(y, scaled(step, d)))

        return move, Mu2ExtraState(
            t=optax.safe_increment(t),
            y=cast_like(y, state.y),
            d=cast_like(d, state.d),
            x=x,
            beta_memory=beta_memory,
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _check_rest(hint: float, share: float) -> None:
    """Requires that a hint leaves samples for the estimate."""
    if share == 1:
        raise ValueError(
            f"`hint` must leave at least one sample for the estimate, got {hint:g} of a batch too "
            "small for that; take a smaller share or a larger batch."
        )
