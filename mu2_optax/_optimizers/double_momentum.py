"""Corrected momentum and anytime averaging as one transform, with a lean state or a full one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.typing import DTypeLike

from mu2_optax._internal.tree_checks import check_params, check_state, check_stored
from mu2_optax._internal.types import Params, Transform, Tree, Updates
from mu2_optax._optimizers.lean import check_lean, check_lean_state, last_point
from mu2_optax._paper.averaging import AnytimeState, anytime
from mu2_optax._paper.estimate import CorrectedMomentumState, estimate_of
from mu2_optax._paper.momenta import DoubleMomentum, check_momentum
from mu2_optax._paper.projections import Projection
from mu2_optax._paper.weights import weight_at


class Mu2State(NamedTuple):
    """State of :func:`mu2`: the states of its two mechanisms, with the paper's letters.

    Attributes:
      corrected: The state of the corrected momentum; its x is None in a lean state.
      averaged: The state of the averaging.
      gamma: The last γ, in a lean state; otherwise None.
    """

    corrected: CorrectedMomentumState
    averaged: AnytimeState
    gamma: Any = None

    @property
    def t(self) -> jax.Array:
        """The number of steps taken."""
        return self.corrected.t

    @property
    def w(self) -> Tree:
        """The iterate that the inner optimizer moves."""
        return self.averaged.w

    @property
    def x(self) -> Tree:
        """The point of the last gradient, which ``d`` estimates; params are one step ahead.

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


def double_momentum(
    optimizer: str,
    inner: optax.GradientTransformation,
    momentum: DoubleMomentum,
    projection: Projection | None = None,
    lean: bool = False,
    state_dtype: DTypeLike | None = None,
) -> Transform[Mu2State]:
    """:func:`mu2` around a finished ``inner``; errors name ``optimizer``."""
    check_momentum(momentum)
    estimate = estimate_of(optimizer, momentum.beta, state_dtype)
    average = anytime(inner, momentum.gamma, projection=projection, state_dtype=state_dtype)

    def init(params: Params) -> Mu2State:
        return Mu2State(estimate.init(params), average.init(params))

    def update(
        updates: Updates, state: Mu2State, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, Mu2State]:
        check_state(state, Mu2State)
        check_lean_state(False, state.gamma)
        d, corrected = estimate.update(updates, state.corrected, params, **extra_args)
        move, averaged = average.update(d, state.averaged, params, **extra_args)
        return move, Mu2State(corrected, averaged)

    tx = optax.GradientTransformationExtraArgs(init, update)
    return _without_the_last_point(tx, momentum) if lean else tx


def _without_the_last_point(
    tx: optax.GradientTransformationExtraArgs, momentum: DoubleMomentum
) -> optax.GradientTransformationExtraArgs:
    """:func:`mu2` with x recovered in every step instead of stored."""
    check_lean(momentum)

    def lean(state: Mu2State, gamma: jax.Array) -> Mu2State:
        return state._replace(corrected=state.corrected._replace(x=None), gamma=gamma)

    def init(params: Params) -> Mu2State:
        return lean(tx.init(params), jnp.ones([], float))

    def update(
        updates: Updates, state: Mu2State, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, Mu2State]:
        check_params(params)
        check_state(state, Mu2State)
        check_lean_state(True, state.gamma)
        check_stored(params, state.w)
        averaged = state.averaged
        # If the last point is unknown, d starts again from this gradient, as in the first step.
        t = jnp.where(state.gamma < 1, state.t, 0)
        x = last_point(params, averaged.x, averaged.w, state.gamma)
        corrected = state.corrected._replace(t=t, x=x)
        move, after = tx.update(updates, Mu2State(corrected, averaged), params, **extra_args)
        corrected = after.corrected._replace(t=after.averaged.t)
        share = weight_at(momentum.gamma, after.averaged.t)
        return move, lean(after._replace(corrected=corrected), share)

    return optax.GradientTransformationExtraArgs(init, update)
