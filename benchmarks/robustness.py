"""μ² beside the strongest peers that Optax has, at equal steps and at equal gradient evaluations.

    python -m benchmarks.robustness --data mnist                # logistic regression
    python -m benchmarks.robustness --data fashion-mnist
    python -m benchmarks.robustness --task cnn --data mnist     # the paper's CNN

μ²-SGD, μ²-ExtraSGD and μ² around Adam; SGD, momentum SGD and Adam; schedule-free SGD and AdamW,
Prodigy and DoG (all four from ``optax.contrib``). Logistic regression is run with each tensor in
its unit ball, and not constrained at all. At equal evaluations an optimizer with k gradients a step
takes a k-th of SGD's steps. Each command prints the measures and writes ``results.csv`` (a row per
run), ``results.json``, ``measures.csv`` (plateau width, stability ratio, learning-rate sensitivity
and best accuracy, with 95 % intervals over seeds), pictures and ``run.json`` into
``benchmarks/results/robustness_<task>_<data>``. Runs that ``benchmarks/paper`` has already made in
the same setting are taken from its results; ``--fresh`` makes them again. A command that was
stopped goes on where it was.
"""

import argparse
import shutil
import sys
import time
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parent / "paper"),
    str(Path(__file__).resolve().parents[1] / "examples"),
]

import convex  # noqa: E402
import data as datasets  # noqa: E402  (examples/data.py)
import figures  # noqa: E402
import logistic  # noqa: E402
import measures  # noqa: E402
import network  # noqa: E402
import nonconvex  # noqa: E402
import records  # noqa: E402
from optimizers import GRADIENTS, TITLES  # noqa: E402

from mu2_optax.sweep import save_results  # noqa: E402

OPTIMIZERS = (
    "mu2_sgd",
    "mu2_extra_sgd",
    "mu2_adam",
    "sgd",
    "momentum",
    "adam",
    "schedule_free_sgd",
    "schedule_free_adamw",
    "prodigy",
    "dog",
)
PROJECTIONS = ("per_tensor", "none")
BUDGET_TITLES = {"steps": "equal steps", "evaluations": "equal gradient evaluations"}


