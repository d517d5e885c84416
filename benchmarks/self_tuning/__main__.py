"""Self-tuning: ``mu2_auto()`` and its peers, untouched, calibrated and tuned, task by task.

    python -m benchmarks.self_tuning --minutes 60             # goes on where it was stopped
    python -m benchmarks.self_tuning --task mlp_fashion --role tuned --peers adamw_cosine
    python -m benchmarks.self_tuning --report                 # pictures only
    python -m benchmarks.self_tuning --frozen COMMIT          # mu2_auto on the other tasks

Untouched means at the published default; tuned means the best of the grid on this task, and
calibrated the one rate that is best on average over the development tasks, both chosen by the
validation split with one seed. The test split is measured at the end of a run and chooses nothing.

``mu2_auto`` is run on development tasks alone, unless ``--frozen`` names the commit that fixed its
constants; ``frozen.json`` has that name and what ``mu2_auto`` gave then (``--freeze`` writes it),
and the results keep the name. Every run is written into ``benchmarks/results/self_tuning``
at once, in a file for each task, so several processes can work on different tasks.
"""

import argparse
import time
from pathlib import Path

from benchmarks.optimizers import AUTO, OURS, PEERS
from benchmarks.records import made_by
from benchmarks.self_tuning import frozen, goals, pictures, roles, runner
from benchmarks.self_tuning.analysis import Results
from benchmarks.self_tuning.task import DEVELOPMENT, FOLDER, SIDES, records
from benchmarks.self_tuning.tasks import TASKS
from examples.cpu_layers import keep_freed_memory
from examples.data import DATA_VARIABLE
from examples.option_types import positive_float, positive_int

SEEDS = 3


def arguments(options: list[str] | None = None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--task", nargs="+", choices=TASKS, metavar="NAME", help="default: all")
    add("--side", choices=SIDES, help="only the tasks of this side")
    add("--role", nargs="+", choices=roles.ROLES, default=list(roles.ROLES), metavar="NAME")
    add("--peers", nargs="+", choices=PEERS, metavar="NAME", help="default: all")
    add("--seeds", type=positive_int, default=SEEDS, metavar="N", help="default: %(default)s")
    add("--minutes", type=positive_float, help="start no run after so many; go on another time")
    add("--data-dir", metavar="DIR", help=f"folder of the data; default: {DATA_VARIABLE}")
    add("--out", type=Path, default=FOLDER, metavar="DIR", help="where results are")
    add("--frozen", metavar="COMMIT", help="the commit that froze the constants of mu2_auto")
    add("--freeze", action="store_true", help="note what mu2_auto gives in this commit, and stop")
    add("--again", nargs="+", default=(), choices=PEERS, metavar="NAME", help="forget their runs")
    add("--report", action="store_true", help="run nothing")
    args = parser.parse_args(options)
    locked = [name for name in args.task or () if TASKS[name].side != DEVELOPMENT]
    if args.frozen is None and locked and set(OURS) & set(args.peers or ()):
        parser.error(f"{AUTO} on {locked[0]} needs --frozen COMMIT: its constants are fixed")
    if args.frozen is not None:
        known = frozen.read()
        for peer in set(OURS) & set(args.peers or OURS):
            if args.frozen not in known.get(peer, {"commits": ()})["commits"]:
                file = frozen.FILE.name
                parser.error(f"--frozen: {file} does not name the commit {args.frozen} for {peer}")
        if changed := frozen.differences(known):
            parser.error("\n".join(["--frozen:", *changed, frozen.REMEDY]))
    names = args.task or TASKS
    args.task = [name for name in names if args.side in (None, TASKS[name].side)]
    args.peers = args.peers or list(PEERS)
    return args


def allowed(name: str, peer: str, frozen: str | None) -> bool:
    """The lock: what may be chosen on development tasks alone stays unknown on the others."""
    return peer not in OURS or TASKS[name].side == DEVELOPMENT or frozen is not None


def run(args: argparse.Namespace) -> bool:
    """Runs what is missing; returns whether everything was run before time was over."""
    deadline = args.minutes and time.monotonic() + 60 * args.minutes
    info = made_by("benchmarks.self_tuning", frozen=args.frozen)
    for name in args.task:
        for peer in args.again:
            if allowed(name, peer, args.frozen):
                records(args.out, name).drop(peer)
    for name in args.task:
        task, own = TASKS[name], records(args.out, name)
        for peer in (peer for peer in args.peers if allowed(name, peer, args.frozen)):
            train = None
            for role in args.role:
                for cell in roles.wanted(role, name, peer, args.seeds, args.out):
                    if deadline and time.monotonic() > deadline:
                        return False
                    data = runner.load(task, args.data_dir)
                    train = train or runner.make_train(task, PEERS[peer])
                    start = time.perf_counter()
                    found = runner.as_numbers(train(data, cell.rate, cell.seed))
                    found["seconds"] = time.perf_counter() - start
                    own.add({cell: found}, info)
                    print(name, *cell, f"{found[roles.VALIDATION]:.5g}", flush=True)
    return True


def main() -> None:
    """Runs, draws the pictures, and says which goals are met."""
    args = arguments()
    if args.freeze:
        frozen.write()
        return
    keep_freed_memory()
    if not args.report:
        finished = run(args)
        print("finished" if finished else "stopped: go on with the same command")
    results = Results(args.out, args.seeds)
    pictures.draw(results, args.out)
    print(*goals.goals(results), f"drew the pictures of {args.out}", sep="\n")


if __name__ == "__main__":
    main()
