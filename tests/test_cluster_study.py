"""The simulation of a cluster, where its answer is known."""

import pytest

from benchmarks.cluster_study import Costs, makespan, study

FREE = Costs(submit=0.0, reply=0.0, scheduler=0.0, compiling=0.0)


def test_without_costs_the_workers_are_never_idle():
    assert makespan([2.0] * 12, 1, FREE) == pytest.approx(24)
    assert makespan([2.0] * 12, 4, FREE) == pytest.approx(6)
    assert makespan([2.0] * 12, 100, FREE) == pytest.approx(2)


def test_each_worker_compiles_once():
    assert makespan([2.0] * 12, 4, Costs(0.0, 0.0, 0.0, compiling=5.0)) == pytest.approx(5 + 6)


def test_a_saturated_client_or_scheduler_decides_the_time():
    calls = [0.0] * 5000
    assert makespan(calls, 10, Costs(0.01, 0.03, 0.0, 0.0)) == pytest.approx(5000 * 0.04)
    found = makespan(calls, 10, Costs(0.0, 0.0, 0.05, 0.0))
    assert found == pytest.approx(5000 * 0.05)


def test_the_efficiency_falls_where_the_study_says_that_it_does():
    costs = {1: Costs(0.001, 0.001, 0.004, 0.0)}  # 250 calls a second
    rows = study([1.0], costs, cells=20_000, workers=(100, 1000), per_call=(1,))
    below, above = (row for row in rows if row["cell_seconds"] == 1)
    assert below["saturated_from"] == above["saturated_from"] == 250
    assert below["efficiency"] > 0.98
    assert above["efficiency"] == pytest.approx(0.25, rel=0.02)
