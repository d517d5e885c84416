"""Going on where a sweep stopped: a folder with a file for each block of finished cells."""

import hashlib
import json
import platform
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mu2_optax.sweep._cells import Metrics
from mu2_optax.sweep._files import DAMAGE, read_npz, write_npz
from mu2_optax.sweep._grid import Block, Grid

FORMAT = "mu2_optax.block/1"
# What the numbers of a cell depend on, of `jax.config`.
_SETTINGS = """
    jax_enable_x64 jax_default_matmul_precision jax_default_prng_impl jax_threefry_partitionable
    jax_random_seed_offset jax_high_dynamic_range_gumbel jax_softmax_custom_jvp
    jax_numpy_dtype_promotion
"""


def describe_versions() -> dict[str, str]:
    """The versions of Python and of what the numbers of a sweep may depend on."""
    return {"python": platform.python_version()} | {
        name: version(name) for name in ("mu2-optax", "optax", "jax", "jaxlib", "numpy")
    }


class Folder:
    """The finished blocks of one sweep, each in a file that is written whole.

    So a kill at any moment loses only what was running. A file holds the values and the seeds of
    its cells, not their places in the grid, so that a sweep can go on with more of them. Its header
    says which sweep it belongs to: ``identity`` (None stands for what nobody can tell yet), and the
    versions and settings of JAX.
    """

    def __init__(self, path: str | Path, grid: Grid, identity: Mapping[str, Any]):
        self._path, self._grid = Path(path), grid
        if self._path.is_file():
            raise ValueError(f"`resume` must name a folder, got the file {self._path}.")
        versions = {name: describe_versions()[name] for name in ("jax", "jaxlib")}
        settings = {name: getattr(jax.config, name, None) for name in _SETTINGS.split()}
        header = {"format": FORMAT, "axes": list(grid.axes), **identity, **versions, **settings}
        self._header: dict[str, Any] = json.loads(json.dumps(header))  # as a file returns it

    def write(self, block: Block, metrics: Metrics) -> None:
        """Records what a block has returned."""
        points, seeds = self._grid.points[block.points], self._grid.seeds[block.seeds]
        name = hashlib.blake2b(points.tobytes() + seeds.tobytes(), digest_size=8).hexdigest()
        arrays = {"points": points, "seeds": seeds}
        arrays |= {f"metrics/{metric}": array for metric, array in metrics.items()}
        write_npz(self._path / f"{name}.npz", self._header, arrays)

    def read(self) -> Iterator[tuple[Block, Metrics]]:
        """The cells of this grid that have been recorded; other cells stay in the folder.

        A file that is damaged is left out, with a warning.
        """
        for file in sorted(self._path.glob("*.npz")):
            try:
                header, arrays = read_npz(file)
                places = self._grid.places(arrays.pop("points"), arrays.pop("seeds"))
            except DAMAGE as error:
                warnings.warn(f"{file} is damaged ({error}); its cells run again.", stacklevel=3)
                continue
            for what, mine in self._header.items():
                theirs = header.get(what)
                if mine != theirs and (what, mine) != ("metrics", None):
                    found = f"its {what} is {theirs!r}, here it is {mine!r}"
                    if what == "program":
                        found = "`train`, or an array that it closes over, is not what it was"
                    raise ValueError(
                        f"{file} belongs to another sweep: {found}; resume with what it was "
                        "recorded with, or choose another folder."
                    )
            own = [np.flatnonzero(indices >= 0) for indices in places]
            block = Block(*(indices[kept] for indices, kept in zip(places, own, strict=True)))
            if block.points.size and block.seeds.size:
                yield block, {n.split("/", 1)[1]: a[np.ix_(*own)] for n, a in arrays.items()}
