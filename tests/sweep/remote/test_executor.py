"""The calls of a sweep on an executor: the same bits, wherever and in whichever order they run."""

import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import jax
import numpy as np
import pytest
from sweep.conftest import PATIENCE, environment, make_logistic, signal_after_cells
from sweep.remote.workloads import (
    RATES,
    Noted,
    assert_same_bits,
    failing,
    failing_in_python,
    noting,
    quiet,
)

from mu2_optax.sweep import ExecutorError, SweepInterrupted
from mu2_optax.sweep._command.cli import main
from mu2_optax.sweep._remote.worker import run_block
from mu2_optax.sweep._run import progress as progress_module


class AnyOrder(Executor):
    """Runs the calls of a moment in an order of its own, in one thread."""

    def __init__(self):
        self.most, self.ran, self._left = 0, [], []
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def submit(self, function, /, *arguments):
        future = Future()
        with self._lock:
            self._left.append((future, function, arguments))
            self.most = max(self.most, len(self._left))
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._closed.set()
        self._thread.join()

    def _run(self):
        order = random.Random(0)
        while not self._closed.wait(0.02):
            while True:
                with self._lock:
                    if not self._left:
                        break
                    call = self._left.pop(order.randrange(len(self._left)))
                future, function, arguments = call
                self.ran.append(arguments)
                future.set_result(function(*arguments))


