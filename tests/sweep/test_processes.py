"""One sweep by several processes: those of jax.distributed, and the workers of Dask."""

import os
import pathlib

import distributed
import jax
import pytest
from processes import TESTS, free_port, outputs, run
from sweep.conftest import make_logistic
from sweep.sweep_as_one_of_two import CHUNKS, RATES, SEEDS

from mu2_optax.sweep import _engine, load_results, merge, sweep

SCRIPT = pathlib.Path(__file__).parent / "sweep_as_one_of_two.py"


def together(folder, *what):
    """The results of two processes that make the same call."""
    port = free_port()
    outputs(*(run(SCRIPT, process, port, folder, *what, devices=4) for process in range(2)))
    return [load_results(folder / str(process) / "result.npz")[""] for process in range(2)]


@pytest.mark.slow
def test_sweep_gives_each_of_two_processes_the_whole_result_and_one_keeps_the_folder(tmp_path):
    for result in together(tmp_path, "interrupt"):  # Ctrl-C comes to the second one
        assert result.finished.sum() == 16  # the call that was running, 8 cells, and those before
    assert all((tmp_path / process / "interrupted").exists() for process in "01")
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "0" / "run").iterdir()}
    assert len(kept) == 2
    alone = sweep(make_logistic(), RATES, SEEDS, devices=jax.devices(), **CHUNKS)
    for result in together(tmp_path):
        assert result.finished.all()
        for name, values in alone.metrics.items():
            assert result.metrics[name].tobytes() == values.tobytes()
    assert {file: file.stat().st_mtime_ns for file in kept} == kept  # not run again
    assert not (tmp_path / "1" / "run").exists()


class OfProcess:
    platform = "cpu"

    def __init__(self, process_index):
        self.process_index = process_index


def test_sweep_refuses_devices_of_some_processes_only(monkeypatch):
    monkeypatch.setattr(jax, "Device", OfProcess)
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    _engine._check_options("vmap", None, [OfProcess(index) for index in (0, 1, 2, 3, 3)])
    with pytest.raises(ValueError, match=r"of the processes \[0, 2\] out of 4; pass jax.local_dev"):
        _engine._check_options("vmap", None, [OfProcess(0), OfProcess(2)])


@pytest.mark.slow
def test_sweep_over_two_workers_of_dask_merges_to_the_same_bits(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{TESTS.parent}{os.pathsep}{TESTS}")
    train = make_logistic()
    study = lambda seeds: sweep(train, RATES, seeds, progress=False)
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
