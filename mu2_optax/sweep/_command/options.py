"""The options of ``mu2-sweep``, their values, its help, and what ``--list`` prints."""

import argparse
import re
from collections.abc import Sequence

import numpy as np

import mu2_optax
from mu2_optax.sweep._command.optimizers import GROUPS, OPTIMIZERS
from mu2_optax.sweep._command.tasks import METRICS, TASKS
from mu2_optax.sweep._data import DATA_VARIABLE
from mu2_optax.sweep._run.layout import STRATEGIES

# The rates if none are given; the published defaults of the default optimizers are among them.
RATES = "1e-4,1e-3,2.5e-3,0.01,0.1,1,10,100"
BALL_RATES = "1e-4:1e4:log9"  # with --ball: those of the paper

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
  mu2-sweep --lrs 0.01,0.1,0.3,1 --strategy loop --out run --resume    # runs only 0.3
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
        help="whether high or low is better, if the metric's name does not say so",
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
    either = parser.add_mutually_exclusive_group().add_argument
    either("--scheduler", metavar="ADDRESS", help="run on the workers of this Dask scheduler")
    either("--workers", type=parse_count, metavar="N", help="run on N processes of this machine")
    add("--out", metavar="DIR", help="run folder (default: a new mu2-sweep-TASK)")
    add(
        "--resume",
        action="store_true",
        help="continue the run in --out, perhaps with more rates, seeds or optimizers; finished "
        "cells are kept",
    )
    add("--compare", nargs=2, metavar=("A", "B"), help="compare the runs in two folders, on a page")
    add("--quiet", action="store_true", help="print only results and errors")
    add("--list", action="store_true", help="list tasks, optimizers and metrics, and exit")
    add("--version", action="version", version=f"mu2-optax {mu2_optax.__version__}")
    return parser


def listing() -> str:
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


def parse_rates(text: str) -> list[float]:
    """Learning rates from ``low:high:logN``, ``low:high:linN`` or a comma-separated list.

    Examples:
      >>> parse_rates("1e-2:1e2:log5")
      [0.01, 0.1, 1.0, 10.0, 100.0]
      >>> parse_rates("0.1, 3")
      [0.1, 3.0]
    """
    try:
        if ":" not in text:
            rates = [float(part) for part in text.split(",")]
        else:
            low, high, spacing = text.split(":")
            count = int(spacing[3:])
            if spacing[:3] not in ("log", "lin") or count < 2:
                raise ValueError
            space = np.geomspace if spacing.startswith("log") else np.linspace
            rates = [float(f"{rate:.12g}") for rate in space(float(low), float(high), count)]
    except ValueError:
        raise argparse.ArgumentTypeError(
            "rates must look like 1e-4:1e4:log9, 0.1:1:lin10 or 0.01,0.1,1, and go from low to "
            f"high in at least 2, got {text!r}"
        ) from None
    if not all(0 < rate < np.inf for rate in rates):
        raise argparse.ArgumentTypeError(f"rates must be positive and finite, got {text!r}")
    return rates


def parse_seeds(text: str) -> int | list[int]:
    """A number of seeds (``3``), or the seeds themselves (``0,1,7``; ``7,`` for one).

    Examples:
      >>> parse_seeds("3"), parse_seeds("0,7")
      (3, [0, 7])
    """
    try:
        if "," not in text:
            return int(text)
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"seeds must be a number such as 3, or a list such as 0,1,7, got {text!r}"
        ) from None


def parse_count(text: str) -> int:
    """A positive whole number.

    Examples:
      >>> parse_count("8")
      8
    """
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def parse_tolerance(text: str) -> float:
    """A number that is finite and not negative.

    Examples:
      >>> parse_tolerance("0.05")
      0.05
    """
    try:
        tolerance = float(text)
    except ValueError:
        tolerance = -1.0
    if not 0 <= tolerance < np.inf:
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text!r}")
    return tolerance


def with_signs(arguments: Sequence[str]) -> list[str]:
    """The arguments, with values such as ``-1,1`` bound to the options before them.

    Otherwise ``argparse`` would take such a value for an option.

    Examples:
      >>> with_signs(["--lrs", "-1,1", "--quiet"])
      ['--lrs=-1,1', '--quiet']
    """
    bound: list[str] = []
    for argument in arguments:
        if bound and re.fullmatch(r"--[a-z-]+", bound[-1]) and re.match(r"-[\d.]", argument):
            bound[-1] += f"={argument}"
        else:
            bound.append(argument)
    return bound
