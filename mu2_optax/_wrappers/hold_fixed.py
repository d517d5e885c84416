"""Training a part of the params, with the rest held fixed."""

from typing import Any

import jax
import optax

from mu2_optax._gradients.part import GradOnPart
from mu2_optax._internal.checks import check_transform
from mu2_optax._internal.masks import Mask, marks_of
from mu2_optax._internal.tree_checks import check_gradient, check_like, check_params
from mu2_optax._internal.types import OptState, Params, Tree, Updates


def hold_fixed(
    inner: optax.GradientTransformation, freeze_mask: Mask
) -> optax.GradientTransformationExtraArgs:
    r"""Holds a part of the params fixed, and optimizes the rest as if there were nothing else.

    .. math:: \min_u f(u, v; z), \qquad x = (u, v)

    Here v is the frozen part, where ``freeze_mask`` is True, and u the rest. ``inner`` sees u
    alone: its state, its projection and its norms are those of u, and every gradient it asks for is
    :math:`\nabla_u f(\cdot, v; z)`. The call stays the same: params, grads and ``grad_fn`` are
    those of the whole tree. (``optax.selective_transform`` would hide the frozen part from
    ``grad_fn`` too.)

    The frozen part must really stay fixed: the gradient at the previous point is taken with its
    current values. To move parts with different optimizers, put ``optax.partition`` inside
    ``inner``: ``mu2(optax.partition(...))``.

    Args:
      inner: Any optimizer.
      freeze_mask: Which leaves are frozen, as in ``optax.selective_transform``: a tree of booleans
        like params (or a prefix of such a tree), or a function from params to one.

    Returns:
      A transform with the state of ``inner``, in which frozen leaves are None.

    Examples:
      >>> import jax, jax.numpy as jnp, optax, mu2_optax
      >>> loss = lambda params, z: (params["head"] * params["body"] - z) ** 2
      >>> grad_fn = jax.grad(loss)
      >>> tx = mu2_optax.hold_fixed(mu2_optax.mu2_sgd(0.5), {"head": False, "body": True})
      >>> params = {"head": jnp.array(1.0), "body": jnp.array(2.0)}
      >>> state = tx.init(params)
      >>> for batch in [3.0, 5.0]:
      ...     grads = grad_fn(params, batch)
      ...     updates, state = tx.update(grads, state, params, grad_fn=grad_fn, batch=batch)
      ...     params = optax.apply_updates(params, updates)
      >>> float(params["body"]), state.w["body"]
      (2.0, None)
    """
    check_transform("inner", inner)
    inner = optax.with_extra_args_support(inner)

    def init(params: Params) -> Any:
        check_params(params)
        if not jax.tree.leaves(params):  # the placeholder of `optax.tree.map_params`
            return inner.init(params)
        return inner.init(_rest(params, _frozen(freeze_mask, params)))

    def update(
        updates: Updates, state: OptState, params: Params = None, **extra_args: Any
    ) -> tuple[Updates, OptState]:
        check_params(params)
        check_gradient("grads", updates, params)
        frozen = _frozen(freeze_mask, params)
        grad_fn, prev_grads = extra_args.get("grad_fn"), extra_args.get("prev_grads")
        if callable(grad_fn):
            extra_args["grad_fn"] = GradOnPart.of(grad_fn).seen_as(
                lambda u: _whole(u, params, frozen), lambda grads: _rest(grads, frozen)
            )
        if prev_grads is not None:
            check_gradient("prev_grads", prev_grads, params)
            extra_args["prev_grads"] = _rest(prev_grads, frozen)
        grads, u = _rest(updates, frozen), _rest(params, frozen)
        move, state = inner.update(grads, state, u, **extra_args)
        return _whole(move, optax.tree.zeros_like(params), frozen), state

    return optax.GradientTransformationExtraArgs(init, update)


def _frozen(freeze_mask: Mask, params: Params) -> list[bool]:
    """Whether each leaf of params is frozen."""
    frozen = marks_of("freeze_mask", freeze_mask, params)
    if all(frozen):
        raise ValueError(
            "`freeze_mask` must leave something to train, got True for every leaf; mark the leaves "
            "to train as False."
        )
    return frozen


def _rest(tree: Tree, frozen: list[bool]) -> Any:
    """The tree without its frozen leaves, which become None."""
    leaves, structure = jax.tree.flatten(tree)
    rest = [None if hide else leaf for leaf, hide in zip(leaves, frozen, strict=True)]
    return jax.tree.unflatten(structure, rest)


def _whole(rest: Any, tree: Tree, frozen: list[bool]) -> Any:
    """The tree with ``rest`` in the places that are not frozen."""
    check_like("the part that is trained", rest, _rest(tree, frozen), "The mask must not change.")
    moved = iter(jax.tree.leaves(rest))
    leaves, structure = jax.tree.flatten(tree)
    return jax.tree.unflatten(
        structure,
        [leaf if hide else next(moved) for leaf, hide in zip(leaves, frozen, strict=True)],
    )
