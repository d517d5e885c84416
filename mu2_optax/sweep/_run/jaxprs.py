"""What a traced program shows before it runs: its fingerprint, and how much work it is."""

import hashlib
import re
from collections.abc import Iterator
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

# Addresses of objects and names of functions make no difference to the numbers.
_ACCIDENTAL = re.compile(r" at 0x\w+|\bname=\S+")

# Two limits for a product of matrices. If one of its sides is shorter than _SHORT, it gains from
# several lanes side by side. From _LARGE multiplications on, it is slower beside other lanes than
# alone (measured on dense layers of MNIST's shape, with 1 to 9 lanes).
_SHORT, _LARGE = 16, 2**22


def fingerprint(closed: ClosedJaxpr) -> str:
    """A short text that is the same, in every process, for the same program on the same arrays.

    Args:
      closed: The program with the arrays that it closes over.

    Returns:
      A hash of the program's text and of every array in it, but not of what a host callback does.
    """
    digest = hashlib.blake2b(_ACCIDENTAL.sub("", str(closed.jaxpr)).encode(), digest_size=16)
    for part in _parts(closed):
        for constant in getattr(part, "consts", ()):
            array = _as_numpy(constant)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def keeps_a_core_busy(closed: ClosedJaxpr) -> bool:
    """Whether running a second cell beside the first on the same CPU core gains nothing.

    That is so with a convolution anywhere, and with a large product of matrices in a loop. A
    product with a short side, as in logistic regression, is faster for several lanes at once.
    """
    if any(equation.primitive.name == "conv_general_dilated" for equation in _equations(closed)):
        return True
    in_loops = (equation for body in _loops(closed) for equation in _equations(body))
    return any(e.primitive.name == "dot_general" and _is_large(e) for e in in_loops)


def has_callback(closed: ClosedJaxpr) -> bool:
    """Whether a program calls back to Python while it runs."""
    return any("callback" in equation.primitive.name for equation in _equations(closed))


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All operations of a program, also those inside others."""
    for part in _parts(jaxpr):
        yield from part.eqns


def _loops(closed: ClosedJaxpr) -> Iterator[Any]:
    """The bodies of all loops of a program."""
    for equation in _equations(closed):
        if equation.primitive.name in ("scan", "while"):
            yield from _inside(equation)


def _is_large(product: Any) -> bool:
    """Whether a product of matrices has no short side, and enough multiplications for a core."""
    (contracted, _), (batched, _) = product.params["dimension_numbers"]
    left, right = (variable.aval for variable in product.invars)
    inner = prod(left.shape[axis] for axis in contracted)
    lanes = prod(left.shape[axis] for axis in batched)
    rows, columns = (aval.size // max(inner * lanes, 1) for aval in (left, right))
    return min(rows, inner, columns) >= _SHORT and rows * inner * columns >= _LARGE


def _parts(jaxpr: Any) -> Iterator[Any]:
    """A jaxpr, and those inside its equations, depth first."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for inside in _inside(equation):
            yield from _parts(inside)


def _inside(equation: Any) -> Iterator[Any]:
    """The jaxprs that an equation runs."""
    values = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
    yield from filter(_is_jaxpr, values)


def _is_jaxpr(value: Any) -> bool:
    return hasattr(value, "eqns")


def _as_numpy(constant: Any) -> Any:
    if isinstance(constant, jax.Array) and jnp.issubdtype(constant.dtype, jax.dtypes.prng_key):
        constant = jax.random.key_data(constant)
    return np.asarray(constant)
