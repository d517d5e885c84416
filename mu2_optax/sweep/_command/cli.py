"""The command ``mu2-sweep``: how much does the learning rate matter, on this task?"""

import argparse
import importlib.util
import io
import itertools
import os
import shlex
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import mu2_optax
from mu2_optax.sweep import (
    SweepInterrupted,
    SweepResult,
    halving,
    plot_sweep,
    save_results,
    write_csv,
    write_report,
)
from mu2_optax.sweep import sweep as plain_sweep
from mu2_optax.sweep._command.optimizers import GROUPS, OPTIMIZERS
from mu2_optax.sweep._command.plan import UsageError, choose, make_plan
from mu2_optax.sweep._command.tasks import METRICS, TASKS
from mu2_optax.sweep._engine import Strategy
from mu2_optax.sweep._metrics import metric_mode
from mu2_optax.sweep._page import counts
from mu2_optax.sweep._summary import summarize, text_table

HELP = """\
Trains with each optimizer at each learning rate and seed, and shows what you get when you choose
nothing (mu2_auto), beside others as they come and tuned; by default on scikit-learn's digits.
Writes results.npz, results.csv, sweep.png and report.html into the run folder, prints a table.
"""
EXAMPLES = """\
examples:
  mu2-sweep
  mu2-sweep digits-mlp --optimizers mu2_auto,muon,adam --lrs 1e-3:1:log7 --seeds 10
  mu2-sweep --halving --lrs 1e-4:10:log16                  # only the best rates to the end
  mu2-sweep --ball 3                                       # the paper's optimizers and setting
  mu2-sweep --lrs 0.01,0.1,0.3,1 --out run --resume        # runs what is missing
  mu2-sweep my_module:train_fn                             # a task of your own: a function of
                                   # (optimizer, key) or (learning_rate, key), perhaps also `steps`

exit status: 0 done, 1 a run failed, 2 bad options, 130 interrupted (finished cells are kept).
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command with the arguments, those of the process if None; returns the status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for a terminal without μ
    arguments = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(arguments)
    options.command = shlex.join(["mu2-sweep", *arguments])
    try:
        return _run(options)
    except UsageError as error:
        print(f"mu2-sweep: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    names = textwrap.fill(", ".join(OPTIMIZERS), 98, subsequent_indent="  ")
    parser = argparse.ArgumentParser(
        "mu2-sweep",
        description=HELP,
        epilog=f"{EXAMPLES}\ntasks: {', '.join(TASKS)}\nmetrics of these: {', '.join(METRICS)}\n"
        f"groups of optimizers: {', '.join(GROUPS)}\noptimizers: {names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("task", nargs="?", default="digits", help="a built-in task, or MODULE:FUNCTION")
    add("--data", metavar="DIR", help="folder of MNIST's files (default: $MU2_OPTAX_DATA)")
    add("--optimizers", metavar="NAMES", help="with commas; also default or paper")
    rates = "learning rates: 1e-4:1e4:log9 or 0.01,0.1,1; each optimizer also runs at its published"
    add("--lrs", metavar="RATES", help=f"{rates} default, if it has one")
    add("--seeds", default="3", help="a number of seeds, or a list such as 0,7 (default: 3)")
    add("--steps", type=int, metavar="N", help="steps of training (default: the task's)")
    add("--ball", type=float, metavar="RADIUS", help="keep the params in an L2 ball, as the paper")
    add("--halving", action="store_true", help="run only the best rates to the end")
    add("--metric", metavar="NAME", help="metric of table and picture (default: the first)")
    add("--mode", choices=("min", "max"), help="which is better, if the metric's name does not say")
    add("--strategy", choices=get_args(Strategy), default="vmap", help="how the cells run")
    add("--out", metavar="DIR", help="run folder (default: a new mu2-sweep-TASK)")
    add("--resume", action="store_true", help="continue the run in --out, perhaps with more cells")
    add("--quiet", action="store_true", help="print only results and errors")
    add("--version", action="version", version=f"mu2-optax {mu2_optax.__version__}")
    return parser


def _run(options: argparse.Namespace) -> int:
    """Sweeps each optimizer, then writes and prints what there is; returns the status."""
    if not all(map(importlib.util.find_spec, ("altair", "vl_convert", "sklearn", "tqdm"))):
        raise UsageError("packages are missing: `pip install 'mu2-optax[sweep]'`.")
    name, rows, seeds, steps = make_plan(options)
    folder = _choose_folder(options, name)
    judged: Any = {"budgets": steps, "metric": options.metric, "mode": options.mode}
    halved = partial(halving, **judged)
    context = {"task": name, "ball": options.ball, "steps": steps}
    shared = {"strategy": options.strategy, "progress": not options.quiet, "context": context}
    status, results = 0, dict[str, SweepResult]()
    for label, row in rows.items():
        cells = folder / "cells" / label
        run: Callable[..., SweepResult] = halved if options.halving and row.rates else plain_sweep
        try:
            results[label] = run(row.train, row.rates, seeds, label=label, resume=cells, **shared)
        except SweepInterrupted as stop:
            status, results[label] = 130, stop.result
        except Exception as error:  # in the task's own code; the other optimizers may still work
            if str(cells) in str(error):  # what --resume has found there
                raise UsageError(str(error)) from error
            traceback.print_exc()
            print(f"mu2-sweep: {label} failed", file=sys.stderr)
            status = 1
            continue
        results[label].info.update(row.info, command=options.command)
        if status == 130:
            break
    if any(result.finished.any() for result in results.values()):
        _write(results, name, folder, options)
    if status == 130:
        print(f"mu2-sweep: interrupted; to go on, add --out {folder} --resume", file=sys.stderr)
    return status


def _choose_folder(options: argparse.Namespace, name: str) -> Path:
    """The run folder, by default a new one; one that holds a run is only reused with --resume."""
    folder = Path(options.out or f"mu2-sweep-{name}")
    numbered = (folder.with_name(f"{folder.name}-{i}") for i in itertools.count(2))
    if not options.out and not options.resume and folder.exists():
        folder = next(other for other in numbered if not other.exists())
    if options.resume != (folder / "cells").exists():
        found = "no run to resume" if options.resume else "a run already; continue it with --resume"
        raise UsageError(f"{folder} holds {found}, or name another folder with --out.")
    return folder


def _write(
    results: dict[str, SweepResult], name: str, folder: Path, options: argparse.Namespace
) -> None:
    """Writes the files, prints the table."""
    known = next(list(result.metrics) for result in results.values() if result.metrics)
    (metric,) = choose("metric", options.metric or known[0], known)
    try:
        mode = metric_mode(metric, options.mode)
    except ValueError as error:
        raise UsageError(f"{error} The cells are kept: add --out {folder} --resume.") from error
    save_results(folder / "results.npz", results)
    write_csv(folder / "results.csv", results)
    plot_sweep(results, metric, mode=mode, title=name).save(str(folder / "sweep.png"), ppi=200)
    write_report(folder / "report.html", results, metric, mode=mode, title=f"mu2-sweep: {name}")
    table = text_table(summarize(results, metric, mode))
    files = "report.html (open it in a browser), sweep.png, results.npz, results.csv"
    try:
        print(f"{table}\n{counts(results)}. In {folder}:\n{files}", flush=True)
    except BrokenPipeError:  # its reader has stopped, as `head` does; the files are written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
