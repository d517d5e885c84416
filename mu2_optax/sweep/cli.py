"""The command ``mu2-sweep``: how much does the learning rate matter, on this task?"""

import argparse
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mu2_optax._momentum import fixed_momentum, linear_momentum
from mu2_optax._projections import onto_l2_ball
from mu2_optax.sweep.data import DATA_VARIABLE
from mu2_optax.sweep.engine import SweepInterrupted, sweep
from mu2_optax.sweep.grid import make_grid
from mu2_optax.sweep.journal import JournalError
from mu2_optax.sweep.optimizers import OPTIMIZERS, make_optimizer
from mu2_optax.sweep.options import UsageError, choose, import_train, parse_rates, parse_seeds
from mu2_optax.sweep.plots import plot_sweep
from mu2_optax.sweep.report import table
from mu2_optax.sweep.result import SweepResult
from mu2_optax.sweep.storage import save_results
from mu2_optax.sweep.strategies import STRATEGIES
from mu2_optax.sweep.tasks import TASKS

METRICS = ("test_accuracy", "test_loss", "train_loss", "initial_loss")

DESCRIPTION = """\
Trains with each optimizer at each learning rate and seed, every sweep compiled once, and shows how
much the learning rate matters. Without arguments: logistic regression on scikit-learn's digits,
seven optimizers, rates 1e-4 ... 1e4, three seeds.

Writes results.json, results.csv and sweep.png into the run folder, and prints a table.
"""

EXAMPLES = f"""\
examples:
  mu2-sweep
  mu2-sweep --optimizers mu2_sgd,sgd --lrs 1e-3:1e3:log13 --seeds 10
  mu2-sweep --task mnist --data folder-with-idx-files
  mu2-sweep --lrs 0.01,0.1,1 --strategy loop --out run     # Ctrl-C, and then:
  mu2-sweep --lrs 0.01,0.1,1 --strategy loop --out run --resume
  mu2-sweep my_module:train_fn                             # a task of your own

a task of your own is a function in JAX from start to end that returns a dict of metrics:
  def train_fn(optimizer, key): ...      # an Optax optimizer, for each of --optimizers;
                                         # call optimizer.update(grads, state, params,
                                         #                       grad_fn=grad_fn, batch=batch)
  def train_fn(learning_rate, key): ...  # a traced number; the function chooses its optimizer
With --radius its optimizers have linear momenta and keep the params in the ball, as in the convex
experiments; without it they have fixed momenta and no projection, as for deep networks.

data: tasks that need files read them from --data, or from the folder in ${DATA_VARIABLE}.
exit status: 0 done, 1 a run failed, 2 bad options, 130 interrupted (finished cells are kept).
"""


