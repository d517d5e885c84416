"""Compiled functions of this process, so that a second sweep of a program does not compile it."""

import hashlib
from collections.abc import Hashable
from typing import Any

_LIMIT = 16
_COMPILED: dict[Hashable, Any] = {}


def compiled_once(lowered: Any, *distinct: Hashable) -> Any:
    """Compiles a lowered function, or finds it among the last ones that were compiled.

    The key is the program itself, not the function that it came from: a function that has changed,
    or that closes over other numbers, gives another program.

    Args:
      lowered: What ``jax.jit(...).lower(...)`` gave.
      *distinct: What makes a difference but is not in the program's text.

    Returns:
      What ``lowered.compile()`` gives.
    """
    key = (hashlib.blake2b(lowered.as_text().encode()).digest(), *distinct)
    found = _COMPILED.pop(key, None) or lowered.compile()
    _COMPILED[key] = found  # now the youngest
    while len(_COMPILED) > _LIMIT:
        _COMPILED.pop(next(iter(_COMPILED)), None)
    return found


def forget() -> None:
    """Drops everything."""
    _COMPILED.clear()
