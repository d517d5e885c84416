"""The optimizers that the command line knows, all called in the same way."""

from collections.abc import Callable
from typing import Any

import jax
import optax

from mu2_optax import (
    AnytimeState,
    DoubleMomentum,
    anytime_sgd,
    eval_params,
    mu2_auto,
    mu2_extra_sgd,
    mu2_sgd,
    projected,
    storm,
)

Projection = Callable[[Any], Any]
Factory = Callable[[Any, DoubleMomentum, Projection | None], optax.GradientTransformationExtraArgs]


def _baseline(make: Callable[[Any], optax.GradientTransformation]) -> Factory:
    """A plain optimizer, projected after each step if there is a projection."""

    def factory(
        learning_rate: Any, momentum: DoubleMomentum, projection: Projection | None
    ) -> optax.GradientTransformationExtraArgs:
        del momentum
        inner = make(learning_rate)
        if projection is None:
            return optax.with_extra_args_support(inner)
        return projected(inner, projection)

    return factory


def _momentum_sgd(learning_rate: Any) -> optax.GradientTransformation:
    """Momentum 0.9 with dampening 0.9: the buffer is 0.9 buffer + 0.1 gradient."""
    return optax.chain(optax.ema(0.9, debias=False), optax.sgd(learning_rate))


# Name -> (what it is, how to make it). The step of each is the learning rate itself, never
# multiplied by α, so that the rates of different optimizers can be compared.
OPTIMIZERS: dict[str, tuple[str, Factory]] = {
    "mu2_auto": (
        "nothing to choose: it has no learning rate, so every rate gives the same",
        lambda lr, momentum, projection: mu2_auto(projection=projection),
    ),
    "mu2_sgd": (
        "μ²-SGD: corrected momentum and query averaging (2 gradients a step)",
        lambda lr, momentum, projection: mu2_sgd(lr, momentum, projection=projection),
    ),
    "mu2_extra_sgd": (
        "μ²-ExtraSGD: the accelerated form (3 gradients a step)",
        lambda lr, momentum, projection: mu2_extra_sgd(
            lr, momentum, projection=projection, weighted_steps=False
        ),
    ),
    "storm": (
        "STORM: corrected momentum alone (2 gradients a step)",
        lambda lr, momentum, projection: storm(lr, momentum.beta, projection=projection),
    ),
    "anytime_sgd": (
        "Anytime-SGD: query averaging alone",
        lambda lr, momentum, projection: anytime_sgd(lr, momentum, projection=projection),
    ),
    "sgd": ("SGD", _baseline(optax.sgd)),
    "momentum": ("SGD with momentum 0.9, dampening 0.9", _baseline(_momentum_sgd)),
    "adam": ("Adam", _baseline(optax.adam)),
}


def make_optimizer(
    name: str, learning_rate: Any, momentum: DoubleMomentum, projection: Projection | None
) -> optax.GradientTransformationExtraArgs:
    """Makes one of the `OPTIMIZERS`.

    Args:
      name: Its name.
      learning_rate: A number or a tracer.
      momentum: The momenta of those that have them.
      projection: What keeps the params in their set, or None.

    Returns:
      The optimizer; call it as ``tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)``.

    Examples:
      >>> import mu2_optax
      >>> tx = make_optimizer("sgd", 0.1, mu2_optax.linear_momentum(), None)
      >>> tx.update(1.0, tx.init(1.0), 1.0, grad_fn=None, batch=None)[0]
      -0.1
    """
    return OPTIMIZERS[name][1](learning_rate, momentum, projection)


def evaluated(state: Any, params: Any) -> Any:
    """What to evaluate: the average that an optimizer keeps beside the params, or the params."""
    nodes = jax.tree.leaves(state, is_leaf=lambda node: isinstance(node, AnytimeState))
    averages = any(isinstance(node, AnytimeState) for node in nodes)
    return eval_params(state, params) if averages else params
