"""Corrected momentum and anytime averaging as one transform, with a lean state or a full one."""

from typing import Any, NamedTuple

import jax
import optax
from jax.typing import DTypeLike

from mu2_optax._internal.tree_checks import check_params, check_update
from mu2_optax._internal.types import Params, Transform, Tree, Updates
from mu2_optax._optimizers.lean import LeanMu2State, lean_double_momentum
from mu2_optax._paper.averaging import AnytimeState, anytime
from mu2_optax._paper.estimate import CorrectedMomentumState, estimate_of
from mu2_optax._paper.momenta import DoubleMomentum, check_momentum
from mu2_optax._paper.projections import Projection


class Mu2State(NamedTuple):
    """State of :func:`mu2`: the states of its two mechanisms, with the paper's letters.

    Attributes:
      corrected: The state of the corrected momentum.
      averaged: The state of the averaging.
    """

    corrected: CorrectedMomentumState
    averaged: AnytimeState

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
        """The point of the last gradient, which ``d`` estimates; params are one step ahead."""
        return self.corrected.x

    @property
    def d(self) -> Tree:
        """The estimate of the gradient at ``x``."""
        return self.corrected.d


def double_momentum(
    optimizer: str,
    inner: optax.GradientTransformation,
    momentum: DoubleMomentum,
    projection: Projection | None = None,
    lean: bool = False,
    state_dtype: DTypeLike | None = None,
) -> Transform[Mu2State] | Transform[LeanMu2State]:
    """:func:`mu2` around a finished ``inner``; errors name ``optimizer``."""
    check_momentum(momentum)
    estimate = estimate_of(optimizer, momentum.beta, state_dtype)
    average = anytime(inner, momentum.gamma, projection=projection, state_dtype=state_dtype)
    if lean:
        return lean_double_momentum(estimate, average, momentum)

    def init(params: Params) -> Mu2State:
        check_params(params)
        return Mu2State(estimate.init(params), average.init(params))

    def update(
        updates: Updates, state: Mu2State, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, Mu2State]:
        check_update(updates, state, params, Mu2State, like="x")
        d, corrected = estimate.update(updates, state.corrected, params, **extra_args)
        move, averaged = average.update(d, state.averaged, params, **extra_args)
        return move, Mu2State(corrected, averaged)

    return optax.GradientTransformationExtraArgs(init, update)
