"""Where the time of a step goes: products, activations, params and state, copies.

    python -m benchmarks.step_profile          # half a minute on one core

Traces jitted, donated steps with JAX's profiler, and as many single gradients, and adds up the time
of XLA's operations by what they are:

- ``products``: matrix products, and what XLA has fused with them;
- ``activations``: everything else that has not the shape of an array of params;
- ``params and state``: loops over arrays of the shapes of params;
- ``copies`` of such arrays, which a program makes where it knows no order of reading and writing.

Columns are percents of the time of the step's gradients, one after another: without any overhead
the products and activations would make 100. Writes ``benchmarks/results/step_profile/results.csv``.
"""

import argparse
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.experiment import RESULTS
from benchmarks.step_cost import MODELS, OPTIMIZERS, Model, make_step
from benchmarks.timing import write_rows
from examples.cpu_layers import keep_freed_memory

SHOWN = ["SGD", "mu2_sgd", "mu2_sgd, part 1/8", "mu2_auto"]
KINDS = ("products", "activations", "params and state", "copies")
OPERATION = re.compile(r"^\s*(?:ROOT )?%([\w.-]+) = \(?\w+\[([\d,]*)\][^=]*? ([\w-]+)\((.*)$", re.M)


def kinds(program: str, params: Any) -> dict[str, str]:
    """The kind of every operation of a compiled program, by its name."""
    shapes = {",".join(map(str, leaf.shape)) for leaf in jax.tree.leaves(params)}
    found = {}
    for name, shape, operation, rest in OPERATION.findall(program):
        if operation in ("dot", "convolution", "custom-call") or "kind=kCustom" in rest:
            found[name] = "products"
        elif shape not in shapes:
            found[name] = "activations"
        else:
            found[name] = "copies" if operation == "copy" else "params and state"
    return found


def traced(compiled: Any, arguments: tuple[Any, ...], donated: int, steps: int) -> dict[str, float]:
    """Milliseconds of a step by kind, and those of the step itself as ``all``.

    Where threads share a core, operations seem longer than they are: all are scaled to the step.
    """
    of = kinds(compiled.as_text(), arguments[0])
    carried, batch = arguments[:donated], arguments[donated:]

    def run(count: int) -> float:
        nonlocal carried
        start = time.perf_counter()
        for _ in range(count):
            out = compiled(*carried, *batch)
            carried = out if donated > 1 else carried
        jax.block_until_ready(out)
        return 1e3 * (time.perf_counter() - start) / count

    run(2)
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run(steps)
        (file,) = Path(folder).rglob("*.xplane.pb")
        planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
        found: Counter[str] = Counter()
        for event in (e for plane in planes for line in plane.lines for e in line.events):
            if event.name in of:
                found[of[event.name]] += event.duration_ns
    whole = float(np.median([run(steps) for _ in range(5)]))
    return {"all": whole} | {kind: whole * found[kind] / found.total() for kind in KINDS}


def profile(model: Model, names: list[str]) -> Iterator[dict[str, Any]]:
    """A row for the gradient of a model, and one for each optimizer."""
    loss, params, batch = model.make()
    steps = 4 * model.steps
    gradient = jax.jit(jax.grad(loss)).lower(params, batch).compile()
    alone = traced(gradient, (params, batch), 1, steps)
    yield {"optimizer": "gradient", **_percents(alone, alone["all"])}
    for name in names:
        optimizer = OPTIMIZERS[name]
        held = jax.tree.map(jnp.copy, params)
        state = optimizer.tx.init(held)
        step = jax.jit(make_step(loss, optimizer), donate_argnums=(0, 1))
        compiled = step.lower(held, state, batch).compile()
        found = traced(compiled, (held, state, batch), 2, steps)
        yield {"optimizer": name, **_percents(found, optimizer.gradients * alone["all"])}


def _percents(milliseconds: dict[str, float], whole: float) -> dict[str, str]:
    return {kind: f"{100 * value / whole:.0f}" for kind, value in milliseconds.items()}


def main() -> None:
    """Profiles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=SHOWN, metavar="NAME"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "step_profile", help="folder")
    args = parser.parse_args()
    keep_freed_memory()
    rows = []
    for model in args.models:
        for row in profile(MODELS[model], args.optimizers):
            rows.append({"model": model, **row})
            print(rows[-1], flush=True)
    write_rows(args.out / "results.csv", rows)


if __name__ == "__main__":
    main()
