"""Errors for bad input: each names the argument, the rule, the value and the remedy.

Everything here runs on Python values and on shapes, at trace time: tracers pass unread, and a
compiled step pays nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax


def check_unit_interval(name: str, value: Any) -> None:
    """Requires a concrete number to lie in [0, 1]; schedules pass."""
    if not callable(value) and _is_concrete(name, value, "a number or a schedule"):
        _check_single(name, value)
        if not 0 <= float(value) <= 1:  # NaN fails the comparison too
            raise ValueError(
                f"`{name}` must lie in [0, 1], got {value}; pass a schedule for a value that "
                "changes with time."
            )


def check_rate(name: str, value: Any) -> None:
    """Requires a concrete number to be finite and not negative; schedules pass."""
    if not callable(value) and _is_concrete(name, value, "a number or a schedule"):
        _check_single(name, value)
        check_nonnegative(
            name,
            value,
            "pass a number such as 0.1, or a schedule for a value that changes with time.",
        )


def check_nonnegative(name: str, value: Any, remedy: str) -> None:
    """Requires concrete numbers to be finite and not negative."""
    if _is_concrete(name, value) and not (np.all(np.asarray(value) >= 0) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and not negative, got {value}; {remedy}")


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Requires concrete numbers to be finite and greater than 0."""
    if _is_concrete(name, value) and not (np.all(np.asarray(value) > 0) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and greater than 0, got {value}; {remedy}")


def check_at_least_one(name: str, value: Any, remedy: str) -> None:
    """Requires concrete numbers to be finite and at least 1."""
    if _is_concrete(name, value) and not (np.all(np.asarray(value) >= 1) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and at least 1, got {value}; {remedy}")


def check_steps(name: str, value: Any) -> None:
    """Requires concrete numbers to be whole and at least 1."""
    if not _is_concrete(name, value):
        return
    number = np.asarray(value)
    if not (np.all(number >= 1) and _finite(value) and np.all(number == np.floor(number))):
        raise ValueError(
            f"`{name}` must be a whole number of at least 1, got {value}; it counts steps."
        )


def check_iterations(name: str, value: Any) -> None:
    """Requires an integer of at least 1, because a loop of that length is compiled."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"`{name}` must be an integer of at least 1, got {value!r}.")


def check_probability(name: str, value: Any) -> None:
    """Requires a concrete number to lie strictly between 0 and 1."""
    if _is_concrete(name, value) and not (0 < float(value) < 1):
        raise ValueError(
            f"`{name}` must lie strictly between 0 and 1, got {value}; it is the chance that the "
            "bound fails, for example 0.05."
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Requires ``value`` to be one of ``choices``."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"`{name}` must be one of {listed}, got {value!r}.")


def check_transform(name: str, value: Any) -> None:
    """Requires an Optax transform where one is expected."""
    if not isinstance(value, optax.GradientTransformation):
        raise TypeError(
            f"`{name}` must be an Optax optimizer such as optax.adam(1e-3), got {value!r}; for "
            "plain SGD with a learning rate use `mu2_sgd(learning_rate)`."
        )


def check_callable(name: str, value: Any, example: str) -> None:
    """Requires ``value`` to be a function."""
    if not callable(value):
        raise TypeError(f"`{name}` must be a function such as {example}, got {value!r}.")


def check_params(params: Any) -> None:
    """Requires a tree of floating-point parameters."""
    if params is None:
        raise ValueError(
            "`params` must be given, got None: call `tx.update(grads, state, params, ...)`."
        )
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        dtype = getattr(leaf, "dtype", type(leaf))
        if not (isinstance(leaf, float | complex) or jnp.issubdtype(dtype, jnp.inexact)):
            kind = dtype.name if hasattr(dtype, "name") else repr(leaf)
            raise TypeError(
                f"`params` must hold floating-point leaves, got {kind} at {_show(path)}; keep "
                "integers and functions out of params: close over them, put them in `batch`, or "
                "filter them out (`eqx.filter(model, eqx.is_inexact_array)` in Equinox)."
            )


def check_whole(params: Any) -> None:
    """Requires the whole tree of parameters, because ``grad_fn`` is about to be called with it."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params, is_leaf=_is_masked):
        if _is_masked(leaf):
            raise ValueError(
                f"`params` must be the whole tree, got MaskedNode at {_show(path)}: `grad_fn` "
                "cannot be evaluated on a part of the tree. Put `optax.masked` or "
                "`optax.partition` after the corrected momentum or inside `inner`; or pass "
                "`prev_grads` instead, with `optax.masked(..., mask_compatible_extra_args=True)`."
            )


def check_stored(params: Any, stored: Any) -> None:
    """Requires ``params`` to have the structure and shapes the state was made for."""
    difference = _difference(params, stored)
    if difference:
        raise ValueError(
            f"`params` must have the structure of the params given to `init`: {difference}. Call "
            "`init` again after changing the model, and pass the same tree to `init` and `update`."
        )


def check_gradient(name: str, grads: Any, params: Any) -> None:
    """Requires ``grads`` to be a gradient of ``params``: the same structure and shapes."""
    if isinstance(grads, tuple) and len(grads) == 2 and _difference(grads, params):
        for place, form in ((1, "(value, grads)"), (0, "(grads, aux)")):
            if not _difference(grads[place], params):
                raise ValueError(
                    f"`{name}` must be the gradients alone, got a pair {form}; take element "
                    f"[{place}] of it, or use `jax.grad(loss)` without `has_aux`."
                )
    check_like(
        name, grads, params, "It is the gradient of the loss with respect to the whole of params."
    )


def check_like(name: str, tree: Any, params: Any, remedy: str) -> None:
    """Requires ``tree`` to have the structure and shapes of ``params``."""
    difference = _difference(tree, params)
    if difference:
        raise ValueError(
            f"`{name}` must have the structure and shapes of params: {difference}. {remedy}"
        )


def check_leading_axis(name: str, tree: Any, least: int, remedy: str) -> int:
    """Requires a leading axis of one length in every leaf, and returns that length."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
    lengths = {shape[0] if shape else 0 for shape in shapes}
    if len(lengths) != 1 or min(lengths) < least:
        raise ValueError(
            f"`{name}` must have one leading axis, of the same length of at least {least} in every "
            f"leaf, got leaves of shapes {shapes}; {remedy}"
        )
    return lengths.pop()


def _is_concrete(name: str, value: Any, kind: str = "a number") -> bool:
    """Whether ``value`` can be read: a number, and not a tracer."""
    if isinstance(value, jax.core.Tracer):
        return False
    if isinstance(value, bool) or not isinstance(
        value, int | float | np.generic | np.ndarray | jax.Array
    ):
        raise TypeError(f"`{name}` must be {kind}, got {value!r}.")
    return True


def _check_single(name: str, value: Any) -> None:
    if np.ndim(value) != 0:
        raise ValueError(
            f"`{name}` must be a single number, got an array of shape {np.shape(value)}; use "
            "`jax.vmap` over the function that builds the optimizer to try several values at once."
        )


def _finite(value: Any) -> bool:
    return bool(np.all(np.isfinite(np.asarray(value, dtype=float))))


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _show(path: Any) -> str:
    return jax.tree_util.keystr(path) or "the root"


def _difference(tree: Any, reference: Any) -> str:
    """Where ``tree`` departs from ``reference``, or an empty string."""
    shapes, expected = _shapes(tree), _shapes(reference)
    for place in expected:
        if place not in shapes:
            return f"there is no leaf at {place}"
        if shapes[place] != expected[place]:
            return f"the leaf at {place} has shape {shapes[place]}, expected {expected[place]}"
    for place in shapes:
        if place not in expected:
            return f"there is an unexpected leaf at {place}"
    ours: object = jax.tree.structure(tree)
    theirs: object = jax.tree.structure(reference)
    return "" if ours == theirs else f"its structure is {ours}, expected {theirs}"


def _shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    return {
        _show(path): jnp.shape(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
