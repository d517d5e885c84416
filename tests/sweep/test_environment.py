"""One sweep by two processes of jax.distributed, four devices each."""

import pathlib

import jax
import numpy as np
import pytest
from processes import free_port, outputs, run
from sweep.conftest import make_logistic
from sweep.sweep_as_one_of_two import CHUNKS, RATES, SEEDS

from mu2_optax.sweep import load_results, sweep
from mu2_optax.sweep._environment import check_all_take_part

SCRIPT = pathlib.Path(__file__).parent / "sweep_as_one_of_two.py"


def together(folder, *what):
    """The results of two processes that make the same call."""
    port = free_port()
    outputs(*(run(SCRIPT, process, port, folder, *what, devices=4) for process in range(2)))
    return [load_results(folder / str(process) / "result.json")[""] for process in range(2)]


@pytest.mark.slow
def test_each_of_two_processes_gets_the_whole_result_and_one_keeps_the_journal(tmp_path):
    for result in together(tmp_path, "minutes"):  # the time of the second process is over
        assert not result.finished.any()
    for result in together(tmp_path, "interrupt"):  # Ctrl-C comes to the second one
        assert result.finished.sum() == 16  # the call that was running, 8 cells, and those before
    assert all((tmp_path / process / "interrupted").exists() for process in "01")
    journal = tmp_path / "0" / "j.jsonl"
    kept = journal.read_text()
    assert len(kept.splitlines()) == 1 + 16
    alone = sweep(make_logistic(), RATES, SEEDS, devices=jax.devices(), **CHUNKS)
    for result in together(tmp_path):
        assert result.finished.all()
        for name, values in alone.metrics.items():
            np.testing.assert_array_equal(result.metrics[name], values)
    assert journal.read_text().startswith(kept)
    assert len(journal.read_text().splitlines()) == 1 + len(RATES) * SEEDS
    assert not (tmp_path / "1" / "j.jsonl").exists()


class OfProcess:
    def __init__(self, process_index):
        self.process_index = process_index


def test_devices_of_some_processes_only_are_refused(monkeypatch):
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    check_all_take_part([OfProcess(index) for index in (0, 1, 2, 3, 3)])
    with pytest.raises(ValueError, match=r"of the processes \[0, 2\] out of 4; pass jax.local_dev"):
        check_all_take_part([OfProcess(0), OfProcess(2)])
