"""The paper's convex experiment (its figure 1 and its appendix), on real data.

Logistic regression, batch 64, one epoch, the weights in the unit L2 ball (each tensor in its own,
as in the authors' code; or all of them in one, as in the paper's text; or not constrained at all),
learning rates from 1e-4 to 1e4 (the paper's end at 10), 3 seeds, α_t = t and β_t = 1/t:

    python -m benchmarks.convex --data mnist
    python -m benchmarks.convex --data fashion-mnist

Each writes ``results.csv`` (a row per run), ``results.json`` (with the test accuracy and loss over
the iterations), ``figure.png`` and its companions, and ``run.json`` into
``benchmarks/results/convex_<data>``. What has finished is kept in ``journal/`` there; a command
that was stopped goes on from it, and the folder is removed at the end. ``--draw`` only draws the
pictures again. Measured on MNIST: μ²-SGD at 0.884 to 0.885 for every rate from 0.01 to 10,000.
"""

import argparse
import dataclasses
import shutil
import sys
import time
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))

import data as datasets
import figures
import logistic
import records
from flags import positive_int
from optimizers import GRADIENTS, PAPER, TITLES

from mu2_optax.sweep import load_results, save_results

STEPS, EVALUATIONS = 938, 14  # one epoch of 60,000 images; every 67 steps
RATES = tuple(10.0**power for power in range(-4, 5))


def draw(out: Path, name: str) -> None:
    """Draws the pictures from ``results.csv`` and ``results.json``."""
    rows, sweeps = records.read_rows(out / "results.csv"), load_results(out / "results.json")
    for number, projection in enumerate(dict.fromkeys(row["projection"] for row in rows)):
        suffix = f"_{projection}" if number else ""
        subject = f"{datasets.TITLES[name]}: logistic regression, {logistic.describe(projection)}"
        own = records.select(rows, projection=projection)
        figures.against_rate(
            records.as_sweeps(own, TITLES), out / f"figure{suffix}.png", title=subject
        )
        optimizers = dict.fromkeys(row["optimizer"] for row in own)
        curves = {
            TITLES[optimizer]: sweeps[f"{projection}/{optimizer}"] for optimizer in optimizers
        }
        evaluations = next(iter(curves.values())).metric("test_loss").shape[-1]
        steps = np.linspace(0, own[0]["steps"], evaluations)
        figures.over_steps(curves, steps, out / f"curves{suffix}.png", title=subject)


def main() -> None:
    """Runs the experiment."""
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    datasets.add_arguments(parser, default="mnist")
    parser.add_argument("--lrs", type=records.rates, default=RATES, help="learning rates, a,b,c")
    parser.add_argument("--seeds", type=positive_int, default=3, help="how many")
    parser.add_argument("--optimizers", type=records.some_of(PAPER), default=PAPER, help="a,b,c")
    parser.add_argument(
        "--projections",
        type=records.some_of(tuple(logistic.PROJECTIONS)),
        default=tuple(logistic.PROJECTIONS),
        help="a,b,c",
    )
    parser.add_argument("--steps", type=positive_int, default=STEPS, help="of batch 64")
    parser.add_argument(
        "--evaluations", type=positive_int, default=EVALUATIONS, help="must divide the steps"
    )
    parser.add_argument("--draw", action="store_true", help="only draw the pictures again")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/convex_<data>")
    args = parser.parse_args()
    if args.steps % args.evaluations:
        parser.error(f"--evaluations {args.evaluations} does not divide --steps {args.steps}")
    out = args.out or records.RESULTS / f"convex_{args.data.replace('-', '_')}"
    if args.draw:
        draw(out, args.data)
        return
    try:
        data = datasets.load(args.data, args.data_dir)
    except datasets.DataError as error:
        parser.exit(1, f"{error}\n")

    start = time.perf_counter()
    rows, sweeps = [], {}
    for projection in args.projections:
        for name in args.optimizers:
            result = logistic.run(
                data,
                name,
                projection,
                args.lrs,
                args.seeds,
                steps=args.steps,
                evaluations=args.evaluations,
                resume=out / "journal" / f"{projection}-{name}.jsonl",
            )
            accuracy = result.final("test_accuracy").mean(axis=1)
            print(f"{projection:10} {name:14}", *(f"{value:.3f}" for value in accuracy), flush=True)
            rows += records.rows_of(
                result, projection=projection, steps=args.steps, gradients=GRADIENTS[name]
            )
            sweeps[f"{projection}/{name}"] = dataclasses.replace(
                result,
                metrics={key: curve.round(5) for key, curve in result.metrics.items()},
                info={"steps_between_evaluations": args.steps // args.evaluations},
            )
    records.write_rows(rows, out / "results.csv")
    save_results(sweeps, out / "results.json")
    draw(out, args.data)
    records.write_run(
        out / "run.json",
        seconds=round(time.perf_counter() - start),
        data=args.data,
        images=[len(data.train_y), len(data.test_y)],
        batch=logistic.BATCH,
        seeds=args.seeds,
    )
    shutil.rmtree(out / "journal")
    print(f"wrote {out}")


if __name__ == "__main__":
    main()
