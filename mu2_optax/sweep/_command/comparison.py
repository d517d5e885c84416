"""``mu2-sweep --compare A B``: two finished runs on one page."""

import argparse
from pathlib import Path

from mu2_optax.sweep import SweepResult, load_results, write_comparison
from mu2_optax.sweep._analysis.metrics import shared_metrics
from mu2_optax.sweep._analysis.text import text_table
from mu2_optax.sweep._command.parsing import UsageError
from mu2_optax.sweep._command.plan import choose_metric
from mu2_optax.sweep._command.tasks import INITIAL

PAGE = "mu2-sweep-compare.html"
_APPLY = {"compare", "metric", "better", "tolerance", "out", "quiet", "command"}


def compare(options: argparse.Namespace, defaults: argparse.Namespace) -> str:
    """Writes the page, and returns what to print.

    Args:
      options: The options.
      defaults: The options of a command line that gives none.

    Raises:
      UsageError: If a folder holds no results, the runs have no metric in common, or an option is
        given that does not apply.
    """
    for name, value in vars(options).items():
        if name not in _APPLY and value != getattr(defaults, name):
            given = "MODULE:FUNCTION" if name == "function" else f"--{name.replace('_', '-')}"
            raise UsageError(f"--compare reads finished runs, so {given} does not apply.")
    runs = [_load(folder) for folder in options.compare]
    known = [shared_metrics(run) for run in runs]
    shared = [name for name in known[0] if name in known[1]]
    if not shared or (options.metric and options.metric not in shared):
        wanted = f"the metric {options.metric!r}" if options.metric else "no metric"
        verb = "is not in both runs" if options.metric else "is in both runs"
        listed = "; ".join(
            f"{folder} has {', '.join(own) or 'none'}"
            for folder, own in zip(options.compare, known, strict=True)
        )
        raise UsageError(f"{wanted} {verb}: {listed}.")
    metric, mode = choose_metric(options.metric, options.better, shared)
    initial = INITIAL.get(metric)
    if any(result.metrics and initial not in result.metrics for r in runs for result in r.values()):
        initial = None
    page = Path(options.out or ".") / PAGE
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out must name a folder, got {options.out} ({error}).") from error
    a, b = options.compare
    write_comparison(
        runs[0],
        runs[1],
        metric,
        page,
        names=(a, b),
        mode=mode,
        title=f"mu2-sweep: {Path(a).name} and {Path(b).name}",
        initial=initial,
        tolerance=options.tolerance,
    )
    tables = [text_table(run, metric, mode, initial, options.tolerance) for run in runs]
    listed = "".join(f"{f}:\n{t}\n\n" for f, t in zip((a, b), tables, strict=True))
    return f"{listed}The differences are in {page} (open it in a browser)."


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
