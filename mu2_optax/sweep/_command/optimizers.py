"""The optimizers that the command line knows, all called in the same way.

Each also has the line of Python that makes it, which the report shows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import optax
from optax import contrib

from mu2_optax import (
    DoubleMomentum,
    anytime_sgd,
    eval_params,
    fixed_momentum,
    mu2_auto,
    mu2_extra_sgd,
    mu2_sgd,
    projected,
    storm,
)


class Setting(NamedTuple):
    """What an optimizer may want to know besides its learning rate.

    Attributes:
      momentum: The momenta, for those that have them.
      projection: What keeps the params in their set, or None.
      steps: How long the run will be; None if nobody knows.
    """

    momentum: DoubleMomentum = fixed_momentum()
    projection: Callable[[Any], Any] | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Contender:
    """An optimizer of the command.

    Attributes:
      summary: What it is, in a line.
      make: A function of (learning rate, setting) that returns the transform, which may leave the
        projection to `make_optimizer` if it is one of Optax.
      python: The call that makes it, with ``{learning_rate}`` where the rate goes;
        `python_template` fills in the rest.
      untouched: The rate that was published as its default; None if there is none.
      has_rate: Whether there is a learning rate to choose.
      needs_steps: Whether it must be told how long the run will be.
      in_ball: Whether it can keep the params in a ball.
    """

    summary: str
    make: Callable[[Any, Setting], optax.GradientTransformation]
    python: str
    untouched: float | None = None
    has_rate: bool = True
    needs_steps: bool = False
    in_ball: bool = True

    @property
    def of_optax(self) -> bool:
        """Whether it comes from Optax, and is projected from outside."""
        return self.python.startswith("optax.")


class Optimizer(optax.GradientTransformationExtraArgs):
    """What a task gets: a transform that also says where to evaluate."""

    def eval_params(self, state: Any, params: Any) -> Any:
        """The params to evaluate, as `evaluated` finds them."""
        return evaluated(state, params)


def _adamw_cosine(learning_rate: Any, setting: Setting) -> optax.GradientTransformation:
    """AdamW with a linear warm-up and half a cosine down to zero."""
    assert setting.steps is not None  # `needs_steps`
    warmup = _warmup(setting.steps)
    shape = optax.warmup_cosine_decay_schedule(0.0, 1.0, warmup, setting.steps)
    return optax.adamw(lambda count: learning_rate * shape(count + 1))


def _warmup(steps: int) -> int:
    """The steps of a warm-up: 5 % of all."""
    return max(1, round(0.05 * steps))


# The step of each is the learning rate itself, never multiplied by α, so that the rates of
# different optimizers can be compared; Prodigy multiplies the rate that it finds by it.
OPTIMIZERS: dict[str, Contender] = {
    "mu2_auto": Contender(
        "nothing to choose: no learning rate, no schedule, no momenta",
        lambda lr, setting: mu2_auto(projection=setting.projection),
        "mu2_optax.mu2_auto({projection})",
        has_rate=False,
    ),
    "mu2_auto_spectral": Contender(
        "the same with orthogonal steps along matrices, spectral=True",
        lambda lr, setting: mu2_auto(spectral=True),
        "mu2_optax.mu2_auto(spectral=True)",
        has_rate=False,
        in_ball=False,
    ),
    "adamw_cosine": Contender(
        "AdamW with a warm-up over 5 % of the steps and cosine decay to 0",
        _adamw_cosine,
        "optax.adamw(lambda count: {learning_rate} * "
        "optax.warmup_cosine_decay_schedule(0.0, 1.0, {warmup}, {steps})(count + 1))",
        untouched=1e-3,
        needs_steps=True,
    ),
    "schedule_free_adamw": Contender(
        "schedule-free AdamW with a warm-up over 5 % of the steps, evaluated at its average",
        lambda lr, setting: contrib.schedule_free_adamw(
            lr, warmup_steps=setting.steps and _warmup(setting.steps)
        ),
        "optax.contrib.schedule_free_adamw({learning_rate}, warmup_steps={warmup})",
        untouched=2.5e-3,
        in_ball=False,
    ),
    "prodigy": Contender(
        "Prodigy: finds a rate, which is multiplied by that of the table",
        lambda lr, setting: contrib.prodigy(lr),
        "optax.contrib.prodigy({learning_rate})",
        untouched=1.0,
    ),
    "muon": Contender(
        "Muon: orthogonal steps for matrices, Adam for the rest",
        lambda lr, setting: contrib.muon(lr),
        "optax.contrib.muon({learning_rate})",
        untouched=0.02,
    ),
    "mu2_sgd": Contender(
        "μ²-SGD: corrected momentum and query averaging (2 gradients a step)",
        lambda lr, setting: mu2_sgd(lr, setting.momentum, projection=setting.projection),
        "mu2_optax.mu2_sgd({learning_rate}, {momentum}, {projection})",
    ),
    "mu2_extra_sgd": Contender(
        "μ²-ExtraSGD: the accelerated form (3 gradients a step)",
        lambda lr, setting: mu2_extra_sgd(
            lr, setting.momentum, projection=setting.projection, weighted_steps=False
        ),
        "mu2_optax.mu2_extra_sgd({learning_rate}, {momentum}, {projection}, weighted_steps=False)",
    ),
    "storm": Contender(
        "STORM: corrected momentum alone (2 gradients a step)",
        lambda lr, setting: storm(lr, setting.momentum.beta, projection=setting.projection),
        "mu2_optax.storm({learning_rate}, {momentum}.beta, {projection})",
    ),
    "anytime_sgd": Contender(
        "Anytime-SGD: query averaging alone",
        lambda lr, setting: anytime_sgd(lr, setting.momentum, projection=setting.projection),
        "mu2_optax.anytime_sgd({learning_rate}, {momentum}, {projection})",
    ),
    "sgd": Contender("SGD", lambda lr, setting: optax.sgd(lr), "optax.sgd({learning_rate})"),
    "momentum": Contender(
        "SGD with momentum 0.9, dampening 0.9",
        lambda lr, setting: optax.chain(optax.ema(0.9, debias=False), optax.sgd(lr)),
        "optax.chain(optax.ema(0.9, debias=False), optax.sgd({learning_rate}))",
    ),
    "adam": Contender(
        "Adam",
        lambda lr, setting: optax.adam(lr),
        "optax.adam({learning_rate})",
        untouched=1e-3,
    ),
}

PAPER = ("mu2_sgd", "mu2_extra_sgd", "storm", "anytime_sgd", "sgd", "momentum", "adam")
# Names for several at once.
GROUPS = {
    "default": ("mu2_auto", "mu2_auto_spectral", "adamw_cosine", "schedule_free_adamw", "prodigy"),
    "paper": ("mu2_auto", *PAPER),
    "all": tuple(OPTIMIZERS),
}


def make_optimizer(name: str, learning_rate: Any, setting: Setting = Setting()) -> Optimizer:
    """Makes one of the `OPTIMIZERS`; those without a learning rate ignore it.

    Call it as ``tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)``, and evaluate at
    ``tx.eval_params(state, params)``.

    Examples:
      >>> tx = make_optimizer("sgd", 0.1)
      >>> tx.update(1.0, tx.init(1.0), 1.0, grad_fn=None, batch=None)[0]
      -0.1
    """
    tx = OPTIMIZERS[name].make(learning_rate, setting)
    if setting.projection is not None and OPTIMIZERS[name].of_optax:
        tx = projected(tx, setting.projection)
    return Optimizer(*optax.with_extra_args_support(tx))


def evaluated(state: Any, params: Any) -> Any:
    """What to evaluate: the average that an optimizer keeps beside the params, or the params."""
    of_optax = lambda node: isinstance(node, contrib.ScheduleFreeState)
    for node in filter(of_optax, jax.tree.leaves(state, is_leaf=of_optax)):
        return contrib.schedule_free_eval_params(node, params)
    return eval_params(state, params, default=params)


def python_template(name: str, radius: float | None, steps: int | None) -> str:
    """The call that makes one of the `OPTIMIZERS`, with ``{learning_rate}`` in it.

    ``radius`` is that of the ball that holds the params.

    Examples:
      >>> python_template("sgd", None, None), python_template("mu2_sgd", None, None)
      ('optax.sgd({learning_rate})', 'mu2_optax.mu2_sgd({learning_rate})')
    """
    ball = "" if radius is None else f"mu2_optax.onto_l2_ball({radius!r})"
    line = OPTIMIZERS[name].python
    line = line.replace("{warmup}", str(steps and _warmup(steps))).replace("{steps}", str(steps))
    if OPTIMIZERS[name].of_optax:
        return f"mu2_optax.projected({line}, {ball})" if ball else line
    if ball:
        line = line.replace("{projection}", f"projection={ball}")
        return line.replace("{momentum}", "mu2_optax.linear_momentum()")
    line = line.replace(", {projection}", "").replace("{projection}", "")
    if name == "mu2_sgd":  # whose default they are
        line = line.replace(", {momentum}", "")
    return line.replace("{momentum}", "mu2_optax.fixed_momentum()")