def build_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="mu2-sweep",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("function", nargs="?", metavar="MODULE:FUNCTION", help="a task of your own")
    add("--task", metavar="NAME", help="a built-in task (default: digits; see --list)")
    add("--data", metavar="DIR", help="folder of the task's data, where it needs one")
    add("--optimizers", metavar="A,B,...", help="which to compare (default: all; see --list)")
    add(
        "--lrs",
        type=parse_rates,
        default="1e-4:1e4:log9",
        metavar="RATES",
        help="low:high:logN, low:high:linN or a list (default: %(default)s)",
    )
    add(
        "--seeds",
        type=parse_seeds,
        default="3",
        metavar="N",
        help="number of seeds, or a list of them (default: %(default)s)",
    )
    add(
        "--radius",
        type=float,
        metavar="R",
        help="radius of the ball that holds the params "
        "(default: the task's own; digits 3, mnist 1)",
    )
    add("--metric", metavar="NAME", help="metric of table and picture (default: test_accuracy)")
    add("--strategy", choices=STRATEGIES, default="auto", help="how cells run (default: auto)")
    add("--chunk-size", type=int, metavar="N", help="cells side by side, to bound memory")
    add("--out", metavar="DIR", help="run folder (default: a new mu2-sweep-TASK)")
    add("--resume", action="store_true", help="go on with the run in --out; no cell runs twice")
    add("--quiet", action="store_true", help="no progress bar")
    add("--list", action="store_true", help="list tasks, optimizers and metrics, and exit")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      argv: The arguments; those of the process if None.

    Returns:
      The exit status.
    """
    parser = build_parser()
    options = parser.parse_args(argv)
    if options.list:
        print(_listing())
        return 0
    try:
        return _run(options)
    except UsageError as error:
        print(f"mu2-sweep: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("mu2-sweep: interrupted before a cell had finished", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace) -> int:
    """Sweeps each optimizer, then writes and prints what there is."""
    start = time.perf_counter()
    name, trains = _trains(options)
    folder = _folder(options, name)
    try:
        make_grid(options.lrs, options.seeds)
    except ValueError as error:
        raise UsageError(str(error)) from error
    context = {"task": name, "radius": options.radius}
    results: dict[str, SweepResult] = {}
    status = 0
    for label, train in trains.items():
        try:
            results[label] = sweep(
                train,
                options.lrs,
                options.seeds,
                strategy=options.strategy,
                chunk_size=options.chunk_size,
                progress=not options.quiet,
                resume=folder / "journal" / f"{label}.jsonl",
                label=label,
                context=context,
            )
        except SweepInterrupted as interrupt:
            status = 130
            if interrupt.result.finished.any():
                results[label] = interrupt.result
            break
        except KeyboardInterrupt:
            status = 130
            break
        except JournalError as error:
            raise UsageError(str(error)) from error
        except Exception:  # of the task's own code; the other optimizers may still work
            traceback.print_exc()
            print(f"mu2-sweep: {label} failed", file=sys.stderr)
            status = 1
            continue
        print(f"{label} done, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    if results:
        _write(results, options.metric, folder, name)
    if status == 130:
        done = sum(int(result.finished.sum()) for result in results.values())
        print(
            f"mu2-sweep: interrupted; {done} finished cells are kept in {folder}; go on with "
            f"the same options and --out {folder} --resume",
            file=sys.stderr,
        )
    return status


def _trains(options: argparse.Namespace) -> tuple[str, dict[str, Callable[..., Any]]]:
    """The task's name, and a function of (learning_rate, key) for each label."""
    if options.function and options.task:
        raise UsageError("give --task or a function of your own, not both.")
    if options.radius is not None and not options.radius > 0:
        raise UsageError(f"--radius must be positive, got {options.radius:g}.")
    chosen = choose("optimizer", options.optimizers, OPTIMIZERS)
    if options.function:
        train, takes_optimizer = import_train(options.function)
        name = re.sub(r"[^\w.-]+", "-", options.function)
        if not takes_optimizer:
            if options.optimizers or options.radius:
                raise UsageError(
                    f"{options.function} takes a learning rate and chooses its own optimizer, so "
                    "--optimizers and --radius do not apply; let it take (optimizer, key)."
                )
            return name, {options.function.partition(":")[2]: train}
        momentum = fixed_momentum() if options.radius is None else linear_momentum()
    else:
        (name,) = choose("task", options.task or "digits", TASKS)
        task = TASKS[name]
        if options.metric is not None:
            choose("metric", options.metric, METRICS)
        options.metric = options.metric or METRICS[0]
        options.radius = task.radius if options.radius is None else options.radius
        momentum = task.momentum
        try:
            train = task.build(options.data)
        except (FileNotFoundError, ModuleNotFoundError, ValueError) as error:
            raise UsageError(str(error)) from error
    projection = None if options.radius is None else onto_l2_ball(options.radius)

    def with_rate(optimizer: str) -> Callable[[Any, Any], Any]:
        return lambda learning_rate, key: train(
            make_optimizer(optimizer, learning_rate, momentum, projection), key
        )

    return name, {optimizer: with_rate(optimizer) for optimizer in chosen}


def _folder(options: argparse.Namespace, name: str) -> Path:
    """The run folder: given, or the next free name; only --resume goes into an old one."""
    if options.out:
        folder = Path(options.out)
        if (folder / "journal").exists() and not options.resume:
            raise UsageError(
                f"{folder} holds a run already; go on with it by --resume, or choose another --out."
            )
        return folder
    names = [Path(f"mu2-sweep-{name}" + (f"-{i}" if i > 1 else "")) for i in range(1, 1000)]
    free = next(i for i, folder in enumerate(names) if not folder.exists())
    if not options.resume:
        return names[free]
    if free == 0:
        raise UsageError(f"there is no {names[0]} to resume; name the run folder with --out.")
    return names[free - 1]


def _write(results: Mapping[str, SweepResult], metric: str | None, folder: Path, name: str) -> None:
    """Writes the files, prints the table."""
    first = next(iter(results.values()))
    if metric is None:
        metric = next(iter(first.metrics))
    save_results(results, folder / "results.json")
    save_results(results, folder / "results.csv")
    choose("metric", metric, first.metrics)
    plot_sweep(results, metric, folder / "sweep.png", title=name)
    print(table(results, metric))
    diverged = sum(int(result.diverged().sum()) for result in results.values())
    total = sum(int(result.finished.sum()) for result in results.values())
    print(f"{total} cells, {diverged} diverged. results.json, results.csv, sweep.png: in {folder}")


def _listing() -> str:
    """Tasks, optimizers and metrics, each with a line about it."""
    width = max(map(len, (*TASKS, *OPTIMIZERS))) + 2
    lines = ["tasks:"]
    lines += [f"  {name.ljust(width)}{task.summary}" for name, task in TASKS.items()]
    lines.append("optimizers:")
    lines += [f"  {name.ljust(width)}{summary}" for name, (summary, _) in OPTIMIZERS.items()]
    lines.append("metrics (of the built-in tasks):")
    lines += [f"  {name}" for name in METRICS]
    return "\n".join(lines)
