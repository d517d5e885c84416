"""The optimizers that the command line knows, each as the line of Python that makes it."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from optax import contrib

import mu2_optax
from mu2_optax import DoubleMomentum, eval_params, fixed_momentum, projected


class Setting(NamedTuple):
    """What an optimizer may want to know: the momenta, what keeps params in a set, the steps."""

    momentum: DoubleMomentum = fixed_momentum()
    projection: Callable[[Any], Any] | None = None
    steps: int | None = None

    @property
    def names(self) -> dict[str, Any]:
        """What the names in a call stand for; a warm-up is 5 % of all steps."""
        warmup = None if self.steps is None else max(1, round(0.05 * self.steps))
        return self._asdict() | {"warmup": warmup}


class Contender(NamedTuple):
    """An optimizer of the command, and the rate that was published as its default, if any.

    ``python`` is the call that makes it, of ``learning_rate`` and the names of a `Setting`: what
    runs, and what a report shows.
    """

    summary: str
    python: str
    untouched: float | None = None

    def takes(self, name: str) -> bool:
        """Whether the call needs ``learning_rate``, ``steps``, ..."""
        return re.search(rf"\b{name}\b", self.python) is not None

    @property
    def is_projected(self) -> bool:
        """Whether it comes from Optax, and is projected from outside."""
        return self.python.startswith("optax.") and "schedule_free" not in self.python

    def line(self, radius: float | None, steps: int | None) -> str:
        """The call, of ``learning_rate`` alone; ``radius`` is that of the ball for the params."""
        ball = "" if radius is None else f"mu2_optax.onto_l2_ball({radius!r})"
        given = rf"\1projection={ball}" if ball else ""
        line = re.sub(r"(, )?projection=projection", given, self.python)
        momenta = "fixed_momentum" if radius is None else "linear_momentum"
        names = Setting(steps=steps).names | {"momentum": f"mu2_optax.{momenta}()"}
        for name in ("momentum", "warmup", "steps"):
            line = re.sub(rf"\b{name}\b", str(names[name]), line)
        return f"mu2_optax.projected({line}, {ball})" if ball and self.is_projected else line


# The step of each is the learning rate itself, never multiplied by α, so that the rates of
# different optimizers can be compared; Prodigy multiplies the rate that it finds by it.
_CALLS: dict[str, tuple[Any, ...]] = {
    "mu2_auto": ("nothing to choose: no learning rate, no schedule, no momenta",
        "mu2_optax.mu2_auto(projection=projection)"),
    "mu2_auto_spectral": ("the same with orthogonal steps along matrices, spectral=True",
        "mu2_optax.mu2_auto(spectral=True)"),
    "adamw_cosine": ("AdamW with a warm-up over 5 % of the steps and cosine decay to 0",
        "optax.adamw(lambda count: learning_rate * "
        "optax.warmup_cosine_decay_schedule(0.0, 1.0, warmup, steps)(count + 1))", 1e-3),
    "schedule_free_adamw": ("schedule-free AdamW with such a warm-up, evaluated at its average",
        "optax.contrib.schedule_free_adamw(learning_rate, warmup_steps=warmup)", 2.5e-3),
    "prodigy": ("Prodigy: finds a rate, which is multiplied by that of the table",
        "optax.contrib.prodigy(learning_rate)", 1.0),
    "muon": ("Muon: orthogonal steps for matrices, Adam for the rest",
        "optax.contrib.muon(learning_rate)", 0.02),
    "mu2_sgd": ("μ²-SGD: corrected momentum and query averaging (2 gradients a step)",
        "mu2_optax.mu2_sgd(learning_rate, momentum, projection=projection)"),
    "mu2_extra_sgd": ("μ²-ExtraSGD: the accelerated form (3 gradients a step)",
        "mu2_optax.mu2_extra_sgd(learning_rate, momentum, projection=projection, "
        "weighted_steps=False)"),
    "storm": ("STORM: corrected momentum alone (2 gradients a step)",
        "mu2_optax.storm(learning_rate, momentum.beta, projection=projection)"),
    "anytime_sgd": ("Anytime-SGD: query averaging alone",
        "mu2_optax.anytime_sgd(learning_rate, momentum, projection=projection)"),
    "sgd": ("SGD", "optax.sgd(learning_rate)"),
    "momentum": ("SGD with momentum 0.9, dampening 0.9",
        "optax.chain(optax.ema(0.9, debias=False), optax.sgd(learning_rate))"),
    "adam": ("Adam", "optax.adam(learning_rate)", 1e-3),
}  # fmt: skip
OPTIMIZERS = {name: Contender(*entry) for name, entry in _CALLS.items()}
PAPER = ("mu2_sgd", "mu2_extra_sgd", "storm", "anytime_sgd", "sgd", "momentum", "adam")
# Names for several at once.
GROUPS = {
    "default": ("mu2_auto", "mu2_auto_spectral", "adamw_cosine", "schedule_free_adamw", "prodigy"),
    "paper": ("mu2_auto", *PAPER),
    "all": tuple(OPTIMIZERS),
}


class Optimizer(optax.GradientTransformationExtraArgs):
    """What a task gets: a transform that also says where to evaluate."""

    def eval_params(self, state: Any, params: Any) -> Any:
        """The average that an optimizer keeps beside the params, or the params."""
        of_optax = lambda node: isinstance(node, contrib.ScheduleFreeState)
        for node in filter(of_optax, jax.tree.leaves(state, is_leaf=of_optax)):
            return contrib.schedule_free_eval_params(node, params)
        return eval_params(state, params, default=params)


def make_optimizer(name: str, learning_rate: Any, setting: Setting = Setting()) -> Optimizer:
    """Makes one of the `OPTIMIZERS`; those without a learning rate ignore it.

    Call it as ``tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)``, and evaluate at
    ``tx.eval_params(state, params)``.
    """
    known = {"mu2_optax": mu2_optax, "optax": optax, "learning_rate": learning_rate}
    tx = eval(OPTIMIZERS[name].python, known | setting.names)
    if setting.projection is not None and OPTIMIZERS[name].is_projected:
        tx = projected(tx, setting.projection)
    return Optimizer(*optax.with_extra_args_support(tx))
