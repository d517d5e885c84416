"""Errors for bad input: each names the argument, the rule, the value and the remedy.

Everything here looks at Python values and shapes, at trace time: the values of tracers are not
read, and a compiled step pays nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax


def check_unit_interval(name: str, value: Any) -> None:
    """Requires a single number, in [0, 1] if it is concrete; schedules pass."""
    if callable(value):
        return
    concrete = _is_concrete(name, value, "a number or a schedule")
    check_single(name, value)
    if concrete and not 0 <= float(value) <= 1:  # NaN fails the comparison too
        raise ValueError(
            f"`{name}` must lie in [0, 1], got {value}; pass a schedule for a value that "
            "changes with time."
        )


def check_below_one(name: str, value: Any, remedy: str) -> None:
    """Requires a single number in [0, 1) if it is concrete."""
    concrete = _is_concrete(name, value)
    check_single(name, value)
    if concrete and not 0 <= float(value) < 1:
        raise ValueError(f"`{name}` must lie in [0, 1), got {value}; {remedy}")


def check_rate(name: str, value: Any) -> None:
    """Requires a single number, finite and not negative if it is concrete; schedules pass."""
    if callable(value):
        return
    _is_concrete(name, value, "a number or a schedule")
    check_single(name, value)
    check_nonnegative(
        name, value, "pass a number such as 0.1, or a schedule for a value that changes with time."
    )


def check_nonnegative(name: str, value: Any, remedy: str) -> None:
    """Requires concrete numbers to be finite and not negative."""
    if _is_concrete(name, value) and not (np.all(np.asarray(value) >= 0) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and not negative, got {value}; {remedy}")


def check_positive(name: str, value: Any, remedy: str) -> None:
    """Requires concrete numbers to be finite and greater than 0."""
    if _is_concrete(name, value) and not (np.all(np.asarray(value) > 0) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and greater than 0, got {value}; {remedy}")


def check_at_least(name: str, value: Any, least: int, remedy: str) -> None:
    """Requires concrete numbers to be finite and at least ``least``."""
    if _is_concrete(name, value) and not (np.all(np.asarray(value) >= least) and _finite(value)):
        raise ValueError(f"`{name}` must be finite and at least {least}, got {value}; {remedy}")


def check_single(name: str, value: Any) -> None:
    """Requires one number, even of a tracer; an array would be broadcast against the params."""
    if np.ndim(value) != 0:
        raise ValueError(
            f"`{name}` must be a single number, got an array of shape {np.shape(value)}; use "
            "`jax.vmap` over the function that builds the optimizer to try several values at once."
        )


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
    check_integer(name, value, 1, "it counts whole rounds.")


def check_integer(name: str, value: Any, least: int, remedy: str) -> None:
    """Requires a Python or NumPy integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(
            f"`{name}` must be an integer of at least {least}, got {value!r}; {remedy}"
        )


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
    if isinstance(value, jax.Array):
        raise TypeError(
            f"`{name}` must be a function such as {example}, got {value!r}; with "
            f'`optax.inject_hyperparams`, say `static_args=("{name}",)`.'
        )
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
                "cannot be evaluated on a part of the tree. To freeze a part, use "
                "`mu2_optax.freeze(tx, mask)` instead of `optax.masked`, `optax.partition` or "
                "`optax.selective_transform`; for parts that move differently, put the partition "
                "inside: `mu2(optax.partition(...))`."
            )


def check_mask(mask: Any, weight_decay: Any) -> None:
    """Requires a weight decay with the mask that says which leaves decay."""
    if mask is not None and weight_decay is None:
        raise ValueError(
            f"`mask` must come with `weight_decay`, got {mask!r} alone: it says which leaves "
            "decay. To train a part of the params, use `mu2_optax.freeze`."
        )


def check_keyed(name: str, batch: Any) -> None:
    """Requires a pair of a key and something else."""
    if not (isinstance(batch, tuple | list) and len(batch) == 2):
        kind = type(batch).__name__
        raise ValueError(
            f"`batch` must be a pair (key, {name}), got {kind}; the key is a part of the sample, "
            "so that every evaluation of a step draws the same."
        )


def check_state(state: Any, kind: type) -> None:
    """Requires the state that the transform's own ``init`` makes."""
    if not isinstance(state, kind):
        raise TypeError(
            f"`state` must be the {kind.__name__} that `init` makes, got {type(state).__name__}: "
            "the order is `tx.update(grads, state, params)`. A state of another optimizer does not "
            "fit, and a checkpoint is restored into the structure of `tx.init(params)`."
        )


def check_stored(params: Any, stored: Any) -> None:
    """Requires ``params`` to have the structure and shapes the state was made for."""
    difference = _difference(params, stored)
    if difference:
        raise ValueError(
            f"`params` must have the structure of the params given to `init`: {difference}. Call "
            "`init` again after changing the model, and pass the same tree to `init` and `update`."
        )


def check_inner_state(inner: optax.GradientTransformation, w: Any, state: Any) -> None:
    """Requires the state of ``inner`` to have the structure that ``inner.init(w)`` has."""
    ours: object = jax.tree.structure(state)
    theirs: object = jax.tree.structure(jax.eval_shape(inner.init, w))
    if ours != theirs:
        raise ValueError(
            f"the state of `inner` must be one that `inner` has made, got {ours}, expected "
            f"{theirs}: it comes from another optimizer, for example from one with a number where "
            "this one has a schedule. Call `init` again, or build the optimizer that made it."
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
