"""Where the time of a step goes: the call, products, activations, params and state, copies.

    python -m benchmarks.step_profile          # a minute on one core

Jitted, donated steps take turns with a single gradient, and each with a program of the same
arguments that does nothing; then JAX's profiler traces them, and the time of XLA's operations is
added up by what they are:

- ``call``: the program that does nothing, called from Python;
- ``products``: matrix products, and what XLA has fused with them;
- ``activations``: everything else that has not the shape of an array of params;
- ``params and state``: loops over arrays of the shapes of params;
- ``copies`` of such arrays, which a program makes where it knows no order of reading and writing.

Columns are percents of the time of the step's gradients, one after another; ``all`` is their sum,
100 for an optimizer that costs nothing. Writes ``benchmarks/results/step_profile/results.csv``;
models that are not run keep their rows.
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

from benchmarks.files import RESULTS, with_kept, write_rows
from benchmarks.step_cost import MODELS, OPTIMIZERS, Model, make_step
from benchmarks.timing import in_turn
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


class Program:
    """A compiled function of params (and state) and a batch, whose results are its next arguments.

    Args:
      function: The function.
      carried: Params and state, donated and given back; or params alone, which stay.
      batch: The last argument.
      steps: How often it is called at a time.
    """

    def __init__(self, function: Any, carried: tuple[Any, ...], batch: Any, steps: int):
        self._donated = len(carried) > 1
        donated = range(len(carried)) if self._donated else ()
        self._carried = jax.tree.map(jnp.copy, carried)
        self._batch, self._steps = batch, steps
        jitted = jax.jit(function, donate_argnums=tuple(donated))
        self._compiled = jitted.lower(*self._carried, batch).compile()

    def seconds(self) -> float:
        """Of the calls, one after another."""
        start = time.perf_counter()
        for _ in range(self._steps):
            out = self._compiled(*self._carried, self._batch)
            if self._donated:
                self._carried = out
        jax.block_until_ready(out)
        return time.perf_counter() - start

    def shares(self) -> dict[str, float]:
        """The shares of the kinds in the time of all operations."""
        of = kinds(self._compiled.as_text(), self._carried[0])
        found: Counter[str] = Counter()
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                self.seconds()
            (file,) = Path(folder).rglob("*.xplane.pb")
            planes = list(jax.profiler.ProfileData.from_file(str(file)).planes)
            for event in (e for plane in planes for line in plane.lines for e in line.events):
                if event.name in of:
                    found[of[event.name]] += event.duration_ns
        return {kind: found[kind] / found.total() for kind in KINDS}


def profile(model: Model, names: list[str], rounds: int) -> Iterator[dict[str, str]]:
    """A row for the gradient of a model, and one for each optimizer."""
    loss, params, batch = model.make()
    alone = Program(jax.grad(loss), (params,), batch, model.steps)
    empty = Program(lambda params, batch: jnp.zeros(()), (params,), batch, model.steps)
    yield _row("gradient", 1, alone, alone, empty, rounds)
    for name in names:
        optimizer = OPTIMIZERS[name]
        carried = params, optimizer.tx.init(params)
        step = Program(make_step(loss, optimizer), carried, batch, model.steps)
        empty = Program(lambda params, state, batch: (params, state), carried, batch, model.steps)
        yield _row(name, optimizer.gradients, alone, step, empty, rounds)


def _row(
    name: str, gradients: float, alone: Program, step: Program, empty: Program, rounds: int
) -> dict[str, str]:
    seconds = in_turn({alone: alone.seconds, step: step.seconds, empty: empty.seconds}, rounds)
    ratio = lambda program: 100 * np.median(seconds[program] / seconds[alone]) / gradients
    percent = {"all": ratio(step), "call": ratio(empty)}
    rest = percent["all"] - percent["call"]
    percent |= {kind: rest * share for kind, share in step.shares().items()}
    return {"optimizer": name} | {kind: f"{value:.0f}" for kind, value in percent.items()}


def main() -> None:
    """Profiles."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument(
        "--optimizers", nargs="+", choices=OPTIMIZERS, default=SHOWN, metavar="NAME"
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds to take the median of")
    parser.add_argument("--out", type=Path, default=RESULTS / "step_profile", help="folder")
    args = parser.parse_args()
    keep_freed_memory()
    rows = []
    for model in args.models:
        for row in profile(MODELS[model], args.optimizers, args.rounds):
            rows.append({"model": model, **row})
            print(rows[-1], flush=True)
    file = args.out / "results.csv"
    order = list(MODELS)
    rows = with_kept(file, rows, ("model",))
    write_rows(file, sorted(rows, key=lambda row: order.index(row["model"])))


if __name__ == "__main__":
    main()
