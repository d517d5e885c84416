"""Types that public signatures share: for type checkers and editors; programs need none of them."""

from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import optax

Tree: TypeAlias = Any
"""A tree of arrays, such as params or gradients: whatever JAX takes for one."""

State = TypeVar("State")

if TYPE_CHECKING:

    class Transform(optax.GradientTransformationExtraArgs, Generic[State]):
        """Optax's transform, with a state that type checkers know."""

        def init(self, params: Tree) -> State:
            """The state before the first step."""

        def update(
            self,
            updates: Tree,
            state: State,
            params: Tree = None,
            *,
            grad_fn: Any = None,
            batch: Any = None,
            prev_grads: Tree = None,
            **extra_args: Any,
        ) -> tuple[Tree, State]:
            """The updates of the params, and the next state."""

else:

    class Transform:
        """At run time, it is Optax's own class."""

        def __class_getitem__(cls, state: type) -> type:
            """What the functions really return."""
            return optax.GradientTransformationExtraArgs
