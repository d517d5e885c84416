r"""Nothing to choose: the learning rate grows until the steps stop going downhill.

Two parts that are useful alone, and their composition with anytime averaging.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._anytime import AnytimeState, anytime
from mu2_optax._checks import (
    check_at_least,
    check_gradient,
    check_params,
    check_positive,
    check_rate,
    check_single,
    check_state,
    check_stored,
    check_transform,
    check_unit_interval,
)
from mu2_optax._directions import unit_directions
from mu2_optax._masks import Mask
from mu2_optax._momentum import linear_momentum
from mu2_optax._projections import Projection
from mu2_optax._same_sample import GradFn, gradient_at
from mu2_optax._trees import (
    add,
    after,
    cast_like,
    copied_like,
    inner_product,
    refined,
    scaled,
    stored_copy,
    subtract,
    widened,
)
from mu2_optax._types import Transform, Tree
from mu2_optax._weights import ScalarOrSchedule, as_schedule, weight_at

_FIRST, _MOST = 1e-4, 1e6  # the first and the largest rate, in units of the params' typical size
_FLOOR = 1e-4  # the least size that params are taken to have, such as those that start at zero


class GrownRateState(NamedTuple):
    r"""State of :func:`grown_rate`.

    Attributes:
      rate: η, the learning rate found so far.
      most: The largest rate that it may grow to.
      slope: E, the sum of the slopes along the steps.
      y: The point of the last gradient.
      inner_state: The state of ``inner``.
    """

    rate: jax.Array
    most: jax.Array
    slope: jax.Array
    y: Tree
    inner_state: Any


def grown_rate(
    inner: optax.GradientTransformation, *, factor: Any = 1.0, growth: Any = 1.5
) -> Transform[GrownRateState]:
    r"""Steps along ``inner``, with a learning rate that grows while the steps go downhill.

    .. math::
      e_t &= \langle g_t, y_t - y_{t-1} \rangle, \qquad E_t = E_{t-1} + e_t \\
      \eta_t &= \begin{cases} 1.5\,\eta_{t-1} & \text{if } E_t < 0 \text{ and } e_t < 0
      \\ \eta_{t-1} & \text{otherwise} \end{cases}, \qquad
      w_{t+1} = w_t - \eta_t\,\text{inner}(g_t)

    Here :math:`y_t` is the point of the gradient :math:`g_t`: the params, or ``query`` if that is
    given, as :func:`query_ahead` does. :math:`e_t` is the slope at the *end* of the last step, in
    its direction. The sample of :math:`g_t` is fresh, so it is unbiased: while it is negative, a
    longer step would have led further down. Because the rate grows by a factor a step, the latest
    steps dominate the sum until the growth has ended.

    The rate never shrinks. It does not grow past a million times the size of the first params
    either, so that a loss without a minimum does not end in infinities.

    Args:
      inner: A transform that gives directions with the sign of a gradient and a size of about one,
        such as :func:`unit_directions`. Raw gradients (``optax.identity()``) do for quadratics;
        where the curvature rises away from the start, a rate that has grown too far makes them
        diverge. It sees gradients and params at least in float32.
      factor: A factor on the first rate, which is :math:`10^{-4}` times the size of the first
        params (their root mean square plus :math:`10^{-4}`).
      growth: The factor by which the rate grows; 1 is a constant rate.

    Returns:
      A transform; extra args are passed to ``inner``. Its state is a :class:`GrownRateState`.
      Inside :func:`anytime` it needs :func:`query_ahead` around (``share=0`` for gradients at the
      average), which says where the gradient was taken.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> tx = mu2_optax.grown_rate(optax.identity())
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> for _ in range(40):
      ...     updates, state = tx.update(2 * params, state, params)  # the gradient of ‖x‖²
      ...     params = optax.apply_updates(params, updates)
      >>> bool(jnp.linalg.norm(params) < 1e-3), bool(0.1 < state.rate < 1)
      (True, True)

    References:
      Baydin et al., `Online Learning Rate Adaptation with Hypergradient Descent
      <https://arxiv.org/abs/1703.04782>`_, ICLR 2018, for the same product of gradients
    """
    check_transform("inner", inner)
    check_single("factor", factor)
    check_single("growth", growth)
    check_positive("factor", factor, "a rate of 0 cannot grow.")
    check_at_least("growth", growth, 1, "the rate cannot shrink; 1 keeps it constant.")
    inner = optax.with_extra_args_support(inner)

    def init(params: Any) -> GrownRateState:
        check_params(params)
        size = _typical_size(params)
        return GrownRateState(
            rate=jnp.asarray(factor * _FIRST * size).astype(float),
            most=(_MOST * size).astype(float),
            slope=jnp.zeros([], float),
            y=stored_copy(params, None),
            inner_state=inner.init(widened(params)),
        )

    def update(
        updates: Any, state: GrownRateState, params: Any = None, *, query: Any = None, **extra: Any
    ) -> tuple[Any, GrownRateState]:
        check_params(params)
        check_state(state, GrownRateState)
        check_stored(params, state.y)
        check_gradient("grads", updates, params)
        y = cast_like(params if query is None else query, state.y)
        last = inner_product(updates, subtract(y, state.y))
        slope = state.slope + last
        grow = (slope < 0) & (last < 0) & (growth * state.rate <= state.most)
        rate = jnp.where(grow, growth, 1) * state.rate
        direction, inner_state = inner.update(
            widened(updates), state.inner_state, widened(params), **extra
        )
        step = cast_like(scaled(-rate, direction), params)
        y = after(state.y, copied_like(y, state.y), rate < 0)
        return step, GrownRateState(rate, state.most, slope, y, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


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
      e_t &= \langle g_t, y_t - y_{t-1} \rangle, \qquad E_t = E_{t-1} + e_t \\
      \eta_t &= 1.5\,\eta_{t-1} \text{ if } E_t < 0 \text{ and } e_t < 0,
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


def _typical_size(params: Any) -> jax.Array:
    """The root mean square of all numbers in ``params``, and a little more, so that it is not 0."""
    count = sum(jnp.size(leaf) for leaf in jax.tree.leaves(params))
    return optax.tree.norm(widened(params)) / jnp.sqrt(float(max(count, 1))) + _FLOOR
