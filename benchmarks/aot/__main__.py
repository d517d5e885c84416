"""What a step moves, and whether it compiles, on TPUs and an A100 that need not be there.

    pip install 'jax[tpu]'                # TPU's compiler: on Linux, x86-64; no TPU is needed
    pip install --no-deps jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12  # that of an A100
    python -m benchmarks.aot              # in less than 20 minutes on one core
    python -m benchmarks.aot --check      # compiles mu2_auto for an embedding on a TPU, or fails

A step is compiled ahead of time for one chip, and its program is read, so that nothing is timed but
the compiler. Three studies, written to ``benchmarks/results/aot/results.json``:

- ``streams``: the bytes that a step moves to or from main memory (HBM), divided by the bytes of the
  params, for 100 matrices of 1024 × 1024; beside them the least that the algorithm has to move, and
  the bytes of temporary buffers;
- ``compilation``: processor time for 500 leaves of 128 × 128, divided by Adam's;
- ``shapes``: whether a step with one large array compiles.

An A100 is left out where there are matrix products: for these, its compiler needs the device.
"""

import argparse
import importlib.metadata
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from benchmarks.aot.programs import A100, OPTIMIZERS, TOPOLOGIES, RefusedError, compile_step
from benchmarks.aot.rows import TOO_LARGE
from benchmarks.files import RESULTS

MATRICES = {f"w{i:02}": (1024, 1024) for i in range(100)}
LEAVES = {f"w{i:03}": (128, 128) for i in range(500)}
EMBEDDING = (50304, 768)
SHAPES = (
    (8192, 8192),
    EMBEDDING,
    (32000, 4096),
    (128256, 4096),
    (4096, 128256),
    (256000, 2048),
    (64, 4096, 14336),
)
DTYPES = ("float32", "bfloat16")
PACKAGES = ("jax", "optax", "libtpu", "jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12")
ELEMENTWISE = [name for name, optimizer in OPTIMIZERS.items() if optimizer.arrays]
OURS = [name for name in OPTIMIZERS if name.startswith("mu2_auto")]

Rows = Iterator[dict[str, Any]]


def streams() -> Rows:
    """A row for each chip, dtype and optimizer."""
    for chip, names in (("v5e", list(OPTIMIZERS)), (A100, ELEMENTWISE)):
        for dtype in DTYPES:
            for name in names:
                found = compile_step(name, MATRICES, dtype, chip)
                yield {
                    "chip": chip,
                    "dtype": dtype,
                    "optimizer": name,
                    "least": OPTIMIZERS[name].least(dtype),
                    "streams": round(found.streams, 2),
                    "temporary": round(found.temporary, 2),
                }


def compilation() -> Rows:
    """A row for each chip and optimizer."""
    for chip in ("v5e", A100):
        compile_step("Adam", MATRICES, "float32", chip)  # the first takes longer, to load libraries
        seconds = {n: compile_step(n, LEAVES, "float32", chip).seconds for n in ELEMENTWISE}
        for name, own in seconds.items():
            yield {"chip": chip, "optimizer": name, "ratio": round(own / seconds["Adam"], 2)}


def shapes() -> Rows:
    """A row for each chip, shape, dtype and optimizer: what the compiler says against it, or ""."""
    cases = [(name, "float32") for name in ("Adam", *OURS)] + [("mu2_auto", "bfloat16")]
    for chip in TOPOLOGIES:
        for shape in SHAPES:
            for name, dtype in cases:
                row = {"chip": chip, "shape": " × ".join(map(str, shape)), "dtype": dtype}
                yield row | {"optimizer": name, "refused": refusal(name, shape, dtype, chip)}


def refusal(name: str, shape: tuple[int, ...], dtype: str, chip: str) -> str:
    """What the compiler says against a step with one array; nothing if it compiles."""
    try:
        compile_step(name, {"w": shape}, dtype, chip)
    except RefusedError as error:
        return TOO_LARGE if "on HBM" in str(error) else str(error)[:100]
    return ""


def check() -> None:
    """Compiles every kind of ``mu2_auto`` for a TPU with the embedding of GPT-2."""
    found = {
        f"{name}, {dtype}": refusal(name, EMBEDDING, dtype, "v5e")
        for name in OURS
        for dtype in DTYPES
    }
    for case, error in found.items():
        print(f"{case}: {error or 'compiles'}")
    if any(found.values()):
        sys.exit("a TPU refuses mu2_auto")


def write(found: dict[str, list[dict[str, Any]]], file: Path) -> None:
    """Writes the studies as JSON, a row a line."""
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    parts = [
        f'"about": {json.dumps({"command": "python -m benchmarks.aot", "versions": versions})}'
    ]
    for study, rows in found.items():
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        parts.append(f'"{study}": [\n{lines}\n]')
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def main() -> None:
    """Compiles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="compile the embedding, write nothing")
    parser.add_argument("--out", type=Path, default=RESULTS / "aot", help="folder")
    args = parser.parse_args()
    jax.config.update("jax_platforms", "cpu")  # an accelerator that is there is left alone
    jax.config.update("jax_enable_compilation_cache", False)
    if args.check:
        check()
        return
    found: dict[str, list[dict[str, Any]]] = {}
    for study, rows in (("streams", streams), ("compilation", compilation), ("shapes", shapes)):
        found[study] = []
        for row in rows():
            found[study].append(row)
            print(*row.values(), sep=", ", flush=True)
    write(found, args.out / "results.json")


if __name__ == "__main__":
    main()
