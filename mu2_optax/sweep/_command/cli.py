"""The command ``mu2-sweep``: how much does the learning rate matter, on this task?"""

import argparse
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np

import mu2_optax
from mu2_optax.sweep import (
    ExecutorError,
    SweepInterrupted,
    SweepResult,
    halving,
    plot_sweep,
    save_results,
    sweep,
    write_report,
)
from mu2_optax.sweep._analysis.metrics import Mode
from mu2_optax.sweep._analysis.text import text_table
from mu2_optax.sweep._command.comparison import compare
from mu2_optax.sweep._command.optimizers import GROUPS, OPTIMIZERS
from mu2_optax.sweep._command.origin import with_origin
from mu2_optax.sweep._command.parsing import (
    UsageError,
    parse_count,
    parse_rates,
    parse_seeds,
    parse_tolerance,
    with_signs,
)
from mu2_optax.sweep._command.plan import (
    BALL_RATES,
    RATES,
    Plan,
    Row,
    choose_metric,
    make_plan,
    open_executor,
)
from mu2_optax.sweep._command.tasks import INITIAL, METRICS, TASKS
from mu2_optax.sweep._data import DATA_VARIABLE
from mu2_optax.sweep._engine import in_a_line
from mu2_optax.sweep._grid import LEARNING_RATE
from mu2_optax.sweep._results.journal import JournalError
from mu2_optax.sweep._run.layout import STRATEGIES

DESCRIPTION = """\
Trains with each optimizer at each learning rate and seed, every sweep compiled once, and shows what
you get when you choose nothing (mu2_auto), beside others as they come and tuned. Without arguments:
logistic regression on scikit-learn's digits, five optimizers, eight rates, three seeds.

Writes results.json, results.csv, sweep.png and report.html (everything on one page that needs no
network) into the run folder, and prints a table.
"""

