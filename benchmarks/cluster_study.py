"""Where the client of a sweep saturates: a simulation of more workers than there are at hand.

Calls of a sweep queue at three places: the client, which submits a call for each reply that it has
handled, the scheduler, and the workers, which compile before their first call. How long each takes
is measured by `benchmarks.cluster`; how many calls are in flight is the library's own rule. The
network is left out, and so are workers that are slower than others or get lost.
"""

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mu2_optax.sweep._remote.executor import calls_in_flight

WORKERS = (100, 1_000, 10_000)
CELLS_PER_CALL = (1, 10, 100)
LONGER = (1, 100)  # the recorded seconds of a cell, and as many times that
CELLS = 1_000_000


@dataclass(frozen=True)
class Costs:
    """Seconds that a call takes, besides its cells.

    Attributes:
      submit: Of the client, to submit it.
      reply: Of the client, to handle its reply, the journal included.
      scheduler: Of the scheduler.
      compiling: Of each worker, before its first call.
    """

    submit: float
    reply: float
    scheduler: float
    compiling: float


FINISHED, REPLIED, ARRIVED = range(3)


def makespan(calls: Sequence[float], workers: int, costs: Costs) -> float:
    """The seconds until the client has handled the last reply.

    Args:
      calls: The seconds of each call on a worker.
      workers: The number of workers.
      costs: What a call takes besides.

    Returns:
      The seconds.
    """
    client = scheduler = 0.0  # when each is free
    left, in_flight, waiting = iter(calls), 0, 0
    idle = list(range(workers))
    todo, events = len(calls), []

    def submit_more() -> None:
        nonlocal client, in_flight, todo
        while todo and in_flight < calls_in_flight(workers):  # Dask says how many there are
            client += costs.submit
            in_flight += 1
            todo -= 1
            heapq.heappush(events, (client, ARRIVED, -1))

    def begin(time: float, worker: int) -> None:
        compiling = 0.0 if worker in begun else costs.compiling
        begun.add(worker)
        heapq.heappush(events, (time + compiling + next(left), FINISHED, worker))

    begun: set[int] = set()
    submit_more()
    while events:
        time, kind, worker = heapq.heappop(events)
        if kind == ARRIVED and idle:
            begin(time, idle.pop())
        elif kind == ARRIVED:
            waiting += 1
        elif kind == FINISHED:
            scheduler = max(scheduler, time) + costs.scheduler
            heapq.heappush(events, (scheduler, REPLIED, worker))
            if waiting:
                waiting -= 1
                begin(time, worker)
            else:
                idle.append(worker)
        else:
            client = max(client, time) + costs.reply
            in_flight -= 1
            submit_more()
    return client


def study(cell_seconds, costs_of_a_call, cells=CELLS, workers=WORKERS, per_call=CELLS_PER_CALL):
    """The efficiency of each number of workers: the cells' seconds over those of all workers.

    Args:
      cell_seconds: Recorded seconds of cells, which are drawn from.
      costs_of_a_call: The `Costs` of a call, for each number of cells in a call.
      cells: How many cells there are.
      workers: The numbers of workers.
      per_call: The numbers of cells in a call.

    Returns:
      A row (a dict) for each combination.
    """
    rng = np.random.default_rng(0)
    rows = []
    for longer in LONGER:
        seconds = longer * rng.choice(cell_seconds, cells)
        for size in per_call:
            calls = seconds[: cells - cells % size].reshape(-1, size).sum(axis=1).tolist()
            costs = costs_of_a_call[size]
            busy = max(costs.submit + costs.reply, costs.scheduler)  # of the slower of the two
            for count in workers:
                took = makespan(calls, count, costs)
                rows.append(
                    {
                        "cell_seconds": float(longer * np.mean(cell_seconds)),
                        "cells_per_call": size,
                        "workers": count,
                        "makespan_seconds": round(took, 1),
                        "efficiency": round(sum(calls) / count / took, 4),
                        "saturated_from": round(float(np.mean(calls)) / busy),
                    }
                )
    return rows


def costs_rows(file: Path) -> list[list[str]]:
    """The table of what a call costs, in milliseconds; its head first."""
    calls = json.loads(file.read_text())["calls"]
    shown = lambda seconds: f"{1000 * seconds:.2f}" if seconds else "–"
    rows = [["a call that computes nothing, on", "ms", "of the client", "of the scheduler"]]
    for where, cost in calls.items():
        rows.append([where, *(shown(cost[part]) for part in ("seconds", "client", "scheduler"))])
    return rows


def study_rows(file: Path) -> list[list[str]]:
    """The table of efficiencies; its head first."""
    rows = json.loads(file.read_text())["study"]["rows"]
    counts = sorted({row["workers"] for row in rows})
    head = ["seconds of a cell", "cells in a call", *(f"{count:,} workers" for count in counts)]
    body = {}
    for row in rows:
        label = (row["cell_seconds"], row["cells_per_call"])
        body.setdefault((*label, row["saturated_from"]), {})[row["workers"]] = row["efficiency"]
    return [
        [*head, "busy all the time from"],
        *(
            [
                f"{seconds:.2g}",
                str(size),
                *(
                    f"{100 * found[count]:.{0 if found[count] > 0.01 else 1}f} %"
                    for count in counts
                ),
                f"{float(f'{limit:.2g}'):,.0f} workers",
            ]
            for (seconds, size, limit), found in body.items()
        ),
    ]
