import csv
import io
import os
import signal
import sys

import numpy as np
import pytest
from sweep.conftest import PATIENCE, run, start, write_mnist

from mu2_optax.sweep import load_results
from mu2_optax.sweep._command import cli
from mu2_optax.sweep._command.cli import main

TASKS = '''
"""Gradient descent on x²/2, which diverges from rate 2 on; and other functions."""
import jax, jax.numpy as jnp, optax

def train_fn(optimizer, key):
    loss = lambda x, batch: x**2 / 2
    def step(carry, _):
        x, state = carry
        updates, state = optimizer.update(
            jax.grad(loss)(x, ()), state, x, grad_fn=jax.grad(loss), batch=())
        return (optax.apply_updates(x, updates), state), None
    x = 1.0 + jax.random.uniform(key)
    (x, _), _ = jax.lax.scan(step, (x, optimizer.init(x)), length=300)
    return {"loss": loss(x, ())}

def by_rate(learning_rate, key):
    rate = learning_rate
    return {"loss": (1 - rate) ** 2, "score": rate, "val-loss": rate, "μ": rate}

def unclear(learning_rate, key):
    return {"score": learning_rate}

def with_steps(optimizer, key, steps=5):
    state = optimizer.init(jnp.ones(2))
    return {"loss": optimizer.eval_params(state, jnp.ones(2))[0] * steps}

def halved(optimizer, key, steps):
    step = optimizer.update(1.0, optimizer.init(0.0), 0.0, grad_fn=lambda *_: 1.0, batch=0)[0]
    return {"loss": (1 + step) ** 2 / steps}  # 0 at rate 1

def picky(optimizer, key):
    if type(optimizer.init(0.0)).__name__ == "Mu2State":
        raise ValueError("no luck")
    return {"loss": 1.0, "score": 2.0}

def wrong(a, b):
    return {}
'''
SLOW = '''
"""A cell that takes a while, and notes on disk that it ran."""
import time

def train_fn(learning_rate, key):
    time.sleep(0.15)
    with open("cells.log", "a") as log:
        log.write(f"{learning_rate:g}\\n")
    return {"loss": learning_rate}
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with two modules of tasks; pictures take long, and are not drawn."""

    class Undrawn:
        save = staticmethod(lambda path, **options: None)

    monkeypatch.setattr(cli, "plot_sweep", lambda results, metric, **options: Undrawn)
    monkeypatch.setattr(cli, "write_report", lambda results, metric, path, **options: None)
    (tmp_path / "own_tasks.py").write_text(TASKS)
    (tmp_path / "slow_task.py").write_text(SLOW)
    monkeypatch.delitem(sys.modules, "own_tasks", raising=False)
    monkeypatch.delenv("MU2_OPTAX_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(*arguments, out="run", seeds=1):
    """Runs the command quietly; returns its status."""
    return main([*arguments, "--seeds", str(seeds), "--out", out, "--quiet"])


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_command_writes_table_results_picture_and_page(tmp_path):
    (tmp_path / "own_tasks.py").write_text(TASKS)
    arguments = ["own_tasks:train_fn", "--optimizers", "sgd,mu2_sgd", "--lrs", "0.1,1,4"]
    status, out, err = run(*arguments, "--seeds", "2", "--out", "run", cwd=tmp_path)
    assert status == 0, err
    assert "sgd: 100%" in err
    assert "loss, mean of 2 seeds" in out
    assert "12 of 12 cells finished, 2 diverged, 0 failed. In run:" in out
    results = load_results(tmp_path / "run" / "results.npz")
    assert list(results) == ["sgd", "mu2_sgd"]
    assert results["sgd"].diverged("loss").tolist() == [[False] * 2, [False] * 2, [True] * 2]
    table = rows(tmp_path / "run" / "results.csv")
    assert list(table[0]) == ["optimizer", "learning_rate", "seed", "loss"]
    assert len(table) == 12
    assert (tmp_path / "run" / "sweep.png").stat().st_size > 10_000
    page = (tmp_path / "run" / "report.html").read_text()
    assert "mu2-sweep own_tasks:train_fn --optimizers sgd,mu2_sgd --lrs 0.1,1,4" in page
    assert "mu2_optax.mu2_sgd(" in page


def test_command_takes_a_function_of_the_rate_and_names_its_metric(folder, capsys):
    arguments = ["own_tasks:by_rate", "--lrs", "0.5,1,1.5,2", "--quiet", "--seeds", "1"]
    assert main([*arguments, "--metric", "score", "--mode", "max"]) == 0
    assert "score, mean of 1 seeds" in capsys.readouterr().out
    results = load_results(folder / "mu2-sweep-own_tasks-by_rate" / "results.npz")
    assert results["by_rate"].learning_rates.tolist() == [0.5, 1.0, 1.5, 2.0]
    assert main([*arguments, "--metric", "val-loss", "--out", "other"]) == 0


def test_command_prints_to_a_terminal_of_ascii_and_into_a_closed_pipe(folder, monkeypatch):
    arguments = ["own_tasks:by_rate", "--lrs", "1,2", "--metric", "μ", "--mode", "min"]
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", narrow)
    assert sweep(*arguments) == 0
    assert narrow.buffer.getvalue().startswith(rb"\u03bc, mean of 1 seeds")
    read, write = os.pipe()
    os.close(read)  # as in `mu2-sweep | head -1`
    with open(write, "w", encoding="utf-8") as closed:
        monkeypatch.setattr(sys, "stdout", closed)
        assert sweep(*arguments, out="other") == 0
    assert (folder / "other" / "results.csv").exists()


def test_command_asks_which_way_a_metric_is_better_and_keeps_the_cells(folder, capsys):
    arguments = ["own_tasks:unclear", "--lrs", "1,2"]
    assert sweep(*arguments) == 2
    err = capsys.readouterr().err
    assert "--mode" in err
    assert "add --out run --resume" in err
    assert sweep(*arguments, "--resume", "--mode", "min") == 0
    assert "* unclear" not in capsys.readouterr().out


def test_command_goes_on_after_an_optimizer_that_fails(folder, capsys):
    arguments = ["own_tasks:picky", "--optimizers", "mu2_sgd,sgd", "--lrs", "1,2"]
    assert sweep(*arguments) == 1
    captured = capsys.readouterr()
    assert "ValueError: no luck" in captured.err  # with its traceback, to be found
    assert "mu2_sgd failed" in captured.err
    assert "2 of 2 cells finished, 0 diverged, 0 failed." in captured.out
    assert list(load_results(folder / "run" / "results.npz")) == ["sgd"]
    (folder / "own_tasks.py").write_text(TASKS.replace('raise ValueError("no luck")', "pass"))
    sys.modules.pop("own_tasks")
    assert sweep(*arguments, "--resume") == 0  # what failed runs again
    assert "4 of 4 cells finished, 0 diverged, 0 failed." in capsys.readouterr().out
    (folder / "own_tasks.py").write_text(TASKS.replace('"score": 2.0}\n', '"score": 3.0}\n'))
    sys.modules.pop("own_tasks")
    assert sweep(*arguments, "--resume") == 2  # another function than the one recorded
    assert "`train`" in capsys.readouterr().err


def test_command_neither_overwrites_a_run_nor_mixes_it_with_another(folder, capsys):
    arguments = ["own_tasks:by_rate", "--lrs", "1,2"]
    assert sweep(*arguments) == 0
    assert sweep(*arguments) == 2
    assert "run holds a run already; continue it with --resume" in capsys.readouterr().err
    assert sweep(*arguments, "--resume") == 0
    assert sweep("own_tasks:with_steps", "--lrs", "1", "--resume", "--optimizers", "sgd") == 0
    capsys.readouterr()
    assert sweep(*arguments, "--resume", out="nothing") == 2
    assert "nothing holds no run to resume" in capsys.readouterr().err


def test_command_runs_what_has_no_rate_once_and_the_others_also_at_their_default(folder, capsys):
    arguments = ["own_tasks:with_steps", "--optimizers", "mu2_auto,adam,sgd", "--lrs", "0.1,1"]
    assert sweep(*arguments, "--steps", "7", seeds=2) == 0
    results = load_results(folder / "run" / "results.npz")
    assert results["mu2_auto"].axes == {}
    assert results["mu2_auto"].metrics["loss"].tolist() == [7.0, 7.0]
    assert results["adam"].learning_rates.tolist() == [1e-3, 0.1, 1.0]
    assert results["adam"].info["untouched"] == 1e-3
    assert results["sgd"].learning_rates.tolist() == [0.1, 1.0]
    out = capsys.readouterr().out
    assert "Nothing chosen: mu2_auto 7.000." in out
    assert "12 of 12 cells" in out


def test_command_halving_stops_what_is_hopeless_and_says_so(folder, capsys):
    arguments = [
        "own_tasks:halved",
        "--optimizers",
        "mu2_auto,sgd",
        "--lrs",
        "0.1,0.2,0.4,0.5,0.6,0.7,0.8,1",
    ]
    arguments += ["--steps", "32", "--halving"]
    assert sweep(*arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[2:] == ["nothing", "to", "tune"]
    cells = lines[3].split()
    assert cells[:5] == ["sgd", "--", "0.000", "at", "1"]
    assert cells[5:-2] == ["@2"] * 6 + ["@8"]
    assert "@N: stopped after N steps" in " ".join(lines)
    assert sweep(*arguments, "--resume") == 0


def test_command_reads_real_data(folder):
    write_mnist(folder / "data")
    arguments = ["--steps", "2", "--optimizers", "sgd", "--lrs", "0.1", "--data", "data"]
    assert sweep("mnist", *arguments) == 0
    assert rows(folder / "run" / "results.csv")[0]["optimizer"] == "sgd"


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["digit"], ["no task 'digit'", "digits, digits-mlp, mnist"]),
        (["--optimizers", "mu2"], ["no optimizer 'mu2'", "mu2_sgd", "paper"]),
        (["--metric", "test_acc"], ["no metric 'test_acc'", "test_accuracy"]),
        (["own_tasks:unclear", "--metric", "score"], ["--mode"]),
        (["--ball", "-1"], ["--ball must be positive and finite, got -1"]),
        (["--steps", "0"], ["--steps must be at least 1, got 0"]),
        (["--lrs", "1e-60,1e-50"], ["--lrs must be positive and finite", "1e-60"]),
        (["--lrs", "1:10"], ["look like 1e-4:1e4:log9"]),
        (["--lrs", "1,1"], ["must be distinct numbers"]),
        (["--seeds", "0"], ["`seeds` must be", "got 0"]),
        (["--seeds", "x"], ["--seeds must be like 3 or 0,1,7", "'x'"]),
        (["mnist"], ["--data", "MU2_OPTAX_DATA"]),
        (["--resume"], ["mu2-sweep-digits holds no run to resume"]),
        (["nothing:train_fn"], ["No module named 'nothing'"]),
        (["own_tasks:train"], ["has no attribute 'train'"]),
        (["own_tasks:__name__"], ["own_tasks:__name__ must be a function, got 'own_tasks'"]),
        (["own_tasks:wrong"], ["(optimizer, key) or (learning_rate, key)", "(a, b)"]),
        (["own_tasks:by_rate", "--ball", "1"], ["--ball need a function of (optimizer, key)"]),
        (["own_tasks:by_rate", "--steps", "1"], ["by_rate does not take `steps`"]),
        (["own_tasks:with_steps", "--optimizers", "adamw_cosine"], ["number of --steps"]),
        (["own_tasks:by_rate", "--halving"], ["--halving needs the --steps"]),
        (["--ball", "1", "--optimizers", "mu2_auto_spectral"], ["mu2_auto_spectral cannot keep"]),
    ],
)
def test_command_says_in_a_line_what_is_wrong_with_its_options(
    folder, capsys, monkeypatch, arguments, messages
):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = sorted(path.name for path in folder.glob("*"))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    for message in messages:
        assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert sorted(path.name for path in folder.glob("*")) == before  # nothing has been written


@pytest.mark.slow
def test_command_default_run_shows_what_you_get_when_you_choose_nothing(tmp_path):
    status, out, err = run(cwd=tmp_path)
    assert status == 0, err
    results = load_results(tmp_path / "mu2-sweep-digits" / "results.npz")
    accuracy = {name: r.metrics["test_accuracy"].mean(axis=-1) for name, r in results.items()}
    assert accuracy["mu2_auto"] > 0.96  # no ball holds it
    assert accuracy["mu2_auto"] > max(values.max() for values in accuracy.values()) - 0.02
    for name in ("adamw_cosine", "schedule_free_adamw", "prodigy"):
        assert len(results[name].learning_rates) == 8  # each default is among those of all
        assert results[name].info["untouched"] in results[name].learning_rates
    assert "Nothing chosen: mu2_auto .9" in out


@pytest.mark.slow
def test_command_in_a_ball_shows_the_papers_plateau(tmp_path):
    arguments = ["--ball", "3", "--optimizers", "mu2_auto,mu2_sgd,sgd", "--out", "run"]
    status, out, err = run(*arguments, cwd=tmp_path)
    assert status == 0, err
    results = load_results(tmp_path / "run" / "results.npz")
    accuracy = {name: r.metrics["test_accuracy"].mean(axis=-1) for name, r in results.items()}
    np.testing.assert_allclose(results["sgd"].learning_rates, np.logspace(-4, 4, 9))
    assert accuracy["mu2_auto"] > 0.93
    assert (accuracy["mu2_sgd"][3:] > 0.93).all()  # every rate from 0.1 on
    assert (accuracy["sgd"][5:] < 0.6).all()  # every rate from 10 on
    assert "* mu2_sgd" in out


@pytest.mark.slow
def test_command_keeps_what_has_finished_after_ctrl_c_and_goes_on(folder):
    arguments = [
        "slow_task:train_fn",
        "--strategy",
        "python",
        "--lrs",
        "1,2,3,4,5,6,7,8",
        "--out",
        "run",
    ]
    process = start(*arguments, cwd=folder)
    while not (folder / "cells.log").exists() or len((folder / "cells.log").read_text()) < 10:
        assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "--out run --resume" in err
    assert "--" in out  # the table shows what has not been run
    assert 4 <= len(rows(folder / "run" / "results.csv")) < 24
    status, _, err = run(*arguments, "--resume", cwd=folder)
    assert status == 0, err
    begun = (folder / "cells.log").read_text().splitlines()
    assert 24 <= len(begun) <= 25  # the cell that was cut off begins again
    assert len(rows(folder / "run" / "results.csv")) == 24
