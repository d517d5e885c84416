"""The gradient of a batch at another point, evaluated on all of the batch or on a part of it."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import optax

from mu2_optax._internal.trees import widened
from mu2_optax._internal.types import Batch, GradFn, Tree


@dataclasses.dataclass(frozen=True)
class GradOnPart:
    r"""A ``grad_fn`` that estimates the gradient of a whole batch B on a part S of it.

    .. math:: \nabla f(x; B) \approx g_t(B) - \bigl(g_t(S) - \nabla f(x; S)\bigr)

    Optimizers call it like any other ``grad_fn``, with S as the ``batch``. Its attributes matter
    only to a β that measures its error.

    Attributes:
      on_part: :math:`\nabla f(\cdot; S)`, a function of (params, batch).
      grads: :math:`g_t(B)`, at the params of the step; None if S is the whole batch.
      grads_on_part: :math:`g_t(S)`, likewise.
      share: |S|/|B|; None if it is not known.
    """

    on_part: GradFn
    grads: Tree = None
    grads_on_part: Tree = None
    share: float | None = None

    @classmethod
    def of(cls, grad_fn: Any) -> Self:
        """Any ``grad_fn`` as one of these; the part of a plain function is the whole batch."""
        return grad_fn if isinstance(grad_fn, cls) else cls(grad_fn)

    def __call__(self, params: Tree, batch: Batch) -> Tree:
        """The estimated gradient of B at ``params``."""
        return self.whole(self.on_part(params, batch))

    def whole(self, grads: Tree) -> Tree:
        """The estimated gradient of B at the point where ``grads`` is the gradient of S."""
        if self.grads is None:
            return grads
        of_whole, of_part = (_leaves_of(grads, tree) for tree in (self.grads, self.grads_on_part))
        return optax.tree.sub(widened(of_whole), optax.tree.sub(widened(of_part), widened(grads)))

    def change(self, grads: Tree, prev_on_part: Tree) -> tuple[Tree, Tree, float]:
        """Two gradients on one sample, at params and at another point, and their share of B.

        Args:
          grads: :math:`g_t(B)`.
          prev_on_part: The gradient of S at the other point.
        """
        if self.share is None:
            return grads, self.whole(prev_on_part), 1.0
        return _leaves_of(prev_on_part, self.grads_on_part), prev_on_part, self.share

    def seen_as(self, to_params: Callable[[Tree], Tree], seen: Callable[[Tree], Tree]) -> Self:
        """The same for an optimizer that sees ``seen(params)``; ``to_params`` is the way back."""
        return dataclasses.replace(
            self,
            on_part=lambda params, batch: seen(self.on_part(to_params(params), batch)),
            grads=None if self.grads is None else seen(self.grads),
            grads_on_part=None if self.grads is None else seen(self.grads_on_part),
        )


def _leaves_of(few: Tree, tree: Tree) -> Tree:
    """The leaves of ``tree`` that ``few`` has too; an optimizer may move only some params."""
    ours: object = jax.tree.structure(few)
    theirs: object = jax.tree.structure(tree)
    if ours == theirs:
        return tree
    leaves = dict(jax.tree_util.tree_leaves_with_path(tree))
    return jax.tree_util.tree_map_with_path(lambda path, _: leaves[path], few)
