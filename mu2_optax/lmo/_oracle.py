"""What an oracle must be: a function from a direction to a point of the set, checked."""

from collections.abc import Callable
from typing import Any, TypeAlias

from mu2_optax._internal.tree_checks import check_like
from mu2_optax._internal.types import Tree

Oracle: TypeAlias = Callable[[Tree], Tree]
"""A function from a direction to a point of K."""


def checked_oracle(lmo: Oracle) -> Oracle:
    """The oracle, with a check that its output has the structure and shapes of its input."""

    def checked(direction: Any) -> Any:
        vertex = lmo(direction)
        check_like(
            "lmo(d)", vertex, direction, "A linear minimization oracle returns a point like params."
        )
        return vertex

    return checked
