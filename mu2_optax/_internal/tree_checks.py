"""Errors for bad params, gradients and states, worded like those of ``checks``."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from mu2_optax._internal.types import OptState, Params, Tree, Updates


def check_update(
    updates: Updates, state: OptState, params: Params, kind: type, like: str | None = None
) -> None:
    """Requires what an ``update`` needs: params, a state of this kind, and a gradient of params.

    ``like`` names the field of the state that has the shapes of the params given to ``init``.
    """
    check_params(params)
    check_state(state, kind)
    if like is not None:
        check_stored(params, getattr(state, like))
    check_gradient("grads", updates, params)


def check_params(params: Params) -> None:
    """Requires a tree of floating-point parameters."""
    if params is None:
        raise ValueError(
            "`params` must be given, got None: call `tx.update(grads, state, params, ...)`. For a "
            "library's loop that leaves them out, there is `show_average(mu2_auto(), every)`."
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


def check_whole(params: Params) -> None:
    """Requires the whole tree of parameters, because ``grad_fn`` is about to be called with it."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(params, is_leaf=_is_masked):
        if _is_masked(leaf):
            raise ValueError(
                f"`params` must be the whole tree, got MaskedNode at {_show(path)}: `grad_fn` "
                "cannot be evaluated on a part of the tree. To freeze a part, use "
                "`mu2_optax.hold_fixed(tx, mask)` instead of `optax.masked`, `optax.partition` or "
                "`optax.selective_transform`; for parts that move differently, put the partition "
                "inside: `mu2(optax.partition(...))`."
            )


def check_state(state: OptState, kind: type) -> None:
    """Requires the state that the transform's own ``init`` makes."""
    if not isinstance(state, kind):
        raise TypeError(
            f"`state` must be the {kind.__name__} that `init` makes, got {type(state).__name__}: "
            "the order is `tx.update(grads, state, params)`. A state of another optimizer does not "
            "fit, and a checkpoint must be restored into the structure of `tx.init(params)`."
        )


def check_stored(params: Params, stored: Any) -> None:
    """Requires ``params`` to have the structure and shapes the state was made for."""
    difference = _difference(params, stored)
    if difference:
        raise ValueError(
            f"`params` must have the structure of the params given to `init`: {difference}. Call "
            "`init` again after changing the model, and pass the same tree to `init` and `update`."
        )


class SettingError(ValueError):
    """A state that was made with other arguments, which the message names."""


def check_inner_state(inner: optax.GradientTransformation, w: Any, state: OptState) -> None:
    """Requires the state of ``inner`` to have the structure that ``inner.init(w)`` has."""
    ours: object = jax.tree.structure(state)
    theirs: object = jax.tree.structure(jax.eval_shape(inner.init, w))
    if ours != theirs:
        raise ValueError(
            f"the state of `inner` must be one that `inner` made, got {ours}, expected "
            f"{theirs}: it comes from another optimizer, for example from one with a number where "
            "this one has a schedule. Call `init` again, or build the optimizer that made it."
        )


def check_gradient(name: str, grads: Updates, params: Params) -> None:
    """Requires ``grads`` to be a gradient of ``params``: their structure, shapes and kinds."""
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
    _check_kinds(name, grads, params)


def check_like(name: str, tree: Tree, params: Params, remedy: str) -> None:
    """Requires ``tree`` to have the structure and shapes of ``params``."""
    difference = _difference(tree, params)
    if difference:
        raise ValueError(
            f"`{name}` must have the structure and shapes of params: {difference}. {remedy}"
        )


def check_leading_axis(name: str, tree: Tree, least: int, remedy: str) -> int:
    """Requires a leading axis of one length in every leaf, and returns that length."""
    shapes = [jnp.shape(leaf) for leaf in jax.tree.leaves(tree)]
    lengths = {shape[0] if shape else 0 for shape in shapes}
    if len(lengths) != 1 or min(lengths) < least:
        raise ValueError(
            f"`{name}` must have a leading axis, of the same length of at least {least}, in every "
            f"leaf, got leaves of shapes {shapes}; {remedy}"
        )
    return lengths.pop()


def _is_masked(node: Any) -> bool:
    return isinstance(node, optax.MaskedNode)


def _show(path: Any) -> str:
    return jax.tree_util.keystr(path) or "the root"


def _check_kinds(name: str, grads: Updates, params: Params) -> None:
    """Requires a gradient to hold numbers, and real ones where params are real."""
    leaves: list[Any] = jax.tree.leaves(params)
    for number, (g, p) in enumerate(zip(jax.tree.leaves(grads), leaves, strict=True)):
        dtype = getattr(g, "dtype", type(g))
        if dtype == jax.dtypes.float0:
            raise TypeError(
                f"`{name}` must hold numbers, got float0 at {_place(params, number)}: that is what "
                "`jax.grad(..., allow_int=True)` gives for integers. Keep integers out of params: "
                "close over them, or put them in `batch`."
            )
        if jnp.issubdtype(dtype, jnp.complexfloating) and not jnp.iscomplexobj(p):
            kind = jnp.dtype(dtype).name
            raise TypeError(
                f"`{name}` must be real where params are, got {kind} at {_place(params, number)}, "
                "where its imaginary part would be lost. Pass `jnp.real` of it, which is the "
                "gradient of a real loss, or make these params complex."
            )


def _place(tree: Tree, number: int) -> str:
    """Where the leaf of this number is."""
    return _show(jax.tree_util.tree_leaves_with_path(tree)[number][0])


def _difference(tree: Tree, reference: Any) -> str:
    """Where ``tree`` differs from ``reference``, or an empty string."""
    ours: Any
    leaves, ours = jax.tree.flatten(tree)
    others, theirs = jax.tree.flatten(reference)
    if ours == theirs and list(map(jnp.shape, leaves)) == list(map(jnp.shape, others)):
        return ""
    shapes, expected = _shapes(tree), _shapes(reference)
    for place in expected:
        if place not in shapes:
            return f"there is no leaf at {place}"
        if shapes[place] != expected[place]:
            return f"the leaf at {place} has shape {shapes[place]}, expected {expected[place]}"
    for place in shapes:
        if place not in expected:
            return f"there is an unexpected leaf at {place}"
    return f"its structure is {ours}, expected {theirs}"


def _shapes(tree: Tree) -> dict[str, tuple[int, ...]]:
    return {
        _show(path): jnp.shape(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }
