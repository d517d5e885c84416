"""A study over the workers of Dask."""

import os

import distributed
import pytest
from processes import TESTS
from sweep.conftest import make_logistic

from mu2_optax.sweep import merge, sweep


@pytest.mark.slow
def test_sweep_over_two_workers_of_dask_merges_to_the_same_bits(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent}{os.pathsep}{TESTS}")
    train = make_logistic()
    study = lambda seeds: sweep(train, [0.01, 0.1, 1.0], seeds, progress=False)
    blocks = [[0, 1], [2, 3], [4, 5]]
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        futures = client.map(study, blocks)
        merged = merge(*client.gather(futures))
        holders = {worker for workers in client.who_has(futures).values() for worker in workers}
    assert len(holders) == 2
    assert merged.finished.all()
    assert merged.seeds.tolist() == [0, 1, 2, 3, 4, 5]
    for name, values in merge(*map(study, blocks)).metrics.items():
        assert merged.metrics[name].tobytes() == values.tobytes()
