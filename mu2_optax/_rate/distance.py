"""A learning rate that is found on the way: how far the run has come, over its steps so far."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.checks import (
    check_below_one,
    check_mask,
    check_positive,
    check_rate,
    check_single,
    check_transform,
)
from mu2_optax._internal.masks import Mask, marks_of
from mu2_optax._internal.tree_checks import check_params, check_update
from mu2_optax._internal.trees import cast_like, inverse_or_zero, leaves_like, widened
from mu2_optax._internal.types import (
    OptState,
    Params,
    Scalar,
    ScalarOrSchedule,
    Transform,
    Tree,
    Updates,
)
from mu2_optax._paper.weights import as_schedule, time, weight_at
from mu2_optax._rate.sample import sampled

_FIRST, _MOST = 1e-1, 1e6  # the first and the largest distance, in units of the params' size
_LARGEST_FIRST = 0.2  # whatever the factor: a first step beyond that wrecks networks
_ALL_ZERO = 1e-2  # the size to assume for params that are all zero
_POWER = 2  # of t in the weights of the mean whose distance counts
_NEUTRAL = 7**0.5 / 3  # for these weights, noise alone leaves the rate as it is
_LEAST_RANK = 0.1  # a step of a lower rank counts as if it had this share of the full one


class DistanceRateState(NamedTuple):
    r"""State of :func:`distance_rate`.

    Attributes:
      t: The number of steps taken.
      reach: ρ, the largest distance of the mean so far.
      most: The largest distance that counts.
      energy: G, the sum of the squared directions, each times ρ² and what momentum adds.
      start: A sample of the first params.
      mean: A sample of the mean of the params so far, relative to the first.
      inner_state: The state of ``inner``.
    """

    t: jax.Array
    reach: jax.Array
    most: jax.Array
    energy: jax.Array
    start: jax.Array
    mean: jax.Array
    inner_state: OptState


def distance_rate(
    inner: optax.GradientTransformation,
    *,
    first_step: Scalar = 1.0,
    momentum: float = 0.0,
    ranks: Callable[[OptState], Tree] | None = None,
    weight_decay: ScalarOrSchedule | None = None,
    weight_decay_mask: Mask | None = None,
) -> Transform[DistanceRateState]:
    r"""Steps along ``inner``, with a learning rate that is the distance come so far over the steps.

    .. math::
      x_t &= x_{t-1} + \frac{3}{t + 2}\,(w_t - x_{t-1}), \qquad
      \rho_t = \max\bigl(\rho_{t-1}, \|x_t - w_1\|\bigr), \qquad
      G_t = G_{t-1} + \frac{1 + \beta}{1 - \beta}\,\rho_t^2\,\|u_t\|^2 \\
      \eta_t &= \frac{\sqrt 7}{3}\,\frac{\rho_t^2}{\sqrt{G_t}}, \qquad
      w_{t+1} = w_t - \frac{\eta_t}{1 + \eta_t \lambda}\,(u_t + \lambda w_t)

    Here :math:`w` is ``params``, :math:`u_t` is what ``inner`` makes of the gradient, :math:`x_t`
    is the mean of :math:`w_1, \dots, w_t` with weights that grow like t², and :math:`\|\cdot\|` is
    the root mean square over all coordinates. This is DoWG on the directions of ``inner``, with two
    differences: the distance is that of the mean, which noise carries less far than the params, and
    the factor √7/3 is the one at which *noise alone leaves the rate as it is*. Steps that agree
    make the rate grow; steps that turn back, so that the distance stays bounded, make it fall like
    :math:`1/\sqrt t`.

    (Let the u be noise of size one, and :math:`\eta = c\,\rho^2/\sqrt G`. If the rate stays the
    same, the squared distance of the mean is :math:`\rho^2 = \eta^2 t \int_0^1 (1 - v^3)^2 dv =
    \frac{9}{14}\,\eta^2 t`, and :math:`G = \frac{9}{28}\,\eta^2 t^2`, so that :math:`\eta = c\,
    \frac{3}{\sqrt 7}\,\eta`. Steps with a momentum β are correlated, and noise carries them
    :math:`(1 + \beta)/(1 - \beta)` times as far, in squares.)

    The first distance is a tenth of the params' size: of the geometric mean, over all coordinates,
    of the root mean square of their tensor, and 0.01 if all params are zero. Distances are measured
    on a sample of the coordinates, 1024 to 4096 of a large tensor, and count up to a million times
    the size of the params, so that a loss without a minimum does not end in infinities.

    Args:
      inner: A transform that gives directions with the sign of a gradient and a size of about one,
        such as :func:`unit_directions`. It sees gradients and params at least in float32.
      first_step: A factor on the first distance. Less than 1 makes the start slower, by a few steps
        only, because the distance grows; more than 2 counts as 2, because a longer first step would
        wreck a network.
      momentum: β in [0, 1), the momentum inside ``inner``.
      ranks: For orthogonal steps: from the state of ``inner`` to a tree with the rank of each
        leaf's last step as a share of the full one, and None for leaves with other steps, or for
        all of them. A step of less than 0.1 of the rank counts in G as one of 0.1. Few samples give
        gradients of a low rank: such steps are long in a few directions, but over all coordinates
        they look short, so that the rate would grow until they wreck a network.
      weight_decay: λ: decoupled decay, a number or a schedule. The step is implicit in it, so that
        any size is stable.
      weight_decay_mask: Which leaves decay: a tree of booleans like params, or a function from
        params to one; all by default.

    Returns:
      A transform; extra args are passed to ``inner``. Its state is a :class:`DistanceRateState`.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> tx = mu2_optax.distance_rate(mu2_optax.unit_directions())
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
    check_below_one("momentum", momentum, "at 1 nothing would be forgotten; 0 is none.")
    check_mask(weight_decay_mask, weight_decay)
    if weight_decay is not None:
        check_rate("weight_decay", weight_decay)
    inner = optax.with_extra_args_support(inner)
    spread = (1 + momentum) / (1 - momentum)  # of a walk on noise, relative to one without momentum

    def init(params: Params) -> DistanceRateState:
        check_params(params)
        wide = widened(params)
        size = _typical_size(wide)
        first = jnp.minimum(first_step * _FIRST, _LARGEST_FIRST)
        return DistanceRateState(
            t=jnp.zeros([], jnp.int32),
            reach=(first * size).astype(float),
            most=_MOST * size,
            energy=jnp.zeros([], float),
            start=(start := sampled(wide)),
            mean=jnp.zeros_like(start),
            inner_state=inner.init(wide),
        )

    def update(
        updates: Updates, state: DistanceRateState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, DistanceRateState]:
        check_update(updates, state, params, DistanceRateState)
        w = widened(params)
        u, inner_state = inner.update(widened(updates), state.inner_state, w, **extra_args)
        share = (1 + _POWER) / (time(state.t) + _POWER)
        way = _finite(sampled(w) - state.start)
        mean = state.mean + share.astype(way.dtype) * (way - state.mean)
        distance = jnp.sqrt(_mean_square(mean))
        reach = jnp.maximum(state.reach, jnp.minimum(distance, state.most))
        counted = u if ranks is None else _of_enough_rank(u, ranks(inner_state))
        energy = state.energy + spread * jnp.square(reach) * _mean_square(sampled(counted))
        rate = rate_of(reach, energy)
        moves = _moves(rate, u, w, weight_decay, weight_decay_mask, state.t)
        return cast_like(moves, params), DistanceRateState(
            t=optax.safe_increment(state.t),
            reach=reach,
            most=state.most,
            energy=energy,
            start=state.start,
            mean=mean,
            inner_state=inner_state,
        )

    return optax.GradientTransformationExtraArgs(init, update)


