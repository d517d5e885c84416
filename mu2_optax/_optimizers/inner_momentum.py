"""What can be found out about an optimizer that is given as ``inner``."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

_FIRST_MOMENTS = ("mu", "trace", "ema", "exp_avg", "m", "m1")
"""The names under which Optax's states keep a mean of past gradients."""


def warn_of_momentum(inner: optax.GradientTransformation) -> None:
    """Warns if ``inner`` visibly has a momentum of its own.

    That is: its state holds a first moment, and its step for a gradient of zero depends on the
    previous gradient. An optimizer that is built from tracers, or that cannot run on a vector of
    length one (such as ``optax.masked`` with a tree), cannot be tried out, and passes.
    """
    if _has_momentum(optax.with_extra_args_support(inner)):
        warnings.warn(
            "`inner` should have no momentum of its own, got an optimizer that has one: the "
            "averaging of `mu2` takes its place, and the two together may miss the minimum. "
            "Use `mu2_adam`, `optax.adam(learning_rate, b1=0.0)` or `optax.sgd` "
            "without `momentum`; or use γ = 1 and filter this warning.",
            stacklevel=3,
        )


def _has_momentum(inner: optax.GradientTransformationExtraArgs) -> bool:
    zero = np.zeros(1, np.float32)  # no tracer, wherever this is called

    def step_after(gradient: float) -> Any:
        _, state = inner.update(jnp.full(1, gradient), inner.init(zero), zero)
        step, _ = inner.update(zero, state, zero)
        return step

    try:
        state = jax.eval_shape(inner.init, zero)
        if not any(optax.tree.get_all_with_path(state, name) for name in _FIRST_MOMENTS):
            return False
        with jax.ensure_compile_time_eval():
            differs = jax.jit(lambda: jnp.any(step_after(1.0) != step_after(-1.0)))()
    except Exception:  # whatever it is that `inner` needs: it cannot be tried out
        return False
    return not isinstance(differs, jax.core.Tracer) and bool(differs)
