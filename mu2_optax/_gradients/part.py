"""The gradient of a batch at another point, estimated on a part of the batch."""

import dataclasses
from collections.abc import Callable

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
      grads: :math:`g_t(B)`, at the params of the step.
      here: :math:`g_t(S)`, likewise.
      share: |S|/|B|; None if it is not known.
    """

    on_part: GradFn
    grads: Tree
    here: Tree
    share: float | None

    def __call__(self, params: Tree, batch: Batch) -> Tree:
        """The estimated gradient of B at ``params``."""
        return self.of_whole(self.on_part(params, batch))

    def of_whole(self, there: Tree) -> Tree:
        """The estimated gradient of B at the point where the gradient of S is ``there``."""
        grads, here = _leaves_of(there, self.grads), _leaves_of(there, self.here)
        return optax.tree.sub(widened(grads), optax.tree.sub(widened(here), widened(there)))

    def here_like(self, there: Tree) -> Tree:
        """The gradient of S at the params of the step, with respect to the leaves of ``there``."""
        return _leaves_of(there, self.here)


def in_other_params(
    grad_fn: GradFn, outer: Callable[[Tree], Tree], inner: Callable[[Tree], Tree]
) -> GradFn:
    """``grad_fn`` for an optimizer that sees ``inner(params)``; ``outer`` is the way back."""

    def changed(gradient: GradFn) -> GradFn:
        return lambda params, batch: inner(gradient(outer(params), batch))

    if not isinstance(grad_fn, GradOnPart):
        return changed(grad_fn)
    grads, here = inner(grad_fn.grads), inner(grad_fn.here)
    return GradOnPart(changed(grad_fn.on_part), grads, here, grad_fn.share)


def _leaves_of(few: Tree, tree: Tree) -> Tree:
    """The leaves of ``tree`` that ``few`` has too; an optimizer may move only some params."""
    ours: object = jax.tree.structure(few)
    theirs: object = jax.tree.structure(tree)
    if ours == theirs:
        return tree
    leaves = dict(jax.tree_util.tree_leaves_with_path(tree))
    return jax.tree_util.tree_map_with_path(lambda path, _: leaves[path], few)
