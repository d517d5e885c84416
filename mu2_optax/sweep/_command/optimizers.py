"""The optimizers that the command line knows, each as the line of Python that makes it."""

from typing import Any, NamedTuple

import jax
import optax
from optax import contrib

import mu2_optax
from mu2_optax import eval_params


class Contender(NamedTuple):
    """An optimizer of the command, and the rate that was published as its default, if any.

    ``python`` is the call that makes it, of ``learning_rate``, with fields for what `python_line`
    fills in.
    """

    python: str
    untouched: float | None = None


# The step of each is the learning rate itself, never multiplied by α, so that the rates of
# different optimizers can be compared; Prodigy multiplies the rate that it finds by it.
OPTIMIZERS = {
    "mu2_auto": Contender("mu2_optax.mu2_auto({projection})"),  # nothing to choose
    "mu2_auto_spectral": Contender("mu2_optax.mu2_auto(spectral=True)"),
    "adamw_cosine": Contender(
        "optax.adamw(lambda count: learning_rate * "
        "optax.warmup_cosine_decay_schedule(0.0, 1.0, {warmup}, {steps})(count + 1))", 1e-3),
    "schedule_free_adamw": Contender(  # is evaluated at its average
        "optax.contrib.schedule_free_adamw(learning_rate, warmup_steps={warmup})", 2.5e-3),
    "prodigy": Contender("optax.contrib.prodigy(learning_rate)", 1.0),
    "muon": Contender("optax.contrib.muon(learning_rate)", 0.02),
    "mu2_sgd": Contender("mu2_optax.mu2_sgd(learning_rate, {momentum}, {projection})"),
    "mu2_extra_sgd": Contender(
        "mu2_optax.mu2_extra_sgd(learning_rate, {momentum}, weighted_steps=False, {projection})"),
    "storm": Contender("mu2_optax.storm(learning_rate, {momentum}.beta, {projection})"),
    "anytime_sgd": Contender("mu2_optax.anytime_sgd(learning_rate, {momentum}, {projection})"),
    "sgd": Contender("optax.sgd(learning_rate)"),
    "momentum": Contender(  # with dampening
        "optax.chain(optax.ema(0.9, debias=False), optax.sgd(learning_rate))"),
    "adam": Contender("optax.adam(learning_rate)", 1e-3),
}  # fmt: skip
# Names for several at once.
GROUPS = {
    "default": ("mu2_auto", "mu2_auto_spectral", "adamw_cosine", "schedule_free_adamw", "prodigy"),
    "paper": ("mu2_auto", "mu2_sgd", "mu2_extra_sgd", "storm", "anytime_sgd", "sgd", "momentum",
              "adam"),
}  # fmt: skip


class Optimizer(optax.GradientTransformationExtraArgs):
    """What a task gets: a transform that also says where to evaluate."""

    def eval_params(self, state: Any, params: Any) -> Any:
        """The average that an optimizer keeps beside the params, or the params."""
        of_optax = lambda node: isinstance(node, contrib.ScheduleFreeState)
        for node in filter(of_optax, jax.tree.leaves(state, is_leaf=of_optax)):
            return contrib.schedule_free_eval_params(node, params)
        return eval_params(state, params, default=params)


def python_line(name: str, radius: float | None = None, steps: int | None = None) -> str:
    """The call that makes one of the `OPTIMIZERS`, of ``learning_rate`` alone.

    With a ``radius`` it keeps the params in that ball, with linear momenta; Optax's optimizers are
    projected from outside. Of ``steps``, 5 % are a warm-up.
    """
    ball = "" if radius is None else f"mu2_optax.onto_l2_ball({radius!r})"
    line = OPTIMIZERS[name].python.format(
        momentum=f"mu2_optax.{'linear' if ball else 'fixed'}_momentum()",
        projection=ball and f"projection={ball}",
        warmup=steps and max(1, round(0.05 * steps)),
        steps=steps,
    )
    line = line.replace(", )", ")")
    return f"mu2_optax.projected({line}, {ball})" if ball and ball not in line else line


def make_optimizer(
    name: str, learning_rate: Any, radius: float | None = None, steps: int | None = None
) -> Optimizer:
    """Makes one of the `OPTIMIZERS` from its line; those without a learning rate ignore it.

    Call it as ``tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)``, and evaluate at
    ``tx.eval_params(state, params)``.
    """
    known = {"mu2_optax": mu2_optax, "optax": optax, "learning_rate": learning_rate}
    return Optimizer(*optax.with_extra_args_support(eval(python_line(name, radius, steps), known)))