def budgets(optimizers: tuple[str, ...], steps: int) -> list[tuple[str, int]]:
    """Every optimizer with each number of steps that it is run for."""
    pairs = [(name, steps) for name in optimizers]
    return pairs + [(name, steps // GRADIENTS[name]) for name, _ in pairs if GRADIENTS[name] > 1]


def known_rows(args: argparse.Namespace) -> list[records.Row]:
    """The runs that ``benchmarks/paper`` has made in the same setting."""
    return records.read_rows(args.known) if args.known.is_file() and not args.fresh else []


def run_logistic(args: argparse.Namespace, data: datasets.Data, out: Path) -> list[records.Row]:
    """Logistic regression, constrained and not."""
    known = known_rows(args)
    rows = []
    for projection in PROJECTIONS:
        for name, steps in budgets(args.optimizers, args.steps or convex.STEPS):
            own = records.select(known, optimizer=name, projection=projection, steps=steps)
            own = [r for r in own if r["learning_rate"] in args.lrs and r["seed"] < args.seeds]
            if len(own) < len(args.lrs) * args.seeds:
                result = logistic.run(
                    data,
                    name,
                    projection,
                    args.lrs,
                    args.seeds,
                    steps=steps,
                    resume=out / "journal" / f"{projection}-{name}-{steps}.jsonl",
                )
                own = records.rows_of(
                    result, projection=projection, steps=steps, gradients=GRADIENTS[name]
                )
            rows += own
            print(f"{projection} {name} with {steps} steps: {len(own)} runs", flush=True)
    return rows


def run_cnn(args: argparse.Namespace, data: datasets.Data, out: Path) -> list[records.Row]:
    """The paper's CNN; as many seeds as are complete."""
    known = known_rows(args)
    if (out / "results.csv").is_file():
        known += records.read_rows(out / "results.csv")
    deadline = time.monotonic() + 60 * args.minutes if args.minutes else float("inf")
    pairs = budgets(args.optimizers, args.steps or nonconvex.steps_per_epoch(data))
    rows = network.run_grid(
        nonconvex.make_task(data),
        pairs,
        args.lrs,
        args.seeds,
        out / "journal.jsonl",
        known,
        deadline,
    )
    finished = network.complete_seeds(rows, pairs, args.lrs)
    return [row for row in rows if row["seed"] < finished]


def report(rows: list[records.Row], out: Path, subject: str) -> None:
    """Writes the results and prints the measures."""
    records.write_rows(rows, out / "results.csv")
    measures.write_table(rows, out / "measures.csv")
    sweeps = {}
    for number, projection in enumerate(dict.fromkeys(row["projection"] for row in rows)):
        panels = {}
        for budget in measures.BUDGETS:
            own = measures.with_budget(records.select(rows, projection=projection), budget)
            panels[BUDGET_TITLES[budget]] = found = records.as_sweeps(own, TITLES)
            sweeps |= {f"{projection}/{budget}/{name}": sweep for name, sweep in found.items()}
        figures.side_by_side(
            panels,
            out / (f"figure_{projection}.png" if number else "figure.png"),
            title=f"{subject}, {logistic.describe(projection)}",
        )
    save_results(sweeps, out / "results.json")
    head = ("best accuracy", "plateau", "stability ratio", "sensitivity")
    print(f"{'':44}" + "".join(f"{name:>24}" for name in head))
    for (projection, budget, name), found in measures.table(rows).items():
        cells = (f"{m.value:.4g} [{m.low:.4g}, {m.high:.4g}]" for m in found)
        print(f"{projection:11} {budget:12} {name:20}" + "".join(f"{cell:>24}" for cell in cells))


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    datasets.add_arguments(parser, default="mnist")
    network.add_arguments(parser, (), OPTIMIZERS)
    parser.add_argument("--task", choices=("logistic", "cnn"), default="logistic")
    parser.add_argument("--draw", action="store_true", help="only report again from results.csv")
    parser.add_argument("--fresh", action="store_true", help="take no runs from benchmarks/paper")
    parser.add_argument(
        "--out", type=Path, help="default: benchmarks/results/robustness_<task>_<data>"
    )
    args = parser.parse_args()
    if args.data == "cifar10":
        parser.error("the models take grey images: mnist, fashion-mnist or digits")
    name = args.data.replace("-", "_")
    kind, rates, run = {
        "logistic": ("convex", convex.RATES, run_logistic),
        "cnn": ("nonconvex", nonconvex.RATES, run_cnn),
    }[args.task]
    args.lrs = args.lrs or rates
    args.known = records.RESULTS / f"{kind}_{name}" / "results.csv"
    out = args.out or records.RESULTS / f"robustness_{args.task}_{name}"
    model = "logistic regression" if args.task == "logistic" else "CNN"
    subject = f"{datasets.TITLES[args.data]}, {model}"
    if args.draw:
        report(records.read_rows(out / "results.csv"), out, subject)
        return
    try:
        data = datasets.load(args.data, args.data_dir)
    except datasets.DataError as error:
        parser.exit(1, f"{error}\n")
    rows = run(args, data, out)
    if not rows:
        print("no seed is complete yet: run the command again to go on")
        return
    report(rows, out, subject)
    finished = len({row["seed"] for row in rows})
    records.write_run(
        out / "run.json",
        data=args.data,
        images=[len(data.train_y), len(data.test_y)],
        seeds=finished,
        taken_from=None if args.fresh or not args.known.is_file() else f"{kind}_{name}",
    )
    if finished == args.seeds:
        shutil.rmtree(out / "journal", ignore_errors=True)
        (out / "journal.jsonl").unlink(missing_ok=True)
    print(f"wrote {out} with {finished} of {args.seeds} seeds")


if __name__ == "__main__":
    main()
