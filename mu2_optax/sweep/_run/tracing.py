"""The user's function: how it is called and traced, what it may return, and what its trace shows.

The trace shows, before anything runs, a fingerprint of the program and how much work it is.
"""

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from mu2_optax.sweep._grid import RESERVED, Grid

# Addresses of objects and names of functions make no difference to the numbers.
_IRRELEVANT = re.compile(r" at 0x\w+|\bname=\S+")

# Two limits for a product of matrices. If one of its sides is shorter than _SHORT, it gains from
# several lanes side by side. From _LARGE multiplications on, it is slower beside other lanes than
# alone (measured on dense layers of MNIST's shape, with 1 to 9 lanes).
_SHORT, _LARGE = 16, 2**22


@dataclass(frozen=True)
class Traced:
    """A cell of the sweep as a jaxpr.

    Attributes:
      closed: The jaxpr of ``(seed, point)``, with the arrays that ``train`` closes over. Journals
        hold its fingerprint, and so its arguments stay in this order.
      outputs: Shape and dtype of each metric of one cell.
    """

    closed: ClosedJaxpr
    outputs: dict[str, jax.ShapeDtypeStruct]

    def cell(self, constants: Any, point: Any, seed: Any) -> dict[str, Any]:
        """Runs one cell; the arrays that ``train`` closes over are arguments here.

        As arguments they are neither copied into the compiled program nor folded by the compiler,
        which matters if they are a data set.
        """
        leaves = jaxpr_as_fun(ClosedJaxpr(self.closed.jaxpr, constants))(seed, point)
        return dict(zip(self.outputs, leaves, strict=True))


def trace(train: Callable[..., Mapping[str, Any]], grid: Grid) -> Traced:
    """Calls ``train`` once, with tracers; refuses results other than a dict of arrays."""
    check_signature(train, grid)
    check_precision(grid)

    def cell(seed: Any, point: Any) -> tuple[Any, ...]:
        arrays = checked_metrics(call(train, grid, point, jax.random.key(seed)), grid)
        names.extend(arrays)
        return tuple(arrays.values())

    names: list[str] = []
    point, seed = arguments(grid, (), ())
    try:
        closed, shapes = jax.make_jaxpr(cell, return_shape=True)(seed, point)
    except jax.errors.JAXTypeError as error:
        error.add_note(
            "`train` must be JAX code from start to end, because it is traced once for the whole "
            'grid; strategy="python" runs an ordinary function.'
        )
        raise
    return Traced(closed, dict(zip(names, shapes, strict=True)))


def arguments(grid: Grid, points: tuple[int, ...], seeds: tuple[int, ...]) -> tuple[Any, ...]:
    """Abstract (points, seeds) with the given leading shapes."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    return (
        jax.ShapeDtypeStruct((*points, len(grid.axes)), dtype),
        jax.ShapeDtypeStruct(seeds, np.uint32),
    )


def check_precision(grid: Grid) -> None:
    """Requires values that remain finite and different numbers in JAX's default precision."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    for name, axis in grid.axes.items():
        with np.errstate(over="ignore"):
            rounded = axis.astype(dtype)
        lost = ~np.isfinite(rounded) | ((rounded == 0) & (axis != 0))
        if lost.any() or len(np.unique(rounded)) < len(rounded):
            raise ValueError(
                f"the values of `{name}` must be different numbers in {dtype}, in which they are "
                f"passed, got {axis.tolist()}; space them out, or turn on jax_enable_x64."
            )


def check_signature(train: Any, grid: Grid) -> None:
    """Requires a function that can take the grid's axes and a key."""
    if not callable(train):
        raise TypeError(
            f"`train` must be a function of (learning_rate, key), got {train!r}; it returns a dict "
            "of metrics."
        )
    try:
        signature = inspect.signature(train)
    except (TypeError, ValueError):
        return
    try:
        call(signature.bind, grid, [None] * len(grid.axes), None)
    except TypeError as error:
        names = ", ".join((*grid.axes, "key"))
        how = f"by keyword, train({names})" if grid.by_name else "as train(learning_rate, key)"
        raise TypeError(
            f"`train` is called {how}, but its signature is {signature}: {error}."
        ) from None


def call(train: Callable[..., Any], grid: Grid, point: Sequence[Any], key: Any) -> Any:
    """Calls ``train`` for one cell: by keyword if the axes were a dict."""
    if grid.by_name:
        return train(**dict(zip(grid.axes, point, strict=True)), key=key)
    return train(point[0], key)


