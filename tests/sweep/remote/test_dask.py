"""Sweeps on a cluster of Dask: two worker processes, workers and schedulers that are killed."""

import argparse
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from mu2_optax.sweep._command.names import open_executor
from processes import free_port
from sweep.conftest import (
    PATIENCE,
    environment,
    make_logistic,
    run,
    signal_after_cells,
    start,
)
from sweep.remote.workloads import (
    RATES,
    Noted,
    assert_same_bits,
    failing_in_python,
    noting,
    quiet,
)

from mu2_optax.sweep import ExecutorError, load_results
from mu2_optax.sweep._command.cli import main

distributed = pytest.importorskip("distributed", reason="Dask is not installed (extra `cluster`)")

SLOW = """
import time
import jax

def train_fn(learning_rate, key):
    time.sleep(0.1)
    return {"loss": learning_rate * float(jax.random.uniform(key))}
"""


@pytest.fixture(scope="module")
def client():
    """A cluster of two processes on this machine."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


def processes(client):
    """The worker processes."""
    return sorted(client.run(os.getpid).values())


@pytest.mark.slow
@pytest.mark.parametrize("way", [{"strategy": "map", "chunk_size": 2}, {}], ids=str)
def test_a_cluster_gives_the_bits_of_a_local_run(way, client):
    train = make_logistic()
    there = quiet(train, RATES, 3, executor=client.get_executor(), **way)
    assert_same_bits(quiet(train, RATES, 3, **way), there)


@pytest.mark.slow
def test_each_worker_of_a_cluster_gets_the_data_once_and_compiles_once(tmp_path, client):
    log = tmp_path / "log"
    data = Noted(log, np.random.default_rng(0).normal(size=(200_000, 20)))  # 32 MB: Dask would warn
    train = noting(data, 0.2)
    here = quiet(train, RATES, 4, strategy="loop")
    log.write_text("")
    for _ in range(2):
        there = quiet(train, RATES, 4, strategy="loop", executor=client.get_executor())
        assert_same_bits(here, there)
    lines = [line for line in log.read_text().splitlines() if f" {os.getpid()}" not in line]
    expected = [f"{what} {p}" for p in processes(client) for what in ("data", "trace")]
    assert sorted(lines) == sorted(expected)


@pytest.mark.slow
def test_the_cell_that_fails_on_a_cluster_is_named(client):
    with pytest.warns(UserWarning, match=r"the cell learning_rate=1, seed=0 failed: .*no luck"):
        result = quiet(
            failing_in_python, RATES, 1, strategy="python", executor=client.get_executor()
        )
    assert list(result.errors) == [(2, 0)]


@pytest.mark.slow
def test_after_kill_9_of_a_worker_the_result_is_complete_and_equal(tmp_path, client):
    data = np.random.default_rng(0).normal(size=100_000)  # does not go with the calls
    log = tmp_path / "log"
    log.touch()

    def train(learning_rate, key):
        time.sleep(0.05)
        with log.open("a") as cells:
            cells.write(f"{os.getpid()}\n")
        return {"loss": learning_rate * data.sum()}

    victim = processes(client)[0]

    def kill():
        while log.read_text().split().count(str(victim)) < 5:
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    there = quiet(train, RATES, 25, strategy="python", executor=client.get_executor())
    killer.join()
    assert victim not in processes(client)
    assert_same_bits(quiet(train, RATES, 25, strategy="python"), there)


@pytest.mark.slow
def test_a_client_is_not_its_executor(client):
    with pytest.raises(TypeError, match=r"must be an executor, got <Client: .*pass \.get_executor"):
        quiet(make_logistic(), RATES, 1, executor=client)


@pytest.mark.slow
def test_a_client_that_is_closed_during_a_sweep_is_an_error(tmp_path, client):
    path = tmp_path / "j.jsonl"
    other = distributed.Client(client.cluster, loop=client.loop)

    def train(learning_rate, key):
        time.sleep(0.1)
        return {"loss": learning_rate}

    def close():
        while not path.exists() or len(path.read_text().splitlines()) < 6:
            time.sleep(0.02)
        other.close()

    closer = threading.Thread(target=close, daemon=True)
    closer.start()
    options = {"executor": other.get_executor(), "resume": path}
    with pytest.raises(ExecutorError, match="make the same call again") as lost:
        quiet(train, RATES, 100, strategy="python", **options)
    closer.join()
    assert 0 < lost.value.result.finished.sum() < 400


@contextlib.contextmanager
def scheduler_and_worker(folder, port):
    """A scheduler and a worker of their own, as `dask scheduler` and `dask worker` start them."""
    dask = [sys.executable, "-m", "dask"]
    address = f"tcp://127.0.0.1:{port}"
    options = {"cwd": folder, "env": environment(), "stderr": subprocess.DEVNULL}
    scheduler = subprocess.Popen(
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"],
        **options,
    )
    worker = subprocess.Popen(
        [*dask, "worker", address, "--nthreads", "1", "--no-dashboard", "--no-nanny"], **options
    )
    try:
        yield address, scheduler
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_lost_scheduler_is_a_clear_error_and_another_one_goes_on(tmp_path):
    home, away, port = tmp_path / "home", tmp_path / "away", free_port()
    home.mkdir()
    away.mkdir()
    (home / "slow_task.py").write_text(SLOW)  # which the worker does not have
    options = ["slow_task:train_fn", "--strategy", "python", "--lrs", "1,2,3,4", "--seeds", "10"]
    with scheduler_and_worker(away, port) as (address, scheduler):
        process = start(*options, "--out", "run", "--scheduler", address, cwd=home)
        journal = home / "run" / "journal" / "train_fn.jsonl"
        try:
            signal_after_cells(process, journal, 8, 0)
            scheduler.kill()
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 1
    assert "train_fn: the cluster was lost (" in errors
    assert "finished cells are kept in run; continue with the same options and --out run" in errors
    kept = len(journal.read_text().splitlines()) - 2  # the header and the metrics
    assert 6 <= kept < 40
    with scheduler_and_worker(away, port) as (address, _):
        again = (*options, "--out", "run", "--resume", "--scheduler", address)
        status, _, errors = run(*again, cwd=home)
    assert status == 0, errors
    assert len(journal.read_text().splitlines()) == 2 + 40
    assert_as_here(home / "run", seeds=10)


def assert_as_here(folder: Path, seeds: int):
    """The results in a folder are those of this process."""
    names = {}
    exec(SLOW.replace("time.sleep(0.1)", ""), names)
    here = quiet(names["train_fn"], [1.0, 2.0, 3.0, 4.0], seeds, strategy="python")
    assert_same_bits(here, load_results(folder / "results.json")["train_fn"])


@pytest.mark.slow
def test_the_command_on_two_workers_stops_at_ctrl_c_and_goes_on(tmp_path):
    (tmp_path / "slow_task.py").write_text(SLOW)
    options = ["slow_task:train_fn", "--strategy", "python", "--lrs", "1,2,3,4", "--seeds", "15"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mu2_optax.sweep", *options, "--out", "run", "--workers", "2"],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a terminal sends Ctrl-C to every process of the group
    )
    try:
        signal_after_cells(process, tmp_path / "run" / "journal" / "train_fn.jsonl", 8, 0)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    again = (*options, "--out", "run", "--workers", "2", "--resume")
    status, _, errors = run(*again, cwd=tmp_path)
    assert status == 0, errors
    assert_as_here(tmp_path / "run", seeds=15)


def first_byte(host, port, context=None, said=b""):
    """What a server says first, over TLS or in the clear."""
    with contextlib.ExitStack() as stack:
        line = stack.enter_context(socket.create_connection((host, port), timeout=300))
        if context is not None:
            line = stack.enter_context(context.wrap_socket(line))
        line.sendall(said)
        return line.recv(1)


@pytest.mark.slow
def test_strangers_cannot_join_the_workers_of_the_command():
    options = argparse.Namespace(workers=1, scheduler=None, function=None)
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # without a certificate of the command
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with open_executor(options) as executor:
        assert executor.submit(sum, [1, 2]).result(timeout=300) == 3
        client = executor._client
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        server = ("127.0.0.1", int(client.scheduler.address.rpartition(":")[2]))
        known = client.security.get_connection_args("client")["ssl_context"]
        assert first_byte(*server, known)  # Dask's greeting
        with pytest.raises(ssl.SSLError, match="certificate required"):
            first_byte(*server, stranger)
        with pytest.raises(ConnectionResetError):
            first_byte(*server, said=bytes(64))


def test_where_no_scheduler_answers_the_command_says_so(tmp_path, monkeypatch, capsys):
    def refused(address, timeout):
        raise OSError("nobody there")

    monkeypatch.chdir(tmp_path)
    address = "tcp://127.0.0.1:8786"
    monkeypatch.setattr(distributed, "Client", refused)
    assert main(["--scheduler", address, "--quiet"]) == 2
    assert f"no Dask scheduler answers at {address} (nobody there)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