EXAMPLES = f"""\
examples:
  mu2-sweep
  mu2-sweep --optimizers mu2_auto,muon,adam --lrs 1e-3:1:log7 --seeds 10
  mu2-sweep --halving --lrs 1e-4:10:log16                  # only the best rates to the end
  mu2-sweep --ball 3                                       # the paper's optimizers and setting
  mu2-sweep --task mnist --data folder-with-idx-files
  mu2-sweep --lrs 0.01,0.1,1 --strategy loop --out run     # Ctrl-C, and then:
  mu2-sweep --lrs 0.01,0.1,1 --strategy loop --out run --resume
  mu2-sweep --lrs 0.01,0.1,0.3,1 --strategy loop --out run --resume    # runs 0.3 alone
  mu2-sweep --compare run other-run                        # two runs, on one page
  mu2-sweep my_module:train_fn                             # a task of your own
  mu2-sweep my_module:train_fn --strategy python           # not traced: an ordinary function
  mu2-sweep --strategy loop --workers 8                    # on processes of this machine
  mu2-sweep --strategy loop --scheduler tcp://host:8786    # on those of a Dask cluster

a task of your own is a function that returns a dict of metrics, in JAX from start to end:
  def train_fn(optimizer, key): ...      # an Optax optimizer, for each of --optimizers;
                                         # call optimizer.update(grads, state, params,
                                         #                       grad_fn=grad_fn, batch=batch)
                                         # and evaluate at optimizer.eval_params(state, params)
  def train_fn(learning_rate, key): ...  # a traced number; the function chooses its optimizer
Either may take `steps` too, which is then the value of --steps.

With --ball the paper's optimizers have linear momenta and all keep the params in the ball, as in
the convex experiments; without it they have fixed momenta and no projection, as for networks.

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
    add(
        "--optimizers",
        metavar="A,B,...",
        help="which to compare; also a group: default, paper, all (see --list)",
    )
    add(
        "--lrs",
        type=parse_rates,
        metavar="RATES",
        help=f"learning rates: low:high:logN, low:high:linN or a list (default: {RATES}; with "
        f"--ball {BALL_RATES}); each optimizer also runs at its published default, if it has one",
    )
    add(
        "--seeds",
        type=parse_seeds,
        default="3",
        metavar="N",
        help="number of seeds, or a list of them (default: %(default)s)",
    )
    add("--steps", type=parse_count, metavar="N", help="steps of training (default: the task's)")
    add(
        "--ball",
        type=float,
        metavar="RADIUS",
        help="keep the params in an L2 ball, as in the paper; its optimizers are then the default",
    )
    add("--metric", metavar="NAME", help="metric of table and picture (default: the task's first)")
    add(
        "--better",
        choices=("high", "low"),
        help="which way the metric is better, where its name does not tell",
    )
    add(
        "--tolerance",
        type=parse_tolerance,
        metavar="X",
        help="how far from the best a plateau goes (default: 0.02 for an accuracy, 5 %% of the way "
        "from before training for a loss)",
    )
    add(
        "--halving",
        action="store_true",
        help="stop hopeless rates: all for 1/16 of the steps, the best quarter for 1/4, and the "
        "best of those to the end",
    )
    add("--strategy", choices=STRATEGIES, default="auto", help="how cells run (default: auto)")
    add("--chunk-size", type=parse_count, metavar="N", help="cells side by side, to bound memory")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--scheduler", metavar="ADDRESS", help="run on the workers of this Dask scheduler"
    )
    where.add_argument(
        "--workers", type=parse_count, metavar="N", help="run on N processes of this machine"
    )
    add("--out", metavar="DIR", help="run folder (default: a new mu2-sweep-TASK)")
    add(
        "--resume",
        action="store_true",
        help="go on with the run in --out, perhaps with more rates, seeds or optimizers; what has "
        "finished stays",
    )
    add("--compare", nargs=2, metavar=("A", "B"), help="compare the runs in two folders, on a page")
    add("--quiet", action="store_true", help="print results and errors alone")
    add("--list", action="store_true", help="list tasks, optimizers and metrics, and exit")
    add("--version", action="version", version=f"mu2-optax {mu2_optax.__version__}")
    return parser


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
        _say(_listing())
        return 0
    try:
        if options.compare:
            _say(compare(options, parser.parse_args([])))
            return 0
        with ExitStack() as stack:
            return _run(options, stack)
    except UsageError as error:
        print(f"mu2-sweep: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # of a file of the run, such as a full disk
        print(
            f"mu2-sweep: {error}; finished cells are kept in the journal: make room, and go on "
            "with the same options and --resume",
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print("mu2-sweep: interrupted before a cell had finished", file=sys.stderr)
        return 130


def _run(options: argparse.Namespace, stack: ExitStack) -> int:
    """Sweeps each optimizer, then writes and prints what there is."""
    start = time.perf_counter()
    plan = make_plan(options)
    executor = stack.enter_context(open_executor(options))
    stopped = ""
    results: dict[str, SweepResult] = {}
    status = 0
    for label, row in plan.rows.items():
        journal = plan.folder / "journal" / f"{label}.jsonl"
        try:
            results[label] = _way(row, plan, options)(
                row.train,
                row.rates and row.rates[LEARNING_RATE],
                plan.seeds.tolist(),
                strategy=options.strategy,
                chunk_size=options.chunk_size,
                progress=not options.quiet,
                resume=journal,
                label=label,
                context=plan.context,
                executor=executor,
                check=lambda known: _check_metric(options, known),
            )
        except (SweepInterrupted, ExecutorError) as stop:
            status, stopped = 130, "interrupted"
            if isinstance(stop, ExecutorError):
                status, stopped = 1, f"{label}: the cluster was lost ({stop.__cause__!r})"
            if stop.result is not None and stop.result.finished.any():
                results[label] = stop.result
            break
        except KeyboardInterrupt:
            status, stopped = 130, "interrupted"
            break
        except JournalError as error:
            raise UsageError(str(error)) from error
        except UsageError:
            raise
        except Exception as error:  # of the task's own code; the other optimizers may still work
            if isinstance(error, OSError) and error.filename == str(journal):
                raise
            traceback.print_exc()
            print(f"mu2-sweep: {label} failed", file=sys.stderr)
            results[label] = _all_failed(error, row, plan, label)
            status = 1
            continue
        if not options.quiet:
            print(f"{label} done, {time.perf_counter() - start:.0f} s", file=sys.stderr)
    for label, result in results.items():  # for tables and pictures
        result.info["untouched"] = plan.rows[label].untouched
    if any(result.metrics for result in results.values()):
        _write(results, plan, options)
    if stopped:
        done = sum(int(result.finished.sum()) for result in results.values())
        print(
            f"mu2-sweep: {stopped}; {done} finished cells are kept in {plan.folder}; go on with "
            f"the same options and --out {plan.folder} --resume",
            file=sys.stderr,
        )
    return status


def _way(row: Row, plan: Plan, options: argparse.Namespace) -> Callable[..., SweepResult]:
    """How a row is run: all of it to the end, or with --halving the best of its rates."""
    if not options.halving or not row.rates or plan.steps is None:
        return sweep
    mode: Mode | None = (
        None if options.better is None else "max" if options.better == "high" else "min"
    )
    return partial(halving, budgets=plan.steps, metric=options.metric, mode=mode)


def _all_failed(error: Exception, row: Row, plan: Plan, label: str) -> SweepResult:
    """The result of a sweep that raised: each cell that had not finished failed by that error."""
    result = getattr(error, "result", None)
    if not isinstance(result, SweepResult):  # nothing had run yet
        shape = (*map(len, row.rates.values()), len(plan.seeds))
        result = SweepResult({}, dict(row.rates), plan.seeds, np.zeros(shape, bool))
    cells = (tuple(map(int, cell)) for cell in np.argwhere(~result.finished))
    errors = result.errors | dict.fromkeys(cells, in_a_line(error))
    return replace(result, label=label, finished=np.ones(result.shape, bool), errors=errors)


def _check_metric(options: argparse.Namespace, known: Mapping[str, object]) -> None:
    """Refuses a metric that table and picture could not show, before anything has run."""
    choose_metric(options.metric, options.better, known)


def _write(results: Mapping[str, SweepResult], plan: Plan, options: argparse.Namespace) -> None:
    """Writes the files, prints the table."""
    known = next(result.metrics for result in results.values() if result.metrics)
    metric, mode = choose_metric(options.metric, options.better, known)
    initial = INITIAL.get(metric) if plan.name in TASKS else None
    built_in = plan.name in TASKS
    results = with_origin(results, options.command, options.ball, plan.steps, built_in=built_in)
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
    _say(
        f"{text_table(results, metric, mode, initial, options.tolerance)}\n"
        f"{total} cells{halved}, {diverged} diverged{f', {failed} failed' if failed else ''}. "
        f"In {plan.folder}:\n"
        "report.html (open it in a browser), sweep.png, results.json, results.csv"
    )


def _say(text: str) -> None:
    """Prints, also to a reader such as ``head`` that has gone away."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at the end


def _listing() -> str:
    """Tasks, optimizers and metrics, each with a line about it."""
    width = max(map(len, (*TASKS, *OPTIMIZERS))) + 2
    lines = ["tasks:"]
    lines += [f"  {name.ljust(width)}{task.summary}" for name, task in TASKS.items()]
    lines.append("optimizers:")
    lines += [f"  {name.ljust(width)}{known.summary}" for name, known in OPTIMIZERS.items()]
    lines.append("groups of optimizers:")
    for name, members in GROUPS.items():
        listed = "every one of them" if len(members) == len(OPTIMIZERS) else ", ".join(members)
        lines.append(f"  {name.ljust(width)}{listed}")
    lines.append("metrics (of the built-in tasks):")
    lines += [f"  {name}" for name in METRICS]
    return "\n".join(lines)
