"""What computes a block of cells: the user's function compiled, or called as it is."""

import hashlib
import re
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun
from jax.sharding import Mesh, PartitionSpec

from mu2_optax.sweep._cells import Block, Metrics
from mu2_optax.sweep._environment import default_device
from mu2_optax.sweep._grid import RESERVED, Grid

Train: TypeAlias = Callable[..., Mapping[str, Any]]
Size = tuple[int, int]  # of a call: how many points and seeds it takes

_IRRELEVANT = re.compile(r" at 0x\w+|\bname=\S+")  # to the numbers: addresses, functions' names
_LIMIT = 16  # compiled programs that this process keeps
_COMPILED: dict[Hashable, Any] = {}


class CompiledProgram:
    """``train``, traced once, and compiled once for each size of a call.

    ``side_by_side`` is False if a call takes one cell. The devices share the points of a call, or
    with ``split_seeds`` its seeds.

    Attributes:
      outputs: Shape and dtype of each metric of one cell.
      compile_seconds: How long compiling has taken so far.
    """

    def __init__(
        self,
        train: Train,
        grid: Grid,
        side_by_side: bool,
        devices: Sequence[jax.Device] | None = None,
        split_seeds: bool = False,
    ):
        _check_precision(grid)
        self._points = grid.points.astype(jax.dtypes.canonicalize_dtype(float))
        self._seeds = grid.seeds.astype(np.uint32)
        self._side_by_side, self._devices, self._split_seeds = side_by_side, devices, split_seeds
        self._mesh = Mesh(np.asarray(devices), ("cells",)) if devices else None
        self._compiled: dict[Size, tuple[Any, Any]] = {}
        self.compile_seconds = 0.0
        names: list[str] = []

        def cell(point: Any, seed: Any) -> tuple[Any, ...]:
            returned = _call(train, grid, point, jax.random.key(seed))
            metrics = _checked_metrics(returned, grid, jnp.asarray)
            names.extend(metrics)
            return tuple(metrics.values())

        try:
            trace = jax.make_jaxpr(cell, return_shape=True)
            self._jaxpr, shapes = trace(self._points[0], self._seeds[0])
        except jax.errors.JAXTypeError as error:
            error.add_note(
                "`train` must be JAX code from start to end, because it is traced once for the "
                'whole grid; strategy="python" runs an ordinary function.'
            )
            raise
        self.outputs = dict(zip(names, shapes, strict=True))

    def run(self, block: Block, size: Size) -> Metrics:
        """The metrics of a block; where it has fewer cells than the call, the last is repeated."""
        compiled, constants = self._compile(size)
        points, seeds = (
            np.pad(indices, (0, length - len(indices)), mode="edge")
            for indices, length in zip(block, size, strict=True)
        )
        out = jax.device_get(compiled(constants, self._points[points], self._seeds[seeds]))
        own = slice(len(block.points)), slice(len(block.seeds))
        return {name: array[own] for name, array in zip(self.outputs, out, strict=True)}

    def fingerprint(self) -> str:
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

    def _compile(self, size: Size) -> tuple[Any, Any]:
        """The compiled function of a call, and the arrays that ``train`` closes over.

        As arguments they are neither copied into the program nor folded by the compiler, which
        matters if they are a data set. What this process has compiled before is known by its text:
        a function that has changed, or that closes over other numbers, has another text.
        """
        if size in self._compiled:
            return self._compiled[size]
        start = time.perf_counter()
        constants = self._jaxpr.consts
        arguments = (constants, np.resize(self._points, (size[0], self._points.shape[1])))
        lowered = jax.jit(self._function()).lower(*arguments, np.resize(self._seeds, size[1]))
        text = hashlib.blake2b(lowered.as_text().encode()).digest()
        key = (text, *(self._devices or [default_device()]))
        if re.search("callback|debug_print", str(self._jaxpr)):  # whose function is not in the text
            compiled = lowered.compile()
        else:
            _COMPILED[key] = compiled = _COMPILED.pop(key, None) or lowered.compile()
            if len(_COMPILED) > _LIMIT:
                del _COMPILED[next(iter(_COMPILED))]  # the least recently used
        if self._devices:
            constants = jax.device_put(constants, compiled.input_shardings[0][0])
        self.compile_seconds += time.perf_counter() - start
        self._compiled[size] = compiled, constants
        return self._compiled[size]

    def _function(self) -> Callable[[Any, Any, Any], Any]:
        """The function of (constants, points, seeds) that is compiled."""

        def block(constants: Any, points: Any, seeds: Any) -> Any:
            cell: Callable[..., Any] = jaxpr_as_fun(ClosedJaxpr(self._jaxpr.jaxpr, constants))
            if not self._side_by_side:
                return [metric[None, None] for metric in cell(points[0], seeds[0])]
            # The outer map is over seeds and the inner one over points: what depends on the key
            # alone, such as the gathering of batches, is computed once per seed for all points.
            of_seed: Callable[[Any], Any] = lambda seed: jax.vmap(lambda point: cell(point, seed))(
                points
            )
            return jax.vmap(of_seed, out_axes=1)(seeds)

        if self._mesh is None:
            return block
        whole, split = PartitionSpec(), PartitionSpec("cells")
        inputs = (whole, whole, split) if self._split_seeds else (whole, split, whole)
        output = PartitionSpec(None, "cells") if self._split_seeds else split
        options: dict[str, Any] = {"mesh": self._mesh, "in_specs": inputs, "out_specs": output}
        if hasattr(jax, "shard_map"):
            return jax.shard_map(block, check_vma=False, **options)
        from jax.experimental.shard_map import shard_map  # before jax 0.6.1

        return shard_map(block, check_rep=False, **options)


