"""A learning rate that is found on the way: how far the run has come, over its steps so far."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import (
    check_mask,
    check_positive,
    check_rate,
    check_single,
    check_transform,
)
from mu2_optax._internal.masks import Mask
from mu2_optax._internal.sample import Sample
from mu2_optax._internal.sharding import varying_like
from mu2_optax._internal.tree_checks import check_params, check_update
from mu2_optax._internal.trees import (
    cast_like,
    inverse_or_zero,
    root,
    widened,
)
from mu2_optax._internal.types import (
    OptState,
    Params,
    Scalar,
    ScalarOrSchedule,
    Transform,
    Updates,
)
from mu2_optax._paper.weights import as_schedule, weight_at
from mu2_optax._rate.decay import fading, moves_of
from mu2_optax._rate.directions import UnitDirectionsState
from mu2_optax._rate.measured import mean_square, measured
from mu2_optax._rate.turning import turning_back, walk

POWER = 2.0  # the weights of the average grow like t to this power
_NEUTRAL = 7**0.5 / 3  # for these weights, noise alone leaves the rate as it is
_FIRST, _MOST = 1e-1, 1e6  # the first and the largest distance, in units of the params' size
_LARGEST_FIRST = 0.2  # whatever the factor: a first step beyond that wrecks networks


class DistanceRateState(NamedTuple):
    r"""State of :func:`distance_rate`.

    Attributes:
      t: The number of steps taken.
      size: The typical size of the first params; 0 until there has been a gradient.
      reach: ρ, the largest distance of the average so far, in units of that size; 0 at first.
      energy: G, the sum of the squared directions, each times ρ².
      start: A sample of the first params.
      counts: How much each number of the sample counts: nothing until it has had a gradient.
      inner_state: The state of ``inner``.
    """

    t: jax.Array
    size: jax.Array
    reach: jax.Array
    energy: jax.Array
    start: jax.Array
    counts: jax.Array
    inner_state: OptState


def distance_rate(
    inner: optax.GradientTransformation,
    *,
    first_step: Scalar = 1.0,
    weight_decay: ScalarOrSchedule | None = None,
    weight_decay_mask: Mask | None = None,
) -> Transform[DistanceRateState]:
    r"""Steps along ``inner``, with a learning rate that is the distance come so far over the steps.

    .. math::
      \rho_t = \max\bigl(\rho_{t-1}, \|x_t - w_1\|\bigr), \qquad
      G_t = G_{t-1} + \rho_t^2\,\|u_t\|^2, \qquad
      \eta_t = \frac{\sqrt 7}{3}\,\frac{\rho_t^2}{\sqrt{G_t}}, \qquad
      w_{t+1} = w_t - \frac{\eta_t}{1 + \eta_t \lambda}\,(u_t + \lambda w_t)

    Here :math:`w` is ``params``, :math:`u_t` is what ``inner`` makes of the gradient, :math:`x_t`
    is ``average``, the mean of :math:`w_1, \dots, w_t` with weights that grow like t², and
    :math:`\|\cdot\|^2` is the sum over the coordinates that have had a gradient, over the number of
    all. (A mean over the former would count the way that a few have come as that of those that come
    later.) **Use it inside** ``anytime(…, polynomial_momentum(2.0).gamma)``, which gives it the
    average. This is DoWG on the directions of ``inner``, with two differences: the distance is that
    of the average, which noise carries less far than the iterate, and the factor √7/3 is the one at
    which *noise alone leaves the rate as it is*. Steps that agree make the rate grow; steps that
    turn back, so that the distance stays bounded, make it fall like :math:`1/\sqrt t`. In the place
    of :math:`\|u_t\|^2` counts how far noise would walk along such directions, in squares, where
    :func:`unit_directions` tells that.

    (Let the u be noise of size one, and :math:`\eta = c\,\rho^2/\sqrt G`. If the rate stays the
    same, the squared distance of the average is :math:`\rho^2 = \eta^2 t \int_0^1 (1 - v^3)^2 dv =
    \frac{9}{14}\,\eta^2 t`, and :math:`G = \frac{9}{28}\,\eta^2 t^2`, so that :math:`\eta = c\,
    \frac{3}{\sqrt 7}\,\eta`.)

    The first distance is a tenth of the params' size: of the geometric mean, over all coordinates,
    of the root mean square of their tensor, and 0.01 if all params are zero. Lengths are measured
    on a sample of the coordinates, 1024 to 4096 of a large tensor. Until a number of the sample has
    had a gradient, the rate falls like :math:`1/\sqrt t` from the first one. Distances count up to
    a million times the size of the params, so that a loss without a minimum does not end in
    infinities.

    Args:
      inner: A transform that gives directions with the sign of a gradient and a size of about one,
        such as :func:`unit_directions`. It sees gradients and params at least in float32.
      first_step: A factor on the first distance. Less than 1 makes the start slower, by a few steps
        only, because the distance grows; more than 2 counts as 2, because a longer first step would
        wreck a network.
      weight_decay: λ: decoupled decay of w, a number or a schedule. The step is implicit in it, so
        that any size is stable. It acts where it is safe: on coordinates that have a gradient in
        this step, so that the rare rows of an embedding do not shrink while they are not seen; and
        it fades where directions turn back, because the run is then limited by curvature and not by
        noise: λ counts as :math:`\lambda/(1 + (q/0.05)^2)`, with the q of :func:`mu2_auto`.
      weight_decay_mask: Which leaves decay: a tree of booleans like params, or a function from
        params to one; all by default.

    Returns:
      A transform whose ``update`` takes ``average``, as :func:`anytime` gives it. Its state is a
      :class:`DistanceRateState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> rate = mu2_optax.distance_rate(mu2_optax.unit_directions())
      >>> tx = mu2_optax.anytime(rate, mu2_optax.polynomial_momentum(2.0).gamma)
      >>> @jax.jit
      ... def step(params, state):
      ...     updates, state = tx.update(2 * params, state, params)  # the gradient of ‖x‖²
      ...     return optax.apply_updates(params, updates), state
      >>> params = jnp.array([1.0, 2.0])
      >>> state = tx.init(params)
      >>> for _ in range(1000):
      ...     params, state = step(params, state)
      >>> bool(jnp.linalg.norm(params) < 0.1)
      True

    References:
      Khaled, Mishchenko and Jin, `DoWG Unleashed <https://arxiv.org/abs/2305.16284>`_, NeurIPS
      2023; Ivgi, Hinder and Carmon, `DoG is SGD's Best Friend <https://arxiv.org/abs/2302.12022>`_,
      ICML 2023
    """
    check_transform("inner", inner)
    check_single("first_step", first_step)
    check_positive("first_step", first_step, "it scales the first step; 1 is the usual choice.")
    check_mask(weight_decay_mask, weight_decay)
    if weight_decay is not None:
        check_rate("weight_decay", weight_decay)
    inner = optax.with_extra_args_support(inner)
    first = jnp.minimum(first_step * _FIRST, _LARGEST_FIRST)

    def init(params: Params) -> DistanceRateState:
        check_params(params)
        start = Sample(params)(widened(params))
        size, reach, energy = (jnp.zeros([], float) for _ in range(3))
        counts = jnp.zeros(start.shape, jnp.finfo(start.dtype).dtype)
        size, reach, energy, start, counts = varying_like(
            (size, reach, energy, start, counts), params
        )
        t, inner_state = jnp.zeros([], jnp.int32), inner.init(widened(params))
        return DistanceRateState(t, size, reach, energy, start, counts, inner_state)

    def update(
        updates: Updates,
        state: DistanceRateState,
        params: Params = None,
        *,
        average: Callable[[Sample], jax.Array] | None = None,
        **extra_args: Any,
    ) -> tuple[Updates, DistanceRateState]:
        check_update(updates, state, params, DistanceRateState)
        sample, g, w = Sample(params), widened(updates), widened(params)
        u, inner_state = inner.update(g, state.inner_state, w, **extra_args)
        shares = sample.shares(state.counts.dtype)
        counts = jnp.where(sample(g) != 0, shares, state.counts)
        x = _given(average)(sample).astype(state.start.dtype)
        start = jnp.where(state.t == 0, x, state.start)
        found = measured(sample, counts, start, x)
        size = jnp.where(state.size > 0, state.size, found.size)
        come = jnp.maximum(found.distance, first * found.size) * inverse_or_zero(size)
        reach = jnp.maximum(state.reach, jnp.minimum(come, _MOST) * root(found.share))
        if isinstance(inner_state, UnitDirectionsState):
            own = reach * inverse_or_zero(root(found.share))  # of the coordinates that count alone
            square, back = _square(inner_state, own), turning_back(inner_state.turning)
        else:
            square, back = mean_square(sample, u), jnp.zeros([])
        square = jnp.where(found.known, square, 1)  # the size of a direction where there is any
        energy = state.energy + jnp.square(reach) * square
        rate = rate_of(size, reach, energy)
        decay = None
        if weight_decay is not None:
            decay = fading(weight_at(as_schedule(weight_decay), state.t), back)
        moves = moves_of(rate, u, g, w, decay, weight_decay_mask)
        return cast_like(moves, params), DistanceRateState(
            t=optax.safe_increment(state.t),
            size=size,
            reach=reach,
            energy=energy,
            start=start,
            counts=counts,
            inner_state=inner_state,
        )

    return optax.GradientTransformationExtraArgs(init, update)


def _square(state: UnitDirectionsState, reach: jax.Array) -> jax.Array:
    """The mean square of the last direction, as much further as noise would walk along such."""
    further, orthogonally = walk(state.turning, reach)
    return jnp.maximum(further * state.square + orthogonally * state.orthogonal, state.exploded)


def rate_of(size: jax.Array, reach: jax.Array, energy: jax.Array) -> jax.Array:
    """The learning rate, and 0 before the first gradient."""
    return _NEUTRAL * size * jnp.square(reach) * inverse_or_zero(root(energy))


def _given(average: Callable[[Sample], jax.Array] | None) -> Callable[[Sample], jax.Array]:
    if average is None:
        raise ValueError(
            "`average` must be given, got None: the rate is how far the average of the iterates "
            "has come. Put `distance_rate` inside `anytime`, which gives it, or use `mu2_auto`."
        )
    return average
