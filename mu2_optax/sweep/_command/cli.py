"""The command ``mu2-sweep``: how much does the learning rate matter, on this task?"""

import argparse
import importlib.util
import io
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

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
from mu2_optax.sweep._command.plan import Row, UsageError, choose, make_plan
from mu2_optax.sweep._command.tasks import INITIAL, METRICS, TASKS
from mu2_optax.sweep._engine import Strategy, in_a_line
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._metrics import Mode, metric_mode
from mu2_optax.sweep._page import counts
from mu2_optax.sweep._summary import summarize, text_table

HELP = """\
Trains with each optimizer at each learning rate and seed, every sweep compiled once, and shows what
you get when you choose nothing (mu2_auto), beside others as they come and tuned. Without arguments:
logistic regression on scikit-learn's digits, five optimizers, eight rates, three seeds. Writes
results.npz, results.csv, sweep.png and report.html into the run folder, and prints a table.
"""
EXAMPLES = """\
examples:
  mu2-sweep
  mu2-sweep --optimizers mu2_auto,muon,adam --lrs 1e-3:1:log7 --seeds 10
  mu2-sweep --halving --lrs 1e-4:10:log16                  # only the best rates to the end
  mu2-sweep --ball 3                                       # the paper's optimizers and setting
  mu2-sweep --lrs 0.01,0.1,1 --out run                     # Ctrl-C, and then:
  mu2-sweep --lrs 0.01,0.1,0.3,1 --out run --resume        # runs what is missing
  mu2-sweep my_module:train_fn                             # a task of your own: a function of
                                   # (optimizer, key) or (learning_rate, key), perhaps also `steps`
  mu2-sweep my_module:train_fn --strategy python           # not traced: an ordinary function

exit status: 0 done, 1 a run failed, 2 bad options, 130 interrupted (finished cells are kept).
"""
MODES: dict[str | None, Mode] = {"high": "max", "low": "min"}  # by the value of --better


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command with the arguments, those of the process if None; returns the status."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # for a terminal without μ
    arguments = sys.argv[1:] if argv is None else argv
    options = _parser().parse_args(arguments)
    options.command = shlex.join(["mu2-sweep", *arguments])
    try:
        if options.list:
            _print(_listing())
            return 0
        return _run(options)
    except UsageError as error:
        print(f"mu2-sweep: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # writing failed: the disk is full, say
        print(f"mu2-sweep: {error}; make room, and continue with --resume", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "mu2-sweep", None, HELP, EXAMPLES, formatter_class=layout, allow_abbrev=False
    )
    texts = {
        "task": "a built-in task (default: digits; see --list)",
        "data": "folder of MNIST's files (default: $MU2_OPTAX_DATA)",
        "optimizers": "names with commas, or default, paper or all (see --list)",
        "lrs": "learning rates: 1e-4:1e4:log9, 0.1:1:lin10 or 0.01,0.1,1; each optimizer also runs "
        "at its published default, if it has one",
        "seeds": "a number of seeds, or a list such as 0,7 (default: 3)",
        "metric": "metric of table and picture (default: the first)",
        "out": "run folder (default: a new mu2-sweep-TASK)",
    }
    add = parser.add_argument
    add("function", nargs="?", metavar="MODULE:FUNCTION", help="a task of your own")
    for name, text in texts.items():
        add(f"--{name}", metavar=name.upper(), help=text, default="3" if name == "seeds" else None)
    add("--better", choices=tuple(MODES), help="which is, if the metric's name does not say so")
    add("--steps", type=_count, help="steps of training (default: the task's)")
    add("--ball", type=float, help="keep the params in an L2 ball of this radius (the paper's)")
    add("--halving", action="store_true", help="run only the best rates to the end")
    add("--strategy", choices=get_args(Strategy), default="vmap", help="how the cells run")
    add("--chunk-size", type=_count, help="cells side by side, to bound memory")
    add("--resume", action="store_true", help="continue the run in --out, perhaps with more cells")
    add("--quiet", action="store_true", help="print only results and errors")
    add("--list", action="store_true", help="list tasks, optimizers and metrics")
    add("--version", action="version", version=f"mu2-optax {mu2_optax.__version__}")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _listing() -> str:
    """Tasks, optimizers and metrics, each with a line about it."""
    tasks = {name: task.summary for name, task in TASKS.items()}
    optimizers = {name: contender.summary for name, contender in OPTIMIZERS.items()}
    groups = {name: ", ".join(members) for name, members in GROUPS.items()}
    metrics = dict.fromkeys(METRICS, "")
    headings = ("tasks", "optimizers", "groups of optimizers", "metrics of these tasks")
    lines = []
    for heading, entries in zip(headings, (tasks, optimizers, groups, metrics), strict=True):
        lines += [f"{heading}:", *(f"  {k.ljust(21)}{v}".rstrip() for k, v in entries.items())]
    return "\n".join(lines)


def _run(options: argparse.Namespace) -> int:
    """Sweeps each optimizer, then writes and prints what there is; returns the status."""
    if not all(map(importlib.util.find_spec, ("altair", "vl_convert"))):
        raise UsageError("Altair and vl-convert are missing: `pip install 'mu2-optax[sweep]'`.")
    plan = make_plan(options)
    folder = _choose_folder(options, plan.name)
    run: Callable[..., SweepResult] = plain_sweep
    shared: dict[str, Any] = {"strategy": options.strategy, "chunk_size": options.chunk_size}
    shared["progress"] = not options.quiet
    shared["context"] = {"task": plan.name, "ball": options.ball, "steps": plan.steps}
    status, results = 0, dict[str, SweepResult]()
    for label, row in plan.rows.items():
        cells = folder / "cells" / label
        if options.halving and row.rates:
            assert plan.steps is not None  # `make_plan` has looked
            mode = MODES.get(options.better)
            run = partial(halving, budgets=plan.steps, metric=options.metric, mode=mode)
        try:
            results[label] = run(
                row.train, row.rates, plan.seeds, label=label, resume=cells, **shared
            )
        except SweepInterrupted as stop:
            status, results[label] = 130, stop.result
        except Exception as error:  # in the task's own code; the other optimizers may still work
            if str(cells) in str(error):  # what --resume has found there, or a full disk
                raise error if isinstance(error, OSError) else UsageError(str(error)) from error
            traceback.print_exc()
            print(f"mu2-sweep: {label} failed", file=sys.stderr)
            status, results[label] = 1, _failed(row, plan.seeds, label, error)
        results[label].info.update(row.info, command=options.command)
        if status == 130:
            break
    if any(result.metrics and result.finished.any() for result in results.values()):
        _write(results, plan.name, folder, options)
    if status == 130:
        where = f"--out {folder} --resume"
        print(f"mu2-sweep: interrupted; go on with the same options and {where}", file=sys.stderr)
    return status


def _failed(row: Row, seeds: int | list[int], label: str, error: Exception) -> SweepResult:
    """The result of a sweep that raised: every cell has failed, with that error."""
    grid = make_grid(row.rates, seeds)
    errors = dict.fromkeys(np.ndindex(grid.shape), in_a_line(error))
    return SweepResult({}, grid.axes, grid.seeds, np.ones(grid.shape, bool), errors, label)


def _choose_folder(options: argparse.Namespace, name: str) -> Path:
    """The run folder: given, or the next free name; only --resume reuses an old one."""
    names = [Path(f"mu2-sweep-{name}" + (f"-{i}" if i > 1 else "")) for i in range(1, 1000)]
    free = next(i for i, folder in enumerate(names) if not folder.exists())
    folder = Path(options.out or names[max(free - 1, 0) if options.resume else free])
    if options.resume != (folder / "cells").exists():
        found = "no run to resume" if options.resume else "a run already; continue it with --resume"
        raise UsageError(f"{folder} holds {found}, or name another folder with --out.")
    if any(place.exists() and not place.is_dir() for place in (folder, *folder.parents)):
        raise UsageError(f"--out must name a folder, got {folder}, which is or lies in a file.")
    return folder


def _write(
    results: dict[str, SweepResult], name: str, folder: Path, options: argparse.Namespace
) -> None:
    """Writes the files, prints the table."""
    known = next(list(result.metrics) for result in results.values() if result.metrics)
    (metric,) = choose("metric", options.metric or known[0], known)
    try:
        mode = metric_mode(metric, MODES.get(options.better))
    except ValueError as error:
        raise UsageError(f"{error} The cells are kept: add --out {folder} --resume.") from error
    initial = INITIAL.get(metric) if name in TASKS else None
    save_results(folder / "results.npz", results)
    write_csv(folder / "results.csv", results)
    plot_sweep(results, metric, mode=mode, title=name).save(str(folder / "sweep.png"), ppi=200)
    title = f"mu2-sweep: {name}"
    write_report(results, metric, folder / "report.html", mode=mode, title=title, initial=initial)
    _print(
        f"{text_table(summarize(results, metric, mode, initial))}\n"
        f"{counts(results)}. In {folder}:\n"
        "report.html (open it in a browser), sweep.png, results.npz, results.csv"
    )


def _print(text: str) -> None:
    """Prints, even if the reader, such as ``head``, has gone away."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