def checked_metrics(
    metrics: Any, grid: Grid, asarray: Callable[[Any], Any] = jnp.asarray
) -> dict[str, Any]:
    """What ``train`` returned, as arrays by name; float types that NumPy lacks become float32.

    It must be a dict of real numbers and arrays, none with the name of an axis. ``asarray`` is
    ``jnp.asarray`` for traced values, ``np.asarray`` for concrete ones.
    """
    if not isinstance(metrics, Mapping) or not metrics:
        raise TypeError(
            f"`train` must return a dict of metrics such as {{'loss': loss}}, got {metrics!r}."
        )
    arrays = {}
    for name, value in metrics.items():
        if not isinstance(name, str) or name in (*RESERVED, *grid.axes):
            raise TypeError(
                f"a metric's name must be a string and none of {(*RESERVED, *grid.axes)}, got "
                f"{name!r}; rename it in what `train` returns."
            )
        try:
            array = asarray(value)
        except (TypeError, ValueError):
            array = np.asarray(None)
        if array.dtype == object:
            raise TypeError(
                f"metric {name!r} must be a number or an array, got {value!r}; return a flat dict."
            )
        real = (np.bool_, np.integer, np.floating)
        if array.size == 0 or not any(jnp.issubdtype(array.dtype, kind) for kind in real):
            raise TypeError(
                f"metric {name!r} must hold real numbers, got {array.dtype}{array.shape}."
            )
        narrow = jnp.issubdtype(array.dtype, np.floating) and array.dtype.itemsize < 4
        arrays[name] = array.astype(np.float32) if narrow else array
    return arrays


def fingerprint(closed: ClosedJaxpr) -> str:
    """A short text that is the same, in every process, for the same program on the same arrays.

    It is a hash of the program's text and of every array in it, but not of what a host callback
    does.
    """
    digest = hashlib.blake2b(_IRRELEVANT.sub("", str(closed.jaxpr)).encode(), digest_size=16)
    for part in _all_jaxprs(closed):
        for constant in getattr(part, "consts", ()):
            is_array = isinstance(constant, jax.Array)
            is_key = is_array and jnp.issubdtype(constant.dtype, jax.dtypes.prng_key)
            array = np.asarray(jax.random.key_data(constant) if is_key else constant)
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def keeps_a_core_busy(closed: ClosedJaxpr) -> bool:
    """Whether running a second cell beside the first on the same CPU core gains nothing.

    That is so with a convolution anywhere, and with a large product of matrices in a loop. A
    product with a short side, as in logistic regression, is faster for several lanes at once.
    """
    for equation in _equations(closed):
        if equation.primitive.name == "conv_general_dilated":
            return True
        if equation.primitive.name in ("scan", "while"):
            in_loop = [inner for body in _jaxprs_of(equation) for inner in _equations(body)]
            if any(e.primitive.name == "dot_general" and _is_large(e) for e in in_loop):
                return True
    return False


def has_callback(closed: ClosedJaxpr) -> bool:
    """Whether a program calls back to Python while it runs."""
    return any("callback" in equation.primitive.name for equation in _equations(closed))


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All operations of a program, also those inside others."""
    for part in _all_jaxprs(jaxpr):
        yield from part.eqns


def _is_large(product: Any) -> bool:
    """Whether a product of matrices has no short side, and enough multiplications for a core."""
    (contracted, _), (batched, _) = product.params["dimension_numbers"]
    left, right = (variable.aval for variable in product.invars)
    inner = prod(left.shape[axis] for axis in contracted)
    lanes = prod(left.shape[axis] for axis in batched)
    rows, columns = (aval.size // max(inner * lanes, 1) for aval in (left, right))
    return min(rows, inner, columns) >= _SHORT and rows * inner * columns >= _LARGE


def _all_jaxprs(jaxpr: Any) -> Iterator[Any]:
    """A jaxpr, and those inside its equations, depth first."""
    yield jaxpr
    for equation in jaxpr.eqns:
        for inside in _jaxprs_of(equation):
            yield from _all_jaxprs(inside)


def _jaxprs_of(equation: Any) -> list[Any]:
    """The jaxprs that an equation runs."""
    is_jaxpr: Callable[[Any], bool] = lambda value: hasattr(value, "eqns")
    values = jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr)
    return [value for value in values if is_jaxpr(value)]
