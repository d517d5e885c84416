"""Flax's bytes, read back into the very optimizer and model that wrote them."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

try:
    from flax import serialization
except ImportError as error:
    raise ImportError("`mu2_optax.checkpoint` needs Flax: install the extra `flax`") from error

__all__ = [
    "from_bytes",
]

Tree = TypeVar("Tree")


def from_bytes(target: Tree, encoded: bytes) -> Tree:
    """``flax.serialization.from_bytes``, refusing bytes of another optimizer or another model.

    Flax's own compares names and not shapes or dtypes, and fills a field that is None in
    ``target`` with whatever was stored; a run would then go on from a state that is not its own.
    Orbax, restoring into an abstract target, compares structures and shapes itself.

    Args:
      target: A tree with the structure, shapes and dtypes that are expected, such as a new train
        state.
      encoded: What ``flax.serialization.to_bytes`` made of such a tree.

    Returns:
      The stored tree, bit for bit.

    Examples:
      >>> import jax.numpy as jnp, mu2_optax, mu2_optax.checkpoint
      >>> from flax import serialization
      >>> state = mu2_optax.mu2_sgd(0.1).init(jnp.ones(3))
      >>> encoded = serialization.to_bytes(state)
      >>> state = mu2_optax.checkpoint.from_bytes(state, encoded)

    References:
      Flax, `serialization
      <https://flax.readthedocs.io/en/latest/api_reference/flax.serialization.html>`_
    """
    stored = serialization.msgpack_restore(encoded)
    expected = serialization.to_state_dict(target)
    difference = _difference(_leaves(stored), _leaves(expected))
    if difference:
        raise ValueError(
            f"`encoded` must hold the structure of `target`: {difference}. It was written by "
            "another optimizer or for another model; build `target` with the ones that wrote it."
        )
    return serialization.from_state_dict(target, stored)


def _leaves(tree: Any) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree, is_leaf=lambda leaf: leaf is None)
    return {jax.tree_util.keystr(path): _describe(leaf) for path, leaf in leaves}


def _describe(leaf: Any) -> str:
    if leaf is None:
        return "None"
    shape, dtype = np.shape(leaf), jnp.result_type(leaf)
    return f"an array of {dtype}{list(shape)}" if shape else f"a scalar of {dtype}"


def _difference(stored: dict[str, str], expected: dict[str, str]) -> str:
    for place in sorted(expected.keys() | stored.keys()):
        ours, theirs = stored.get(place, "nothing"), expected.get(place, "nothing")
        if ours != theirs:
            return f"there is {ours} at {place}, expected {theirs}"
    return ""
