"""Types that public signatures share: for type checkers and editors; programs need none of them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import jax
import numpy as np
import numpy.typing as npt
import optax

Tree: TypeAlias = Any
"""A tree of arrays: anything that JAX accepts as one."""

Leaf: TypeAlias = Any
"""An array of a tree, or what stands in its place: a number, a shape, a masked node."""

Params: TypeAlias = Tree
"""What is optimized."""

Updates: TypeAlias = Tree
"""Gradients or steps: a tree like the params."""

OptState: TypeAlias = Any
"""The state of an optimizer, or of any chain or wrapper around one."""

Batch: TypeAlias = Any
"""The sample of a step: data, keys, statistics, whatever ``grad_fn`` takes."""

GradFn: TypeAlias = Callable[[Params, Batch], Updates]
"""A function of (params, batch) that returns the gradient."""

Schedule: TypeAlias = Callable[[Any], Any]
"""A function of the step count."""

Memory: TypeAlias = Any
"""What a weight remembers from step to step; None if nothing."""

Scalar: TypeAlias = float | np.number[Any] | jax.Array
"""A number or a tracer."""

Numbers: TypeAlias = Scalar | npt.NDArray[Any]
"""A number, or an array of numbers that are computed with at once."""

ScalarOrSchedule: TypeAlias = Scalar | Schedule

State = TypeVar("State")

if TYPE_CHECKING:

    class Transform(optax.GradientTransformationExtraArgs, Generic[State]):
        """Optax's transform, with a state that type checkers know."""

        def init(self, params: Params) -> State:
            """The state before the first step."""

        def update(
            self,
            updates: Updates,
            state: State,
            params: Params = None,
            *,
            grad_fn: GradFn | None = None,
            batch: Batch = None,
            prev_grads: Updates = None,
            **extra_args: Any,
        ) -> tuple[Updates, State]:
            """The updates of the params, and the next state."""

else:

    class Transform:
        """At run time, it is Optax's own class."""

        def __class_getitem__(cls, state: type) -> type:
            """What the functions really return."""
            return optax.GradientTransformationExtraArgs
