"""The command ``mu2-sweep``: how much does the learning rate matter, on this task?"""

import argparse
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from mu2_optax.sweep import (
    ExecutorError,
    SweepResult,
    halving,
    load_results,
    plot_sweep,
    save_results,
    sweep,
    write_comparison,
    write_report,
)
from mu2_optax.sweep._analysis.metrics import shared_metrics
from mu2_optax.sweep._analysis.text import text_table
from mu2_optax.sweep._command.names import UsageError, open_executor
from mu2_optax.sweep._command.options import build_parser, listing, with_signs
from mu2_optax.sweep._command.plan import MODES, Plan, Row, choose_metric, make_plan
from mu2_optax.sweep._command.tasks import INITIAL, TASKS
from mu2_optax.sweep._grid import make_grid
from mu2_optax.sweep._results.cells import in_a_line
from mu2_optax.sweep._results.journal import JournalError

# The options that --compare heeds.
_COMPARED = {"compare", "metric", "better", "tolerance", "out", "quiet", "command"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
      argv: The arguments; those of the process if None.

    Returns:
      The exit status.
    """
    parser = build_parser()
    arguments = sys.argv[1:] if argv is None else argv
    options = parser.parse_args(with_signs(arguments))
    options.command = shlex.join(["mu2-sweep", *arguments])
    if options.list:
        _print(listing())
        return 0
    try:
        if options.compare:
            _print(_compare(options, parser.parse_args([])))
            return 0
        plan = make_plan(options)
        with open_executor(options) as executor:
            return _run(plan, options, executor)
    except (UsageError, JournalError) as error:
        print(f"mu2-sweep: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # writing a file of the run failed: the disk is full, say
        print(
            f"mu2-sweep: {error}; finished cells are kept in the journal: make room, and "
            "continue with the same options and --resume",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("mu2-sweep: interrupted before a cell had finished", file=sys.stderr)
        return 130


def _run(plan: Plan, options: argparse.Namespace, executor: Executor | None) -> int:
    """Sweeps each optimizer, then writes and prints what there is."""
    start = time.perf_counter()
    status, stopped = 0, ""
    results: dict[str, SweepResult] = {}
    for label, row in plan.rows.items():
        journal = plan.folder / "journal" / f"{label}.jsonl"
        try:
            results[label] = _choose_sweep(row, plan, options)(
                row.train,
                row.rates,
                plan.seeds.tolist(),
                strategy=options.strategy,
                chunk_size=options.chunk_size,
                progress=not options.quiet,
                resume=journal,
                label=label,
                context=plan.context,
                executor=executor,
                check=partial(choose_metric, options.metric, options.better),
            )
        except (KeyboardInterrupt, ExecutorError) as stop:
            status, stopped = 130, "interrupted"
            if isinstance(stop, ExecutorError):
                status, stopped = 1, f"{label}: the cluster was lost ({stop.__cause__!r})"
            result = getattr(stop, "result", None)
            if result is not None and result.finished.any():
                results[label] = result
            break
        except (UsageError, JournalError):
            raise
        except Exception as error:  # in the task's own code; the other optimizers may still work
            if isinstance(error, OSError) and error.filename == str(journal):
                raise
            traceback.print_exc()
            print(f"mu2-sweep: {label} failed", file=sys.stderr)
            results[label] = _all_failed(error, row, plan, label)
            status = 1
            continue
        if not options.quiet:
            print(f"{label} done, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    for label, result in results.items():
        result.info.update(plan.rows[label].info, command=options.command)
    if any(result.metrics for result in results.values()):
        _write(results, plan, options)
    if stopped:
        done = sum(int(result.finished.sum()) for result in results.values())
        print(
            f"mu2-sweep: {stopped}; {done} finished cells are kept in {plan.folder}; continue with "
            f"the same options and --out {plan.folder} --resume",
            file=sys.stderr,
        )
    return status


def _choose_sweep(row: Row, plan: Plan, options: argparse.Namespace) -> Callable[..., SweepResult]:
    """What runs a row: every rate to the end, or with --halving only the best."""
    if not options.halving or not row.rates or plan.steps is None:
        return sweep
    mode = MODES.get(options.better)
    return partial(halving, budgets=plan.steps, metric=options.metric, mode=mode)


def _all_failed(error: Exception, row: Row, plan: Plan, label: str) -> SweepResult:
    """The result of a sweep that raised: what had not finished has failed, with that error."""
    result = getattr(error, "result", None)
    if not isinstance(result, SweepResult):  # nothing had run yet
        grid = make_grid(row.rates, plan.seeds.tolist())
        result = SweepResult({}, grid.axes, grid.seeds, np.zeros(grid.shape, bool))
    cells = map(tuple, np.argwhere(~result.finished).tolist())
    errors = result.errors | dict.fromkeys(cells, in_a_line(error))
    return replace(result, label=label, finished=np.ones(result.shape, bool), errors=errors)


def _write(results: Mapping[str, SweepResult], plan: Plan, options: argparse.Namespace) -> None:
    """Writes the files, prints the table."""
    known = next(result.metrics for result in results.values() if result.metrics)
    metric, mode = choose_metric(options.metric, options.better, known)
    initial = INITIAL.get(metric) if plan.name in TASKS else None
    save_results(results, plan.folder / "results.json")
    save_results(results, plan.folder / "results.csv")
    plot_sweep(results, metric, plan.folder / "sweep.png", mode=mode, title=plan.name)
    write_report(
        results,
        metric,
        plan.folder / "report.html",
        mode=mode,
        title=f"mu2-sweep: {plan.name}",
        initial=initial,
        tolerance=options.tolerance,
    )
    failed = sum(int(result.failed().sum()) for result in results.values())
    diverged = sum(int(result.diverged().sum()) for result in results.values()) - failed
    total = sum(int(result.finished.sum()) for result in results.values())
    shares = [r.info["halving"]["share"] for r in results.values() if "halving" in r.info]
    halved = f", by halving with {max(shares) * 100:.0f} % of the steps" if shares else ""
    _print(
        f"{text_table(results, metric, mode, initial, options.tolerance)}\n"
        f"{total} cells{halved}, {diverged} diverged{f', {failed} failed' if failed else ''}. "
        f"In {plan.folder}:\n"
        "report.html (open it in a browser), sweep.png, results.json, results.csv"
    )


def _compare(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """Writes a page about two finished runs, and returns what to print.

    ``defaults`` are the options of a command line that gives none: others do not apply.
    """
    for name, value in vars(options).items():
        if name not in _COMPARED and value != getattr(defaults, name):
            given = "MODULE:FUNCTION" if name == "function" else f"--{name.replace('_', '-')}"
            raise UsageError(f"--compare reads finished runs, so {given} does not apply.")
    a, b = options.compare
    runs = (_load(a), _load(b))
    known = [shared_metrics(run) for run in runs]
    shared = [name for name in known[0] if name in known[1]]
    if not shared or (options.metric and options.metric not in shared):
        wanted = f"the metric {options.metric!r} is not" if options.metric else "no metric is"
        of_a, of_b = (", ".join(names) or "none" for names in known)
        raise UsageError(f"{wanted} in both runs: {a} has {of_a}; {b} has {of_b}.")
    metric, mode = choose_metric(options.metric, options.better, shared)
    initial = INITIAL.get(metric)
    if any(result.metrics and initial not in result.metrics for r in runs for result in r.values()):
        initial = None
    page = Path(options.out or ".") / "mu2-sweep-compare.html"
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out must name a folder, got {options.out} ({error}).") from error
    write_comparison(
        *runs,
        metric,
        page,
        names=(a, b),
        mode=mode,
        title=f"mu2-sweep: {Path(a).name} and {Path(b).name}",
        initial=initial,
        tolerance=options.tolerance,
    )
    first, second = (text_table(r, metric, mode, initial, options.tolerance) for r in runs)
    return (
        f"{a}:\n{first}\n\n{b}:\n{second}\n\nThe differences are in {page} (open it in a browser)."
    )


def _load(folder: str) -> dict[str, SweepResult]:
    file = Path(folder) / "results.json"
    if not file.is_file():
        raise UsageError(
            f"--compare needs two folders of finished runs, and {folder} holds no results.json; "
            "name folders that were the --out of a run."
        )
    try:
        results = load_results(file)
    except (OSError, ValueError) as error:
        raise UsageError(str(error)) from error
    if not any(result.metrics for result in results.values()):
        raise UsageError(f"--compare needs finished cells, and {file} has none; --resume that run.")
    return results


def _print(text: str) -> None:
    """Prints, even if the reader, such as ``head``, has gone away."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end
