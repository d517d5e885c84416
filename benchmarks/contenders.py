"""The optimizers of the experiments: the paper's, and the strongest peers that Optax has.

All are made and called in the same way, and the step of each is the learning rate itself, never
multiplied by α_t, as in the paper's experiments.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import optax
from optax import contrib

import mu2_optax
from mu2_optax.sweep._command.optimizers import PAPER, Setting
from mu2_optax.sweep._command.optimizers import make_optimizer as make_paper_optimizer

PEERS = (
    "mu2_sgd_measured",
    "mu2_adam",
    "schedule_free_sgd",
    "schedule_free_adamw",
    "prodigy",
    "dog",
    "anytime_exact",
)

# Optimizers whose correction is taken on a share of the batch.
SHARES = {
    f"{name}_part_{parts}": 1 / parts
    for name in ("mu2_sgd", "mu2_sgd_measured")
    for parts in (2, 4, 8, 16)
}

# Gradient evaluations of one step.
GRADIENTS = (
    dict.fromkeys((*PAPER, *PEERS), 1)
    | {
        "mu2_sgd": 2,
        "mu2_sgd_measured": 2,
        "storm": 2,
        "mu2_adam": 2,
        "mu2_extra_sgd": 3,
    }
    | {name: 1 + share for name, share in SHARES.items()}
)

TITLES = {
    "mu2_sgd": "μ²-SGD",
    "mu2_sgd_measured": "μ²-SGD, β measured",
    "mu2_extra_sgd": "μ²-ExtraSGD",
    "storm": "STORM",
    "anytime_sgd": "Anytime-SGD",
    "sgd": "SGD",
    "momentum": "momentum SGD",
    "adam": "Adam",
    "mu2_adam": "μ²-Adam",
    "schedule_free_sgd": "schedule-free SGD",
    "schedule_free_adamw": "schedule-free AdamW",
    "prodigy": "Prodigy",
    "dog": "DoG",
    "anytime_exact": "exact gradient",
}
TITLES |= {
    name: f"{TITLES[name.partition('_part_')[0]]}, 1/{round(1 / share)}"
    for name, share in SHARES.items()
}


def make_optimizer(
    name: str,
    learning_rate: Any,
    momentum: mu2_optax.DoubleMomentum,
    projection: Callable[[Any], Any] | None,
) -> optax.GradientTransformationExtraArgs:
    """Makes an optimizer of this module.

    Args:
      name: One of ``PAPER`` and ``PEERS``.
      learning_rate: A number or a tracer; Prodigy and DoG multiply the rate they find by it.
      momentum: The momenta of those that have them.
      projection: What keeps the params in their set, or None.

    Returns:
      The optimizer; call it as ``tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)``.
    """
    if name in PAPER:
        return make_paper_optimizer(name, learning_rate, Setting(momentum, projection))
    if name == "anytime_exact":  # for tasks that give it the gradient of all data
        return make_paper_optimizer("anytime_sgd", learning_rate, Setting(momentum, projection))
    if name == "mu2_sgd_measured":
        momentum = dataclasses.replace(momentum, beta=mu2_optax.measured_beta())
        return mu2_optax.mu2_sgd(learning_rate, momentum, projection=projection)
    if name == "mu2_adam":
        return mu2_optax.mu2_adam(learning_rate, momentum, projection=projection)
    if name == "schedule_free_sgd":
        return _schedule_free(optax.sgd(learning_rate), learning_rate, projection)
    if name == "schedule_free_adamw":  # the base optimizer of contrib.schedule_free_adamw
        base = optax.chain(
            optax.scale_by_rms(0.999, 1e-8, eps_in_sqrt=False, bias_correction=True),
            optax.scale_by_learning_rate(learning_rate),
        )
        return _schedule_free(base, learning_rate, projection)
    peers = {"prodigy": contrib.prodigy, "dog": contrib.dog}
    if name not in peers:
        raise ValueError(f"no optimizer {name!r}; there are {', '.join(TITLES)}.")
    inner = optax.with_extra_args_support(peers[name](learning_rate))
    return inner if projection is None else mu2_optax.projected(inner, projection)


def evaluation_params(state: Any, params: Any) -> Any:
    """The params to evaluate: the average that schedule-free keeps; else ``params``."""
    if isinstance(state, contrib.ScheduleFreeState):
        return contrib.schedule_free_eval_params(state, params)
    return params


def _schedule_free(
    base: optax.GradientTransformation, learning_rate: Any, projection: Any
) -> optax.GradientTransformationExtraArgs:
    if projection is not None:
        base = _on_own_iterate(base, projection)
    return contrib.schedule_free(base, learning_rate)


def _on_own_iterate(
    base: optax.GradientTransformation, projection: Callable[[Any], Any]
) -> optax.GradientTransformation:
    """Projects the iterate that ``base`` moves: schedule-free's z, whose averages then stay inside.

    ``contrib.schedule_free`` shows its base optimizer the point of the gradient, not z, so z is
    kept here as well.
    """
    tx = mu2_optax.projected(base, projection)

    def init(params: Any) -> Any:
        return params, tx.init(params)

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> Any:
        del params
        z, inner = state
        move, inner = tx.update(updates, inner, z, **extra_args)
        return move, (optax.apply_updates(z, move), inner)

    return optax.GradientTransformationExtraArgs(init, update)
