"""What a traced program is made of: its fingerprint, and what occurs in it."""

import hashlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

# Where objects lie in memory and what functions are called make no difference to the numbers.
_ACCIDENTAL = re.compile(r" at 0x\w+|\bname=\S+")


def fingerprint(closed: ClosedJaxpr) -> str:
    """A short text that is the same, in every process, for the same program on the same arrays.

    Args:
      closed: The program with the arrays that it closes over.

    Returns:
      A hash of the program's text and of every array in it. What a host callback does is not in it.
    """
    digest = hashlib.blake2b(_ACCIDENTAL.sub("", str(closed.jaxpr)).encode(), digest_size=16)
    for part in _parts(closed):
        for constant in getattr(part, "consts", ()):
            array = _as_numpy(constant)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def has_convolution(closed: ClosedJaxpr) -> bool:
    """Whether a convolution occurs anywhere in a program."""
    return any(name == "conv_general_dilated" for name in _primitives(closed))


def has_callback(closed: ClosedJaxpr) -> bool:
    """Whether a program calls back to Python while it runs."""
    return any("callback" in name for name in _primitives(closed))


def _primitives(closed: ClosedJaxpr) -> Iterator[str]:
    """The names of all operations of a program."""
    for part in _parts(closed):
        yield from (equation.primitive.name for equation in part.eqns)


def _parts(jaxpr: Any) -> Iterator[Any]:
    """A jaxpr, and those inside its equations, depth first."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr):
            if _is_jaxpr(value):
                yield from _parts(value)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns")


def _as_numpy(constant: Any) -> Any:
    if isinstance(constant, jax.Array) and jnp.issubdtype(constant.dtype, jax.dtypes.prng_key):
        constant = jax.random.key_data(constant)
    return np.asarray(constant)
