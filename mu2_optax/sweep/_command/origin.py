"""How the command made its results: the command line, and each optimizer as a line of Python."""

from collections.abc import Mapping
from dataclasses import replace

from mu2_optax.sweep import SweepResult
from mu2_optax.sweep._command.optimizers import OPTIMIZERS, WARMUP
from mu2_optax.sweep._command.tasks import curve_steps

_RATE = "{learning_rate}"  # which the report replaces

# The call that makes each optimizer; the run fills in `{momentum}`, `{projection}`, `{steps}`
# and `{warmup}`.
_OWN = {
    "mu2_auto": "mu2_optax.mu2_auto({projection})",
    "mu2_auto_spectral": "mu2_optax.mu2_auto(spectral=True)",
    "mu2_sgd": f"mu2_optax.mu2_sgd({_RATE}, {{momentum}}, {{projection}})",
    "mu2_extra_sgd": f"mu2_optax.mu2_extra_sgd({_RATE}, {{momentum}}, {{projection}}, "
    "weighted_steps=False)",
    "storm": f"mu2_optax.storm({_RATE}, {{momentum}}.beta, {{projection}})",
    "anytime_sgd": f"mu2_optax.anytime_sgd({_RATE}, {{momentum}}, {{projection}})",
}
_OF_OPTAX = {
    "sgd": f"optax.sgd({_RATE})",
    "momentum": f"optax.chain(optax.ema(0.9, debias=False), optax.sgd({_RATE}))",
    "adam": f"optax.adam({_RATE})",
    "adamw_cosine": f"optax.adamw(lambda count: {_RATE} * "
    "optax.warmup_cosine_decay_schedule(0.0, 1.0, {warmup}, {steps})(count + 1))",
    "schedule_free_adamw": f"optax.contrib.schedule_free_adamw({_RATE}, warmup_steps={{warmup}})",
    "prodigy": f"optax.contrib.prodigy({_RATE})",
    "muon": f"optax.contrib.muon({_RATE})",
}


def with_origin(
    results: Mapping[str, SweepResult],
    command: str,
    radius: float | None,
    steps: int | None,
    *,
    built_in: bool,
) -> dict[str, SweepResult]:
    """Results whose ``info`` says how to make them again.

    Args:
      results: The results by label.
      command: The command line.
      radius: The radius of the ball that holds the params, or None.
      steps: The number of steps, if it is known.
      built_in: Whether the task is a built-in one, whose curves are those of `curve_steps`.

    Returns:
      The results with ``command``, ``python`` (for the optimizers of the command: the call that
      makes it, with ``{learning_rate}`` where the rate goes) and ``curve_steps`` in ``info``.
    """
    told = {}
    for label, result in results.items():
        info = result.info | {"command": command}
        if label in OPTIMIZERS:
            info["python"] = python_template(label, radius, steps)
        if built_in and steps is not None:
            info["curve_steps"] = curve_steps(steps)
        told[label] = replace(result, info=info)
    return told


def python_template(name: str, radius: float | None, steps: int | None) -> str:
    """The call that makes one of the command's optimizers, with ``{learning_rate}`` in it.

    Examples:
      >>> python_template("sgd", None, None), python_template("mu2_sgd", None, None)
      ('optax.sgd({learning_rate})', 'mu2_optax.mu2_sgd({learning_rate})')
    """
    ball = "" if radius is None else f"mu2_optax.onto_l2_ball({radius!r})"
    if name in _OF_OPTAX:
        warmup = None if steps is None else round(WARMUP * steps)
        if name == "schedule_free_adamw" and warmup is not None:
            warmup = max(1, warmup)
        line = _OF_OPTAX[name].replace("{warmup}", str(warmup)).replace("{steps}", str(steps))
        return f"mu2_optax.projected({line}, {ball})" if ball else line
    momentum = f"mu2_optax.{'linear' if ball else 'fixed'}_momentum()"
    line = _OWN[name].replace("{momentum}", momentum)
    return line.replace("{projection}", f"projection={ball}") if ball else _without(line)


def _without(line: str) -> str:
    """A call without its projection, and without the momenta if they are the default."""
    line = line.replace(", {projection}", "").replace("{projection}", "")
    return line.replace("mu2_sgd({learning_rate}, mu2_optax.fixed_momentum())", f"mu2_sgd({_RATE})")
