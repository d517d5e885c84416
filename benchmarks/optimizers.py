"""The one list of optimizers: how each is made, where it is evaluated, what it is called.

All are called as ``tx.update(grads, state, params, value=loss, grad_fn=grad_fn, batch=batch)``, of
which each uses what it needs. The step of each is the learning rate itself, never multiplied by
α_t, as in the paper's experiments. ``benchmarks.self_tuning.peers`` adds defaults and grids of
rates for those that are compared there.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import optax
from optax import contrib

import mu2_optax
from benchmarks import recipes
from benchmarks.recipes import cosine
from benchmarks.schedule_free_plus import schedule_free_plus
from mu2_optax.sweep._command.optimizers import PAPER as PAPER
from mu2_optax.sweep._command.optimizers import Setting as Setting
from mu2_optax.sweep._command.optimizers import make_optimizer as make_paper_optimizer


def at_params(state: Any, params: Any) -> Any:
    """The evaluation rule of most optimizers."""
    del state
    return params


class Optimizer(NamedTuple):
    """An optimizer.

    Attributes:
      title: Its name in words.
      make: From a rate, a number or a tracer, and a `Setting` to the transform. Those that find
        their rate multiply it by the one that is given.
      evaluate: From (state, params) to the params to evaluate.
      gradients: Gradient evaluations of one step.
      share: The share of the batch that the correction is taken on.
    """

    title: str
    make: Callable[[Any, Setting], Any]
    evaluate: Callable[[Any, Any], Any] = at_params
    gradients: float = 1
    share: float = 1.0


def _paper(name: str, title: str, gradients: int = 1) -> Optimizer:
    """One of those that the command knows too."""
    make = lambda rate, s: make_paper_optimizer(name, rate, s)
    return Optimizer(title, make, gradients=gradients)


def _plain(
    title: str,
    make: Callable[[Any], Any],
    evaluate: Callable[[Any, Any], Any] = at_params,
) -> Optimizer:
    """One at a constant rate, projected after each step if there is a projection."""

    def made(rate: Any, setting: Setting) -> Any:
        inner = optax.with_extra_args_support(make(rate))
        project = setting.projection
        return inner if project is None else mu2_optax.projected(inner, project)

    return Optimizer(title, made, evaluate)


def _scheduled(
    title: str,
    make: Callable[[Any, int], Any],
    evaluate: Callable[[Any, Any], Any] = at_params,
) -> Optimizer:
    """One whose rate follows the steps of the run, on no set."""

    def made(rate: Any, setting: Setting) -> Any:
        if setting.steps is None or setting.projection is not None:
            raise ValueError(
                f"{title} needs `steps` and no `projection`, got {setting.steps} and "
                f"{setting.projection}; choose an optimizer with a constant rate."
            )
        return make(rate, setting.steps)

    return Optimizer(title, made, evaluate)


def _schedule_free(title: str, make: Callable[..., Any]) -> Optimizer:
    """Evaluated at its average."""
    made = lambda rate, s: make(rate, s.steps, s.projection)
    return Optimizer(title, made, contrib.schedule_free_eval_params)


def _auto(title: str, **options: Any) -> Optimizer:
    """``mu2_auto``, whose rate is its factor."""
    make = lambda rate, s: mu2_optax.mu2_auto(first_step=rate, projection=s.projection, **options)
    return Optimizer(title, make, mu2_optax.eval_params)


def _measured(rate: Any, setting: Setting) -> Any:
    momentum = dataclasses.replace(setting.momentum, beta=mu2_optax.measured_beta())
    return mu2_optax.mu2_sgd(rate, momentum, projection=setting.projection)


OPTIMIZERS = {
    "mu2_auto": _auto("mu2_auto"),
    "mu2_auto_spectral": _auto("mu2_auto, spectral", spectral=True),
    "mu2_sgd": _paper("mu2_sgd", "μ²-SGD", gradients=2),
    "mu2_sgd_measured": Optimizer("μ²-SGD, β measured", _measured, gradients=2),
    "mu2_extra_sgd": _paper("mu2_extra_sgd", "μ²-ExtraSGD", gradients=3),
    "storm": _paper("storm", "STORM", gradients=2),
    "anytime_sgd": _paper("anytime_sgd", "Anytime-SGD"),
    "sgd": _paper("sgd", "SGD"),
    "momentum": _paper("momentum", "momentum SGD"),
    "adam": _paper("adam", "Adam"),
    "mu2_adam": Optimizer(
        "μ²-Adam",
        lambda rate, s: mu2_optax.mu2_adam(rate, s.momentum, projection=s.projection),
        gradients=2,
    ),
    "schedule_free_sgd": _schedule_free("schedule-free SGD", recipes.schedule_free_sgd),
    "schedule_free_adamw": _schedule_free("schedule-free AdamW", recipes.schedule_free_adamw),
    "prodigy": _plain("Prodigy", contrib.prodigy),
    "dog_last": _plain("DoG", contrib.dog),
    "anytime_exact": _paper("anytime_sgd", "exact gradient"),  # for tasks with that of all data
    "adamw_cosine": _scheduled("AdamW, cosine", lambda rate, t: optax.adamw(cosine(rate, t))),
    "nadamw_cosine": _scheduled("NadamW, cosine", recipes.nadamw),
    "muon_cosine": _scheduled("Muon, cosine", recipes.muon),
    "sgd_cosine": _scheduled(
        "SGD, Nesterov, cosine",
        lambda rate, t: optax.sgd(cosine(rate, t), momentum=0.9, nesterov=True),
    ),
    "prodigy_cosine": _scheduled(
        "Prodigy, cosine", lambda rate, t: contrib.prodigy(cosine(rate, t, warmup=0.0))
    ),
    "adamw_wsd": _scheduled(
        "AdamW, warm-up, stable, decay",
        lambda rate, t: optax.adamw(recipes.stable_then_decay(rate, t)),
    ),
    "schedule_free_plus": _scheduled(
        "ScheduleFree+",
        lambda rate, t: schedule_free_plus(rate, round(recipes.WARMUP * t)),
        lambda state, params: state.x,
    ),
    "momo_adam": _plain("MoMo-Adam", contrib.momo_adam),
    "mechanic": _scheduled(
        "Mechanic, AdamW, cosine", lambda rate, t: contrib.mechanize(optax.adamw(cosine(rate, t)))
    ),
    "dog": _plain(
        "DoG, averaged",
        lambda rate: recipes.averaged(contrib.dog(rate)),
        lambda state, params: state.average,
    ),
    "dowg": _plain("DoWG", contrib.dowg),
    "dadapt_adamw": _plain("D-Adapt AdamW", contrib.dadapt_adamw),
}
# Optimizers whose correction is taken on a part of the batch.
PARTS = {
    f"{name}_part_{parts}": OPTIMIZERS[name]._replace(
        title=f"{OPTIMIZERS[name].title}, 1/{parts}", gradients=1 + 1 / parts, share=1 / parts
    )
    for name in ("mu2_sgd", "mu2_sgd_measured")
    for parts in (2, 4, 8, 16)
}
OPTIMIZERS |= PARTS
