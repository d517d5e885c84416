"""What computes a block of cells: the user's function compiled, or called as it is."""

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from mu2_optax.sweep._cells import Metrics
from mu2_optax.sweep._grid import RESERVED, Block, Grid

Train: TypeAlias = Callable[..., Mapping[str, Any]]
Size = tuple[int, int]  # how many points and seeds a call takes

_IRRELEVANT = re.compile(r" at 0x\w+|\bname=\S+")  # to the numbers: addresses, functions' names


class PythonProgram:
    """Calls ``train`` untraced, with concrete numbers, for one cell after another.

    Attributes:
      names: Of the metrics; none if they are not known before a cell has finished.
      compile_seconds: How long compiling has taken so far; 0 if ``train`` itself compiles.
    """

    names: Sequence[str] = ()
    compile_seconds = 0.0

    def __init__(self, train: Train, grid: Grid):
        self._train, self._grid = train, grid

    def call_size(self, chunk_size: int | None) -> Size:
        """The points and the seeds of a call."""
        return 1, 1

    def fingerprint(self) -> str | None:
        """None: nobody can tell what an ordinary function does."""
        return None

    def run(self, block: Block, size: Size) -> Metrics:
        """The metrics of a block of one cell, once they are computed."""
        (point,), (seed,) = block
        key = jax.random.key(np.uint32(self._grid.seeds[seed]))
        metrics = self._call(self._grid.points[point].tolist(), key, jax.device_get)
        return {name: np.asarray(value)[None, None] for name, value in metrics.items()}

    def _call(self, point: Any, key: Any, read: Callable[[Any], Any]) -> dict[str, Any]:
        """Calls ``train`` for one cell: by keyword if the axes were a dict."""
        if self._grid.by_name:
            metrics = self._train(**dict(zip(self._grid.axes, point, strict=True)), key=key)
        else:
            metrics = self._train(point[0], key)
        taken = (*RESERVED, *self._grid.axes)
        known = isinstance(metrics, Mapping) and metrics and not {*taken} & {*metrics}
        if not known or not all(isinstance(name, str) for name in metrics):
            raise TypeError(
                "`train` must return a dict of metrics such as {'loss': loss}, with none of the "
                f"names {taken}, got {metrics!r}."
            )
        return {name: _real(name, read(value)) for name, value in metrics.items()}


class CompiledProgram(PythonProgram):
    """``train``, traced once, and compiled once for each size of a call.

    A call takes one cell if not ``side_by_side``.
    """

    def __init__(self, train: Train, grid: Grid, side_by_side: bool):
        super().__init__(train, grid)
        self._points = grid.points.astype(jax.dtypes.canonicalize_dtype(float))
        self._seeds = grid.seeds.astype(np.uint32)
        self._side_by_side = side_by_side
        self._compiled: dict[Size, Any] = {}
        names: list[str] = []

        def cell(point: Any, seed: Any) -> tuple[Any, ...]:
            metrics = self._call(point, jax.random.key(seed), lambda value: value)
            names.extend(metrics)
            return tuple(jnp.asarray(value) for value in metrics.values())

        try:
            self._jaxpr = jax.make_jaxpr(cell)(self._points[0], self._seeds[0])
        except jax.errors.JAXTypeError as error:
            error.add_note(
                "`train` must be JAX code from start to end, because it is traced once for the "
                'whole grid; strategy="python" runs an ordinary function.'
            )
            raise
        self.names = names

    def call_size(self, chunk_size: int | None) -> Size:
        """The points and the seeds of a call: some of one seed, or all of some seeds."""
        if not self._side_by_side:
            return 1, 1
        points, seeds = len(self._points), len(self._seeds)
        cells = chunk_size or points * seeds
        return min(points, cells), max(1, min(seeds, cells // points))

    def run(self, block: Block, size: Size) -> Metrics:
        """The metrics of a block; where it has fewer cells than the call, the last is repeated."""
        points, seeds = (
            np.pad(indices, (0, length - len(indices)), mode="edge")
            for indices, length in zip(block, size, strict=True)
        )
        arguments = self._jaxpr.consts, self._points[points], self._seeds[seeds]
        if size not in self._compiled:
            start = time.perf_counter()
            self._compiled[size] = jax.jit(self._block).lower(*arguments).compile()
            self.compile_seconds += time.perf_counter() - start
        out = jax.device_get(self._compiled[size](*arguments))
        own = slice(len(block.points)), slice(len(block.seeds))
        return {name: array[own] for name, array in zip(self.names, out, strict=True)}

    def _block(self, constants: Any, points: Any, seeds: Any) -> Any:
        """What is compiled. ``constants`` are the arrays that ``train`` closes over.

        As arguments they are neither copied into the program nor folded by the compiler, which
        matters if they are a data set.
        """
        cell: Callable[..., Any] = jaxpr_as_fun(ClosedJaxpr(self._jaxpr.jaxpr, constants))
        if not self._side_by_side:
            return [metric[None, None] for metric in cell(points[0], seeds[0])]
        # The outer map is over seeds and the inner one over points: what depends on the key alone,
        # such as the gathering of batches, is computed once per seed for all points.
        over_points = jax.vmap(cell, in_axes=(0, None))
        return jax.vmap(over_points, in_axes=(None, 0), out_axes=1)(points, seeds)

    def fingerprint(self) -> str | None:
        """A hash of the program's text and of every array in it, the same in every process.

        It does not see what a host callback does.
        """
        digest = hashlib.blake2b(_IRRELEVANT.sub("", str(self._jaxpr)).encode(), digest_size=16)
        for constant in _constants(self._jaxpr):
            if jnp.issubdtype(constant.dtype, jax.dtypes.prng_key):
                constant = jax.random.key_data(constant)
            array: npt.NDArray[Any] = np.asarray(constant)
            digest.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return digest.hexdigest()


def _real(name: str, value: Any) -> Any:
    """A metric of a cell as an array; float types that NumPy lacks become float32."""
    array = value if hasattr(value, "dtype") else np.asarray(value)
    kinds = (np.bool_, np.integer, np.floating)
    real = array.dtype != object and any(jnp.issubdtype(array.dtype, kind) for kind in kinds)
    if not real or array.size == 0:
        raise TypeError(
            f"metric {name!r} must be a real number or an array of them, got {value!r}; return a "
            "flat dict."
        )
    narrow = jnp.issubdtype(array.dtype, np.floating) and array.dtype.itemsize < 4
    return array.astype(np.float32) if narrow else array


def _constants(jaxpr: Any) -> Iterator[Any]:
    """The arrays in a program, also those of the programs inside it."""
    yield from getattr(jaxpr, "consts", ())
    is_jaxpr: Callable[[Any], bool] = lambda value: hasattr(value, "eqns")
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(value):
                yield from _constants(value)