def rate_of(reach: jax.Array, energy: jax.Array) -> jax.Array:
    """The learning rate, and 0 before the first step."""
    return _NEUTRAL * jnp.square(reach) * inverse_or_zero(jnp.sqrt(energy))


def _of_enough_rank(u: Updates, ranks: Any) -> Updates:
    """The directions, those of a low rank as long as if they had 0.1 of the full one."""
    if ranks is None:
        return u
    leaves, structure = jax.tree.flatten(u)
    counted = [
        u if rank is None else u * jnp.sqrt(jnp.maximum(_LEAST_RANK * inverse_or_zero(rank), 1))
        for u, rank in zip(leaves, leaves_like(u, ranks), strict=True)
    ]
    return jax.tree.unflatten(structure, counted)


def _moves(
    rate: jax.Array, u: Any, w: Any, weight_decay: Any, mask: Mask | None, count: jax.Array
) -> Any:
    """The steps −η (u + λw)/(1 + ηλ), and −η u where nothing decays."""
    if weight_decay is None:
        return jax.tree.map(lambda u: -rate.astype(u.dtype) * u, u)
    decay = weight_at(as_schedule(weight_decay), count)
    share = rate / (1 + rate * decay)
    leaves, structure = jax.tree.flatten(u)
    marks = [True] * len(leaves) if mask is None else marks_of("weight_decay_mask", mask, w)
    moves = [
        -share.astype(u.dtype) * (u + decay.astype(u.dtype) * w)
        if decays
        else -rate.astype(u.dtype) * u
        for u, w, decays in zip(leaves, jax.tree.leaves(w), marks, strict=True)
    ]
    return jax.tree.unflatten(structure, moves)


def _typical_size(params: Params) -> jax.Array:
    """The geometric mean over all coordinates of the root mean square of their tensor.

    Tensors that are zero do not count, nor do numbers that are not finite, and one very large
    tensor does not make the others seem large.
    """
    logs = total = jnp.zeros([], float)
    for leaf in jax.tree.leaves(params):
        square = jnp.mean(jnp.square(jnp.abs(_finite(leaf)))).astype(float) if leaf.size else 0.0
        count = jnp.where(square > 0, float(leaf.size), 0)
        logs += count * jnp.log(jnp.where(square > 0, square, 1)) / 2
        total += count
    return jnp.where(total > 0, jnp.exp(logs / jnp.maximum(total, 1)), _ALL_ZERO)


def _mean_square(few: jax.Array) -> jax.Array:
    """The mean square of all coordinates, from a sample; numbers that are not finite count as 0."""
    return jnp.sum(jnp.square(_finite(few))).astype(float)


def _finite(a: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(a), a, 0)