class PythonProgram:
    """Calls ``train`` untraced, with concrete numbers, for one cell after another."""

    outputs: Mapping[str, jax.ShapeDtypeStruct] = {}  # not known before a cell has finished
    compile_seconds = 0.0  # ``train`` compiles what it wants to

    def __init__(self, train: Train, grid: Grid):
        self._train, self._grid = train, grid

    def fingerprint(self) -> None:
        """None: nobody can tell what an ordinary function does."""

    def run(self, block: Block, size: Size) -> Metrics:
        """The metrics of a block of one cell, once they are computed."""
        (point,), (seed,) = block
        key = jax.random.key(np.uint32(self._grid.seeds[seed]))
        metrics = _call(self._train, self._grid, self._grid.points[point].tolist(), key)
        if isinstance(metrics, Mapping):
            metrics = {name: jax.device_get(value) for name, value in metrics.items()}
        checked = _checked_metrics(metrics, self._grid, np.asarray)
        return {name: array[None, None] for name, array in checked.items()}


def _call(train: Train, grid: Grid, point: Sequence[Any], key: Any) -> Any:
    """Calls ``train`` for one cell: by keyword if the axes were a dict."""
    if grid.by_name:
        return train(**dict(zip(grid.axes, point, strict=True)), key=key)
    return train(point[0], key)


def _check_precision(grid: Grid) -> None:
    """Requires values that remain finite and different numbers in JAX's default precision."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    for name, axis in grid.axes.items():
        with np.errstate(over="ignore"):
            rounded = np.unique([*axis, 0.0]).astype(dtype)  # what becomes 0 is lost, too
        if not np.isfinite(rounded).all() or (np.diff(rounded) == 0).any():
            raise ValueError(
                f"the values of `{name}` must be different numbers in {dtype}, in which they are "
                f"passed, got {axis.tolist()}; space them out, or turn on jax_enable_x64."
            )


def _checked_metrics(metrics: Any, grid: Grid, asarray: Callable[[Any], Any]) -> dict[str, Any]:
    """What ``train`` returned, as arrays by name; float types that NumPy lacks become float32."""
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
        kinds = (np.bool_, np.integer, np.floating)
        real = array.dtype != object and any(jnp.issubdtype(array.dtype, kind) for kind in kinds)
        if not real or array.size == 0:
            raise TypeError(
                f"metric {name!r} must be a real number or an array of them, got {value!r}; return "
                "a flat dict."
            )
        narrow = jnp.issubdtype(array.dtype, np.floating) and array.dtype.itemsize < 4
        arrays[name] = array.astype(np.float32) if narrow else array
    return arrays


def _constants(jaxpr: Any) -> Iterator[Any]:
    """The arrays in a program, also those of the programs inside it."""
    yield from getattr(jaxpr, "consts", ())
    is_jaxpr: Callable[[Any], bool] = lambda value: hasattr(value, "eqns")
    for equation in jaxpr.eqns:
        for value in jax.tree.leaves(list(equation.params.values()), is_leaf=is_jaxpr):
            if is_jaxpr(value):
                yield from _constants(value)
