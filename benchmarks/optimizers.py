"""The one list of optimizers: how each is made, where it is evaluated, what it is called.

All are called as ``tx.update(grads, state, params, value=loss, grad_fn=grad_fn, batch=batch)``, of
which each uses what it needs. The step of each is the learning rate itself, never multiplied by
α_t, as in the paper's experiments.
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


class Setting(NamedTuple):
    """What an optimizer may want to know besides its learning rate.

    Attributes:
      momentum: The momenta, for those that have them.
      projection: What keeps the params in their set, or None.
      steps: How long the run will be; None if nobody knows.
    """

    momentum: mu2_optax.DoubleMomentum = mu2_optax.fixed_momentum()
    projection: Callable[[Any], Any] | None = None
    steps: int | None = None


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
      untouched: The rate that was published as its default, or is customary.
      rates: The grid that self-tuning optimizers and their peers are compared on.
    """

    title: str
    make: Callable[[Any, Setting], Any]
    evaluate: Callable[[Any, Any], Any] = at_params
    gradients: float = 1
    share: float = 1.0
    untouched: float = 1.0
    rates: tuple[float, ...] = ()


def _ours(title: str, make: Callable[..., Any], gradients: int = 2, **options: Any) -> Optimizer:
    """One that has momenta and a set."""
    made = lambda rate, s: make(rate, s.momentum, projection=s.projection, **options)
    return Optimizer(title, made, gradients=gradients)


def _with_momentum(title: str, momentum: mu2_optax.DoubleMomentum) -> Optimizer:
    """μ²-SGD with momenta of its own."""
    made = lambda rate, s: mu2_optax.mu2_sgd(rate, momentum, projection=s.projection)
    return Optimizer(title, made, gradients=2)


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


PAPER = ("mu2_sgd", "mu2_extra_sgd", "storm", "anytime_sgd", "sgd", "momentum", "adam")
OPTIMIZERS = {
    "mu2_auto": _auto("mu2_auto"),
    "mu2_auto_spectral": _auto("mu2_auto, spectral", spectral=True),
    "mu2_sgd": _ours("μ²-SGD", mu2_optax.mu2_sgd),
    "mu2_sgd_measured": Optimizer("μ²-SGD, β measured", _measured, gradients=2),
    "mu2_extra_sgd": _ours("μ²-ExtraSGD", mu2_optax.mu2_extra_sgd, 3, weighted_steps=False),
    "storm": Optimizer(
        "STORM",
        lambda rate, s: mu2_optax.storm(rate, s.momentum.beta, projection=s.projection),
        gradients=2,
    ),
    "anytime_sgd": _ours("Anytime-SGD", mu2_optax.anytime_sgd, 1),
    "sgd": _plain("SGD", optax.sgd),
    "momentum": _plain(
        "momentum SGD", lambda rate: optax.chain(optax.ema(0.9, debias=False), optax.sgd(rate))
    ),
    "adam": _plain("Adam", optax.adam),
    "mu2_adam": _ours("μ²-Adam", mu2_optax.mu2_adam),
    "schedule_free_sgd": _schedule_free("schedule-free SGD", recipes.schedule_free_sgd),
    "schedule_free_adamw": _schedule_free("schedule-free AdamW", recipes.schedule_free_adamw),
    "prodigy": _plain("Prodigy", contrib.prodigy),
    "dog_last": _plain("DoG", contrib.dog),
    # The task's batches are then all of its data.
    "anytime_exact": _ours("exact gradient", mu2_optax.anytime_sgd, 1),
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

# μ²-SGD with every pair of momenta, and β = 1, the plain gradient.
MEASURED = mu2_optax.measured_beta()
MOMENTA = {
    "fixed γ, β = 0.9": mu2_optax.fixed_momentum(),
    "fixed γ, β measured": mu2_optax.fixed_momentum(beta=MEASURED),
    "fixed γ, no momentum of d": mu2_optax.fixed_momentum(beta=1.0),
    "linear γ, β = 1/t": mu2_optax.linear_momentum(),
    "linear γ, β measured": mu2_optax.linear_momentum(beta=MEASURED),
    "linear γ, no momentum of d": mu2_optax.linear_momentum(beta=1.0),
}
OPTIMIZERS |= {title: _with_momentum(title, own) for title, own in MOMENTA.items()}

# Of the self-tuning comparison: the rate of each as it comes, and those that it is tuned over; of
# ours, which have nothing to choose and are not tuned, the factors tried.
AUTO, SPECTRAL = OURS = ("mu2_auto", "mu2_auto_spectral")
REFERENCE = "adamw_cosine"  # whose calibrated run gives the targets
SMALL_RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)
LARGE_RATES = (3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
CHOICES: dict[str, tuple[float, tuple[float, ...]]] = {
    AUTO: (1.0, (0.01, 0.1, 1.0, 10.0, 100.0)),
    SPECTRAL: (1.0, (1.0,)),
    REFERENCE: (1e-3, SMALL_RATES),
    "schedule_free_adamw": (2.5e-3, (1e-3, 2.5e-3, 1e-2, 3e-2, 0.1, 0.3)),
    "nadamw_cosine": (1.75e-3, (5e-4, 1.75e-3, 5e-3, 1.75e-2, 5e-2, 0.15)),
    "muon_cosine": (1e-3, SMALL_RATES),
    "sgd_cosine": (0.1, LARGE_RATES),
    "prodigy_cosine": (1.0, FACTORS),
    "prodigy": (1.0, FACTORS),
    "adam": (1e-3, SMALL_RATES),
    "adamw_wsd": (1e-3, SMALL_RATES),
    "schedule_free_plus": (1.0, FACTORS),
    "momo_adam": (1e-2, SMALL_RATES),
    "mechanic": (1.0, FACTORS),
    "dog": (1.0, FACTORS),
    "dowg": (1.0, FACTORS),
    "dadapt_adamw": (1.0, FACTORS),
    "mu2_sgd": (0.1, LARGE_RATES),
}
PEERS = {
    name: OPTIMIZERS[name]._replace(untouched=untouched, rates=rates)
    for name, (untouched, rates) in CHOICES.items()
}