@pytest.fixture(scope="module")
def pool():
    """Two processes that know nothing of this one."""
    with ProcessPoolExecutor(2, get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def threads():
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.mark.slow
def test_processes_give_the_bits_of_a_local_run(pool):
    train, way = make_logistic(), {"strategy": "vmap", "chunk_size": 4}
    here = quiet(train, RATES, 3, **way)
    there = quiet(train, RATES, 3, executor=pool, **way)
    assert_same_bits(here, there)
    assert there.info["block"] == here.info["block"]
    assert 1 <= there.info["workers"]["count"] <= 2
    assert there.info["workers"]["machines"] == [here.info["machine"]]
    assert there.info["compile_seconds"] > 0


def test_the_order_in_which_calls_end_makes_no_difference():
    train = make_logistic()
    executor = AnyOrder()
    there = quiet(train, RATES, 5, strategy="loop", executor=executor)
    executor.shutdown()
    seeds = [tuple(block[1]) for *_, block in executor.ran]
    assert seeds != sorted(seeds)
    assert_same_bits(quiet(train, RATES, 5, strategy="loop"), there)


def test_no_more_calls_are_in_flight_than_keep_the_workers_busy():
    executor = AnyOrder()
    train = lambda learning_rate, key: {"loss": learning_rate}
    result = quiet(train, np.arange(1.0, 11.0), 150, strategy="loop", executor=executor)
    executor.shutdown()
    assert result.finished.all()
    assert len(executor.ran) == 1500
    assert executor.most <= 1024


@pytest.mark.slow
def test_an_ordinary_function_runs_on_workers_too(pool):
    def train(learning_rate, key):
        assert isinstance(learning_rate, float)
        return {"loss": learning_rate * float(jax.random.uniform(key)), "process": os.getpid()}

    here = quiet(train, RATES, 2, strategy="python")
    there = quiet(train, RATES, 2, strategy="python", executor=pool)
    assert os.getpid() not in there.metrics.pop("process")
    here.metrics.pop("process")
    assert_same_bits(here, there)


@pytest.mark.slow
def test_each_worker_gets_the_data_once_and_compiles_once(tmp_path, pool):
    log = tmp_path / "log"
    data = Noted(log, np.random.default_rng(0).normal(size=(1000, 20)))  # more than goes with calls
    train = noting(data, 0.1)
    here = quiet(train, RATES, 4, strategy="loop")
    log.write_text("")
    for _ in range(2):
        assert_same_bits(here, quiet(train, RATES, 4, strategy="loop", executor=pool))
    lines = [line for line in log.read_text().splitlines() if f" {os.getpid()}" not in line]
    processes = {line.split()[1] for line in lines}
    assert 1 <= len(processes) <= 2
    assert sorted(lines) == sorted(f"{what} {p}" for p in processes for what in ("data", "trace"))


@pytest.mark.slow
@pytest.mark.parametrize(("train", "strategy"), [(failing, "loop"), (failing_in_python, "python")])
def test_a_cell_that_fails_on_a_worker_is_named(train, strategy, pool):
    with pytest.warns(UserWarning, match=r"the cell learning_rate=1, seed=0 failed: .*no luck"):
        result = quiet(train, RATES, 1, strategy=strategy, executor=pool)
    assert list(result.errors) == [(2, 0)]
    np.testing.assert_allclose(result.metrics["loss"][:, 0], [0.01, 0.1, np.nan, 10], rtol=1e-6)


@pytest.mark.slow
def test_the_error_of_a_call_says_which_cells_and_where(pool):
    with pytest.raises(Exception, match="no luck") as caught:
        quiet(failing, RATES, 1, strategy="vmap", chunk_size=2, executor=pool)
    notes = "\n".join(caught.value.__notes__)
    assert "the 2 cells from learning_rate=1, seed=0 to learning_rate=10, seed=0" in notes
    assert "raised in the worker" in notes
    assert "in failing" in notes or "in host" in notes
    with pytest.raises(RuntimeError, match="Strange: no luck") as caught:
        quiet(failing_in_python, [1.0], 1, strategy="python", executor=pool)
    assert "while running the cell learning_rate=1, seed=0" in caught.value.__notes__


@pytest.mark.slow
def test_settings_of_jax_hold_on_workers_too(pool):
    train = lambda learning_rate, key: {"loss": learning_rate * jax.random.uniform(key)}
    with jax.enable_x64(True):
        here = quiet(train, RATES, 2, strategy="loop")
        there = quiet(train, RATES, 2, strategy="loop", executor=pool)
    assert there.metrics["loss"].dtype == np.float64
    assert_same_bits(here, there)


@pytest.mark.slow
def test_a_worker_with_another_program_is_refused(pool):
    train = lambda learning_rate, key: {"loss": learning_rate * os.getpid()}
    with pytest.raises(RuntimeError, match="must be the same program on client and worker"):
        quiet(train, RATES, 2, executor=pool)


@pytest.mark.slow
def test_a_module_that_the_worker_lacks_is_an_error_and_not_a_failed_cell(tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text(
        "def train(learning_rate, key):\n    return {'l': key}\n"
    )
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        pool.submit(os.getpid).result()  # it has started, and looks for modules where it did then
        monkeypatch.syspath_prepend(tmp_path)
        import only_here

        with pytest.raises(ModuleNotFoundError, match="only_here"):
            quiet(only_here.train, RATES, 2, strategy="python", executor=pool)


def test_a_file_that_only_the_client_sees_is_an_error_and_not_a_failed_cell(tmp_path):
    reply = pickle.loads(run_block("a digest", tmp_path / "there", (np.zeros(1), np.zeros(1))))
    assert reply.fatal
    with pytest.raises(FileNotFoundError, match="set TMPDIR to a folder that all machines share"):
        raise reply.error


def test_progress_counts_the_cells_of_all_workers(threads, monkeypatch):
    counts = []
    monkeypatch.setattr(
        progress_module.Progress, "advance", lambda self, cells, which: counts.append(cells)
    )
    train = lambda learning_rate, key: {"loss": learning_rate}
    quiet(train, RATES, 3, strategy="vmap", chunk_size=4, executor=threads)
    assert counts == [4, 4, 4]


def test_no_call_starts_after_the_deadline(tmp_path, threads, use_clock):
    late = tmp_path / "late"
    use_clock(lambda: 61.0 * late.exists())

    def train(learning_rate, key):
        late.touch()
        time.sleep(0.05)
        return {"loss": learning_rate}

    options = {"strategy": "python", "executor": threads, "resume": tmp_path / "j.jsonl"}
    part = quiet(train, RATES, 20, minutes=1, **options)
    assert 1 <= part.finished.sum() < 80
    whole = quiet(train, RATES, 20, **options)
    np.testing.assert_array_equal(whole.metrics["loss"], np.tile(np.array(RATES)[:, None], 20))


def test_ctrl_c_keeps_what_is_running_and_drops_the_rest(threads):
    def train(learning_rate, key):
        if learning_rate == 0.1:
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        return {"loss": learning_rate}

    with pytest.raises(SweepInterrupted) as interrupt:
        quiet(train, RATES, 50, strategy="python", executor=threads)
    assert 2 <= interrupt.value.result.finished.sum() < 200
    assert interrupt.value.result.info["workers"]["count"] == 2


def sleepy(learning_rate, key):
    time.sleep(0.1)
    return {"loss": learning_rate * float(jax.random.uniform(key))}


@pytest.mark.slow
def test_a_pool_that_lost_a_process_is_an_error_and_another_one_goes_on(tmp_path):
    path = tmp_path / "j.jsonl"

    def killed(learning_rate, key):
        if learning_rate == 10 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            while len(path.read_text().splitlines()) < 2 + 3:  # the other process goes on
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return sleepy(learning_rate, key)

    def run():
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            return quiet(killed, RATES, 3, strategy="python", executor=pool, resume=path)

    with pytest.raises(ExecutorError, match=r"lost the cell .* \(BrokenProcessPool: .*resume") as e:
        run()
    kept = int(e.value.result.finished.sum())
    assert len(path.read_text().splitlines()) == 2 + kept  # the header and the metrics
    assert 3 <= kept < 12
    assert_same_bits(quiet(sleepy, RATES, 3, strategy="python"), run())


def test_a_pool_that_is_closed_is_an_error():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    with pytest.raises(ExecutorError, match="cannot schedule new futures after shutdown"):
        quiet(make_logistic(), RATES, 1, executor=pool)


SCRIPT = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
import jax
from mu2_optax.sweep import SweepInterrupted, save_results, sweep

def train(learning_rate, key):
    time.sleep(0.1)
    with open("cells.log", "a") as log:
        log.write(f"{learning_rate:g}\\n")
    return {"loss": learning_rate * float(jax.random.uniform(key))}

if __name__ == "__main__":
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        try:
            result = sweep(train, [1.0, 2.0, 3.0, 4.0], 10, strategy="python", progress=False,
                           resume="j.jsonl", executor=pool)
        except SweepInterrupted as interrupt:
            print("interrupted with", int(interrupt.result.finished.sum()))
            raise SystemExit(130)
    save_results(result, "result.json")
"""


@pytest.mark.slow
def test_ctrl_c_in_a_terminal_reaches_the_client_alone_and_the_rest_runs_later(tmp_path):
    """A terminal sends it to every process of the group."""
    (tmp_path / "script.py").write_text(SCRIPT)
    log = tmp_path / "cells.log"
    command = {
        "args": [sys.executable, "script.py"],
        "cwd": tmp_path,
        "env": environment(),
        "stdout": subprocess.PIPE,
        "text": True,
    }
    process = subprocess.Popen(**command, start_new_session=True)
    signal_after_cells(process, log, 6, 0)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    kept = int(out.split()[-1])
    assert 6 <= kept < 40
    assert len(log.read_text().splitlines()) == kept
    subprocess.run(**command, check=True, timeout=PATIENCE)
    assert len(log.read_text().splitlines()) == 40
    assert (tmp_path / "result.json").exists()


def test_what_cannot_be_pickled_is_refused_before_anything_runs(tmp_path, threads, monkeypatch):
    lock, path = threading.Lock(), tmp_path / "j.jsonl"

    def train(learning_rate, key):
        with lock:
            return {"loss": learning_rate}

    with pytest.raises(TypeError, match=r"`train` must be picklable .*lock.*; make it a function"):
        quiet(train, RATES, 2, executor=threads, resume=path)
    assert not path.exists()
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    train = lambda learning_rate, key: {"loss": learning_rate}
    with pytest.raises(TypeError, match=r"must be picklable .*; install cloudpickle \(the extra"):
        quiet(train, RATES, 2, executor=threads)
    assert quiet(failing_in_python, [2.0], 1, strategy="python", executor=threads).finished.all()


@pytest.mark.parametrize("executor", [2, "dask", Path("."), lambda block: block])
def test_what_is_no_executor_is_refused(executor):
    with pytest.raises(TypeError, match="`executor` must have `submit`"):
        quiet(make_logistic(), RATES, 1, executor=executor)


def test_devices_do_not_go_with_an_executor(threads):
    with pytest.raises(ValueError, match="`devices` are those of this process"):
        quiet(make_logistic(), RATES, 1, executor=threads, devices=jax.devices())


def test_without_dask_the_command_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["--workers", "2", "--quiet"]) == 2
    assert "need Dask: `pip install distributed cloudpickle" in capsys.readouterr().err
