"""What it costs to evaluate ``mu2_auto`` at the params, and not at the average that it keeps.

    python -m benchmarks.forgotten_average --data-dir DATA

takes about a minute of one core of an x86-64 CPU, no GPU, prints a line for each measurement and
writes ``benchmarks/results/forgotten_average/results.csv``. The tasks are an epoch of MNIST with an
MLP, and 600 steps of a transformer on characters. Expected: at the end an accuracy of 0.973
at the params and 0.976 at the average on MNIST, and losses of 1.90 and 1.86 on characters.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import optax

import mu2_optax
from benchmarks import character_task, files, image_tasks
from benchmarks.files import write_rows
from benchmarks.training import Functions, run_steps
from examples import data as datasets
from examples.option_types import positive_int

MEASURED_AT = (0.1, 0.3, 1.0)  # of the steps


class Setting(NamedTuple):
    """A task: its name in words, its steps, and how it is made from the folder of the data."""

    title: str
    steps: int
    make: Callable[[str | None], Functions]


def _mlp(data_dir: str | None) -> Functions:
    return image_tasks.dense_task(datasets.load("mnist", data_dir), (256, 256), batch=64)


def _transformer(data_dir: str | None) -> Functions:
    del data_dir  # the text comes with Python
    return character_task.transformer_task(character_task.text(), batch=16)


TASKS = {
    "mlp_mnist": Setting("MNIST, MLP 784-256-256-10", 938, _mlp),
    "transformer": Setting("characters, transformer", 600, _transformer),
}


def make_run(task: Functions, steps: int) -> Callable[[Any], Iterator[dict[str, Any]]]:
    """A run of a key that is measured on the way, at the params and at the average."""
    tx = optax.with_extra_args_support(mu2_optax.mu2_auto())
    measure = jax.jit(task.measure, static_argnums=2)

    advance = jax.jit(lambda carry, rows: run_steps(task, tx, carry, rows))

    def run(key: Any) -> Iterator[dict[str, Any]]:
        start_key, draw_key = jax.random.split(key)
        params, rows = task.init(start_key), task.draw(draw_key, steps)
        carry, done = (params, tx.init(params), ()), 0
        for share in MEASURED_AT:
            until = round(share * steps)
            params, state, _ = carry = advance(carry, rows[done:until])
            done = until
            average = mu2_optax.eval_params(state, params)
            row: dict[str, Any] = {"steps": done}
            for name, point in (("params", params), ("average", average)):
                accuracy, loss = measure(point, rows, "test")
                row |= {f"accuracy_{name}": f"{accuracy:.4f}", f"loss_{name}": f"{loss:.4f}"}
            yield row

    return run


def main() -> None:
    """Trains, prints and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", metavar="DIR", help="folder with MNIST's canonical files")
    parser.add_argument("--seeds", type=positive_int, default=3, metavar="N")
    parser.add_argument("--steps", type=positive_int, metavar="N", help="default: the task's own")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    args = parser.parse_args()
    rows = []
    for name in args.tasks:
        setting = TASKS[name]
        run = make_run(setting.make(args.data_dir), args.steps or setting.steps)
        for seed in range(args.seeds):
            for row in run(jax.random.key(seed)):
                rows.append({"task": setting.title, "seed": seed, **row})
                print(*rows[-1].values(), flush=True)
    write_rows(files.RESULTS / "forgotten_average" / "results.csv", rows)


if __name__ == "__main__":
    main()
