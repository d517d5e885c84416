import csv
import json
import signal
import subprocess
import sys

import numpy as np
import pytest
from sweep.conftest import PATIENCE, environment, run, signal_after_cells, start, write_mnist

import mu2_optax
from mu2_optax.sweep import load_results, plot_sweep
from mu2_optax.sweep._command import cli
from mu2_optax.sweep._command.cli import main

QUADRATIC = '''
"""Gradient descent on x²/2, which diverges from rate 2 on."""
import jax, optax

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
    return {"loss": (1 - learning_rate) ** 2, "score": learning_rate}

def oddly_named(learning_rate, key):
    return {"grad-norm": learning_rate, "val-loss": 3 - learning_rate}

def wrong(a, b):
    return {}
'''

SLOW = '''
"""A cell that takes a while, and notes on disk that it ran."""
import time
import jax, jax.numpy as jnp, numpy as np

def host(rate, bits):
    time.sleep(0.15)
    with open("cells.log", "a") as log:
        log.write(f"{rate:g} {bits}\\n")
    return np.float32(rate)

def train_fn(learning_rate, key):
    out = jax.ShapeDtypeStruct((), jnp.float32)
    return {"loss": jax.pure_callback(host, out, learning_rate, jax.random.bits(key))}
'''


STEPS_TASK = """
import jax.numpy as jnp
def train_fn(optimizer, key, steps=5):
    state = optimizer.init(jnp.ones(2))
    return {"loss": optimizer.eval_params(state, jnp.ones(2))[0] * steps}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty working folder with two modules of tasks; pictures take long, and are not drawn."""
    monkeypatch.setattr(cli, "plot_sweep", lambda results, metric, path, **options: path.touch())
    (tmp_path / "quadratic_task.py").write_text(QUADRATIC)
    (tmp_path / "slow_task.py").write_text(SLOW)
    for module in ("picky_task", "steps_task", "halved_task"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_task_of_ones_own_can_take_an_optimizer(folder, monkeypatch, capsys):
    monkeypatch.setattr(cli, "plot_sweep", plot_sweep)
    arguments = ["quadratic_task:train_fn", "--optimizers", "sgd,mu2_sgd", "--lrs", "0.1,1,4"]
    assert main([*arguments, "--seeds", "2", "--out", "run", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "sgd" in out
    assert "div" in out  # SGD at rate 4
    results = load_results(folder / "run" / "results.json")
    assert list(results) == ["sgd", "mu2_sgd"]
    assert results["sgd"].metrics["loss"].shape == (3, 2)
    assert results["sgd"].diverged("loss").tolist() == [[False] * 2, [False] * 2, [True] * 2]
    table = rows(folder / "run" / "results.csv")
    assert list(table[0]) == ["optimizer", "learning_rate", "seed", "loss"]
    assert len(table) == 12
    assert (folder / "run" / "sweep.png").stat().st_size > 10_000
    report = (folder / "run" / "report.html").read_text()
    assert "mu2-sweep quadratic_task:train_fn --optimizers sgd,mu2_sgd --lrs 0.1,1,4" in report
    assert "learning rate 0.1, seed 1" in report


def test_a_task_of_ones_own_can_take_a_rate_and_name_its_metric(folder, capsys):
    arguments = ["quadratic_task:by_rate", "--lrs", "0.5:2:lin4", "--seeds", "1", "--quiet"]
    assert main([*arguments, "--metric", "score", "--better", "high"]) == 0
    assert "score, mean of 1 seeds" in capsys.readouterr().out
    results = load_results(folder / "mu2-sweep-quadratic_task-by_rate" / "results.json")
    assert results["by_rate"].learning_rates.tolist() == [0.5, 1.0, 1.5, 2.0]


@pytest.mark.parametrize(("better", "winner"), [("high", "mu2_sgd"), ("low", "sgd")])
def test_better_says_which_way_a_metric_is_better(folder, capsys, better, winner):
    source = """
def train_fn(optimizer, key):
    return {"height": 2.0 if type(optimizer.init(0.0)).__name__ == "Mu2State" else 1.0}
"""
    (folder / "height_task.py").write_text(source)
    arguments = ["height_task:train_fn", "--optimizers", "sgd,mu2_sgd", "--lrs", "1,2", "--quiet"]
    assert main([*arguments, "--better", better, "--out", "run"]) == 0
    marked = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("* "))
    assert marked.split()[1] == winner


def test_a_dash_in_a_metrics_name_is_no_underscore(folder, capsys):
    arguments = ["quadratic_task:oddly_named", "--lrs", "1,2", "--seeds", "1", "--quiet"]
    assert main([*arguments, "--metric", "val-loss", "--out", "run"]) == 0
    assert "val-loss, mean of 1 seeds" in capsys.readouterr().out
    assert main([*arguments, "--metric", "grad-norm", "--better", "low", "--out", "run2"]) == 0


def test_an_ordinary_function_is_swept_by_the_strategy_python(folder, capsys):
    source = """
def train_fn(learning_rate, key):
    print("ran", type(learning_rate).__name__)
    return {"loss": learning_rate if learning_rate > 1 else 0.5}
"""
    (folder / "ordinary_task.py").write_text(source)
    arguments = ["ordinary_task:train_fn", "--strategy", "python", "--lrs", "1,2", "--quiet"]
    assert main([*arguments, "--seeds", "1", "--metric", "los", "--out", "run"]) == 2
    assert capsys.readouterr().out.count("ran float") == 1  # its first cell shows the metrics
    assert main([*arguments, "--seeds", "1", "--out", "run"]) == 0
    results = load_results(folder / "run" / "results.json")
    assert results["train_fn"].metrics["loss"].tolist() == [[0.5], [2.0]]


PICKY = """
def train_fn(optimizer, key):
    if type(optimizer.init(0.0)).__name__ == "Mu2State":
        raise ValueError("no luck")
    return {"loss": 1.0, "score": 2.0}
"""


def test_an_optimizer_that_fails_does_not_take_the_others_with_it(folder, capsys):
    (folder / "picky_task.py").write_text(PICKY)
    arguments = ["picky_task:train_fn", "--optimizers", "mu2_sgd,sgd", "--lrs", "1", "--quiet"]
    assert main([*arguments, "--out", "run"]) == 1
    err = capsys.readouterr().err
    assert "ValueError: no luck" in err  # with its traceback, to be found
    assert "mu2_sgd failed" in err


def test_an_optimizer_that_failed_is_in_table_page_and_files(folder, capsys):
    (folder / "picky_task.py").write_text(PICKY)
    arguments = ["picky_task:train_fn", "--optimizers", "mu2_sgd,sgd", "--lrs", "1,2", "--quiet"]
    assert main([*arguments, "--out", "run"]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[2].split() == ["mu2_sgd", "--", "err", "err", "0.0"]
    assert "12 cells, 0 diverged, 6 failed." in out
    page = (folder / "run" / "report.html").read_text()
    assert "2 optimizers" in page
    assert "0 diverged · 6 failed" in page
    assert "<td>ValueError: no luck" in page
    assert "failed: ValueError: no luck" in page  # under the pointer, at its cross
    assert "<summary>Score</summary>" in page
    for suffix in ("json", "csv"):
        results = load_results(folder / "run" / f"results.{suffix}")
        assert list(results) == ["mu2_sgd", "sgd"]
        assert results["mu2_sgd"].failed().all()
        assert not results["sgd"].failed().any()
    (folder / "picky_task.py").write_text(PICKY.replace('raise ValueError("no luck")', "pass"))
    sys.modules.pop("picky_task")
    assert main([*arguments, "--out", "run", "--resume"]) == 0
    assert "12 cells, 0 diverged. " in capsys.readouterr().out


def test_what_had_finished_before_an_optimizer_failed_is_kept(folder, capsys):
    source = """
def train_fn(learning_rate, key):
    if learning_rate > 1:
        raise ValueError("no luck")
    return {"loss": 1.0 if learning_rate == 1 else "text"}
"""
    (folder / "late_task.py").write_text(source)
    arguments = ["late_task:train_fn", "--strategy", "python", "--seeds", "1", "--quiet"]
    with pytest.warns(UserWarning, match="no luck"):
        assert main([*arguments, "--lrs", "1,2,0.5", "--out", "run"]) == 1
    row = ["train_fn", "1.000", "at", "1", "err", "1.000", "err", "0.0"]
    assert capsys.readouterr().out.splitlines()[2].split() == row
    errors = load_results(folder / "run" / "results.json")["train_fn"].errors
    assert errors[1, 0] == "ValueError: no luck"
    assert errors[2, 0].startswith("TypeError: metric 'loss' must hold real numbers")


def test_if_every_optimizer_fails_there_is_nothing_to_show(folder, capsys):
    (folder / "picky_task.py").write_text(PICKY)
    arguments = ["picky_task:train_fn", "--optimizers", "mu2_sgd", "--lrs", "1", "--quiet"]
    assert main([*arguments, "--out", "run"]) == 1
    assert capsys.readouterr().out == ""


def test_quiet_prints_the_result_alone(folder, capsys):
    arguments = ["quadratic_task:by_rate", "--lrs", "1,2", "--seeds", "1"]
    assert main([*arguments, "--out", "run"]) == 0
    assert "by_rate done" in capsys.readouterr().err
    assert main([*arguments, "--out", "run2", "--quiet"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "plateau" in captured.out


def test_the_tolerance_of_the_plateau_is_an_option(folder, capsys):
    arguments = ["quadratic_task:by_rate", "--lrs", "1,2", "--seeds", "1", "--quiet"]
    assert main([*arguments, "--out", "run", "--tolerance", "1.5"]) == 0  # losses 0 and 1
    out = capsys.readouterr().out
    assert out.splitlines()[2].split()[:2] == ["*", "by_rate"]
    assert "within 1.5 of the table's best" in out
    assert "within 1.5 of" in (folder / "run" / "report.html").read_text()


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(folder):
    command = f"{sys.executable} -m mu2_optax.sweep --list | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(), capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_without_out_each_run_gets_a_folder_of_its_own(folder):
    arguments = ["quadratic_task:by_rate", "--lrs", "1", "--seeds", "1", "--quiet"]
    assert main(arguments) == main(arguments) == 0
    names = sorted(path.name for path in folder.glob("mu2-sweep-*"))
    assert names == ["mu2-sweep-quadratic_task-by_rate", "mu2-sweep-quadratic_task-by_rate-2"]


def test_an_old_run_is_neither_overwritten_nor_mixed_up(folder, capsys):
    arguments = ["quadratic_task:by_rate", "--seeds", "1", "--quiet", "--out", "run"]
    assert main([*arguments, "--lrs", "1,2"]) == 0
    assert main([*arguments, "--lrs", "1,2"]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert main([*arguments, "--lrs", "1,2", "--resume"]) == 0
    assert main([*arguments, "--lrs", "1,3", "--resume"]) == 2
    assert (
        "has the cell learning_rate=2, seed=0, which is not in this grid" in capsys.readouterr().err
    )


def test_rates_and_optimizers_can_be_added_to_a_run(folder, capsys):
    (folder / "steps_task.py").write_text(STEPS_TASK)
    arguments = ["steps_task:train_fn", "--seeds", "1", "--quiet", "--out", "run"]
    assert main([*arguments, "--optimizers", "sgd", "--lrs", "1,2"]) == 0
    journal = folder / "run" / "journal" / "sgd.jsonl"
    before = journal.read_text()
    more = ["--optimizers", "sgd,mu2_auto", "--lrs", "0.5,1,2", "--resume"]
    assert main([*arguments, *more]) == 0
    assert len(journal.read_text().removeprefix(before).splitlines()) == 1  # the new cell
    results = load_results(folder / "run" / "results.json")
    assert results["sgd"].learning_rates.tolist() == [0.5, 1.0, 2.0]
    assert list(results) == ["sgd", "mu2_auto"]


def test_what_has_no_rate_runs_once_per_seed_and_the_others_also_at_their_default(folder, capsys):
    (folder / "steps_task.py").write_text(STEPS_TASK)
    arguments = ["steps_task:train_fn", "--optimizers", "mu2_auto,adam,sgd", "--lrs", "0.1,1"]
    assert main([*arguments, "--seeds", "2", "--steps", "7", "--out", "run", "--quiet"]) == 0
    results = load_results(folder / "run" / "results.json")
    assert results["mu2_auto"].axes == {}
    assert results["mu2_auto"].metrics["loss"].tolist() == [7.0, 7.0]
    assert results["adam"].learning_rates.tolist() == [1e-3, 0.1, 1.0]
    assert results["adam"].info["untouched"] == 1e-3
    assert results["sgd"].learning_rates.tolist() == [0.1, 1.0]
    table = rows(folder / "run" / "results.csv")
    assert [row["learning_rate"] for row in table[:3]] == ["", "", "0.001"]
    out = capsys.readouterr().out
    assert "nothing to tune" in out
    assert "Nothing chosen: mu2_auto 7.000." in out
    assert "12 cells" in out
    assert "mu2_auto" in (folder / "run" / "report.html").read_text()


def test_halving_stops_what_is_hopeless_and_says_so(folder, capsys):
    source = """
def train_fn(optimizer, key, steps):
    step = optimizer.update(1.0, optimizer.init(0.0), 0.0, grad_fn=lambda *_: 1.0, batch=0)[0]
    return {"loss": (1 + step) ** 2 / steps}  # 0 at rate 1
"""
    (folder / "halved_task.py").write_text(source)
    arguments = ["halved_task:train_fn", "--optimizers", "mu2_auto,sgd", "--lrs", "0.1:1:lin8"]
    arguments += ["--seeds", "1", "--steps", "32", "--halving", "--out", "run", "--quiet"]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[2:] == ["nothing", "to", "tune"]
    cells = lines[3].split()
    assert cells[:5] == ["sgd", "--", "0.000", "at", "1"]
    assert cells[5:-2] == ["@2"] * 6 + ["@8"]
    assert "@N: stopped after N steps" in lines[4]
    assert "2 cells, by halving with 25 % of the steps, 0 diverged." in lines[-2]
    assert sorted(path.name[:6] for path in (folder / "run" / "journal").iterdir()) == [
        "mu2_au", "sgd-2.", "sgd-32", "sgd-8-",
    ]  # fmt: skip
    assert main([*arguments, "--resume"]) == 0


def test_without_steps_a_schedule_is_left_out_of_the_default_and_that_is_said(folder, capsys):
    (folder / "steps_task.py").write_text(STEPS_TASK)
    assert main(["steps_task:train_fn", "--lrs", "1", "--seeds", "1", "--out", "run"]) == 0
    assert "leaving out adamw_cosine, whose schedule needs --steps" in capsys.readouterr().err
    names = ["mu2_auto", "mu2_auto_spectral", "schedule_free_adamw", "prodigy"]
    assert list(load_results(folder / "run" / "results.json")) == names


def test_with_a_ball_the_papers_optimizers_are_the_default(folder):
    (folder / "steps_task.py").write_text(STEPS_TASK)
    arguments = ["steps_task:train_fn", "--seeds", "1", "--out", "run", "--quiet", "--ball", "3"]
    assert main(arguments) == 0
    results = load_results(folder / "run" / "results.json")
    assert list(results) == ["mu2_auto", "mu2_sgd", "mu2_extra_sgd", "storm", "anytime_sgd", "sgd",
                             "momentum", "adam"]  # fmt: skip
    assert results["sgd"].learning_rates.tolist() == [10.0**i for i in range(-4, 5)]


def test_the_list_names_tasks_optimizers_and_metrics(capsys):
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in ("digits", "mnist", "mu2_extra_sgd", "anytime_sgd", "adam", "train_loss",
                 "mu2_auto_spectral", "muon", "paper"):  # fmt: skip
        assert f"  {name}" in out


@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        (["--task", "digit"], ["no task 'digit'", "Did you mean 'digits'?", "mnist"]),
        (["--optimizers", "mu2"], ["no optimizer 'mu2'", "mu2_sgd", "anytime_sgd"]),
        (["--optimizers", ","], ["no optimizer given"]),
        (["--metric", "accuracy"], ["no metric 'accuracy'", "Did you mean 'test_accuracy'?"]),
        (["--ball", "-1"], ["--ball must be positive and finite, got -1"]),
        (["--ball", "inf"], ["--ball must be positive and finite, got inf"]),
        (["--lrs", "1e-60,1e-50"], ["different numbers in float32", "1e-60"]),
        (["--strategy", "python", "--chunk-size", "2"], ["--chunk-size does not apply"]),
        (["quadratic_task:train_fn", "--data", "x"], ["a function reads its own data"]),
        (["--task", "mnist"], ["--data", "MU2_OPTAX_DATA"]),
        (["--task", "mnist", "--data", "nowhere"], ["no train-images-idx3-ubyte.gz in nowhere"]),
        (["--resume"], ["there is no mu2-sweep-digits to resume"]),
        (["--seeds", "0", "--out", "x"], ["`seeds` must be at least 1, got 0"]),
        (["--task", "digits", "quadratic_task:train_fn"], ["not both"]),
        (["nothing:train_fn"], ["no module 'nothing'"]),
        (["quadratic_task"], ["must look like my_module:train_fn"]),
        (["quadratic_task:train"], ["no function 'train'", "train_fn"]),
        (["quadratic_task:wrong"], ["(optimizer, key) or (learning_rate, key)", "(a, b)"]),
        (["quadratic_task:by_rate", "--ball", "1"], ["--optimizers and --ball do not apply"]),
        (["quadratic_task:by_rate", "--steps", "1"], ["by_rate does not take `steps`"]),
        (["quadratic_task:train_fn", "--optimizers", "adamw_cosine"], ["number of --steps"]),
        (
            ["quadratic_task:by_rate", "--halving"],
            ["--halving needs a function that takes `steps`"],
        ),
        (["--ball", "1", "--optimizers", "all"], ["mu2_auto_spectral cannot keep"]),
        (["--out", "quadratic_task.py"], ["--out must name a folder", "is a file"]),
        (["--out", "quadratic_task.py/run"], ["--out must name a folder", "is a file"]),
        (["quadratic_task:by_rate", "--metric", "los"], ["no metric 'los'", "mean 'loss'?"]),
        (
            ["quadratic_task:oddly_named"],
            ["'grad-norm' does not say whether low or high", "--better low"],
        ),
    ],
)
def test_bad_options_say_what_exists(folder, capsys, monkeypatch, arguments, messages):
    monkeypatch.delenv("MU2_OPTAX_DATA", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = sorted(path.name for path in folder.glob("*"))
    assert main(arguments) == 2
    captured = capsys.readouterr()
    for message in messages:
        assert message in captured.err
    assert len(captured.err.splitlines()) == 1
    assert sorted(path.name for path in folder.glob("*")) == before  # nothing has been written


@pytest.mark.parametrize(
    "arguments",
    [
        ["--lrs", "1:10"],
        ["--lrs", "1:10:geo3"],
        ["--lrs", "a,b"],
        ["--lrs", "-1,1"],
        ["--lrs", "1:10:log1"],
        ["--lrs", "1:10:lin1"],
        ["--tolerance", "-1"],
        ["--tolerance", "nan"],
        ["--tolerance", "x"],
        ["--seeds", "x"],
        ["--strategy", "pmap"],
        ["--chunk-size", "0"],
        ["--chunk-size", "two"],
        ["--better", "higher"],
        ["--nonsense"],
    ],
)
def test_malformed_options_are_refused_by_the_parser(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: mu2-sweep" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lrs", "-1,1"], "rates must be positive and finite, got '-1,1'"),
        (["--lrs", "1:10:log1"], "from low to high in at least 2, got '1:10:log1'"),
        (["--tolerance", "-1"], "must be a number of at least 0, got '-1'"),
    ],
)
def test_the_parser_says_what_is_wrong(arguments, message, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert message in capsys.readouterr().err


def test_the_help_has_examples(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "mu2-sweep my_module:train_fn" in out
    assert max(map(len, out.splitlines())) <= 100


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.strip() == f"mu2-optax {mu2_optax.__version__}"


def test_real_data_are_found_where_the_environment_says(folder, monkeypatch):
    write_mnist(folder / "data")
    monkeypatch.setenv("MU2_OPTAX_DATA", str(folder / "data"))
    arguments = ["--task", "mnist", "--steps", "2", "--optimizers", "sgd", "--lrs", "0.1"]
    assert main([*arguments, "--quiet", "--out", "run"]) == 0
    assert rows(folder / "run" / "results.csv")[0]["optimizer"] == "sgd"


@pytest.mark.slow
def test_the_default_run_shows_what_you_get_when_you_choose_nothing(tmp_path):
    status, out, err = run(cwd=tmp_path)
    assert status == 0, err
    results = load_results(tmp_path / "mu2-sweep-digits" / "results.json")
    assert list(results) == [
        "mu2_auto", "mu2_auto_spectral", "adamw_cosine", "schedule_free_adamw", "prodigy",
    ]  # fmt: skip
    accuracy = {name: r.metrics["test_accuracy"].mean(axis=-1) for name, r in results.items()}
    assert accuracy["mu2_auto"] > 0.96  # no ball holds it
    best = max(values.max() for values in accuracy.values())
    assert accuracy["mu2_auto"] > best - 0.02
    for name in ("adamw_cosine", "schedule_free_adamw", "prodigy"):
        rates = results[name].learning_rates
        assert len(rates) == 8  # the default of each is among those of all
        assert results[name].info["untouched"] in rates
    assert (tmp_path / "mu2-sweep-digits" / "sweep.png").exists()
    assert "Nothing chosen: mu2_auto .9" in out


@pytest.mark.slow
def test_in_a_ball_the_papers_optimizers_show_their_plateau(tmp_path):
    arguments = ["--ball", "3", "--optimizers", "mu2_auto,mu2_sgd,sgd"]
    status, out, err = run(*arguments, cwd=tmp_path)
    assert status == 0, err
    results = load_results(tmp_path / "mu2-sweep-digits" / "results.json")
    np.testing.assert_allclose(results["sgd"].learning_rates, np.logspace(-4, 4, 9))
    accuracy = {name: r.metrics["test_accuracy"].mean(axis=-1) for name, r in results.items()}
    assert accuracy["mu2_auto"] > 0.93
    assert (accuracy["mu2_sgd"][3:] > 0.93).all()  # every rate from 0.1 on
    assert (accuracy["sgd"][5:] < 0.6).all()  # every rate from 10 on
    assert "* mu2_sgd" in out


ARGUMENTS = ("slow_task:train_fn", "--strategy", "loop", "--lrs", "1:8:lin8", "--seeds", "3")


@pytest.mark.slow
def test_after_a_kill_resume_runs_no_recorded_cell_again(folder):
    process = start(*ARGUMENTS, "--out", "run", cwd=folder)
    journal = folder / "run" / "journal" / "train_fn.jsonl"
    signal_after_cells(process, journal, 1 + 5, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL
    done = [json.loads(line)["cell"] for line in journal.read_text().splitlines()[1:]]
    assert 5 <= len(done) < 24
    (folder / "cells.log").write_text("")
    status, _, err = run(*ARGUMENTS, "--out", "run", "--resume", cwd=folder)
    assert status == 0, err
    assert len((folder / "cells.log").read_text().splitlines()) == 24 - len(done)
    assert len(rows(folder / "run" / "results.csv")) == 24


@pytest.mark.slow
def test_ctrl_c_keeps_what_has_finished_and_resume_goes_on(folder):
    process = start(*ARGUMENTS, "--out", "run", cwd=folder)
    signal_after_cells(process, folder / "run" / "journal" / "train_fn.jsonl", 6, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "--out run --resume" in err
    kept = rows(folder / "run" / "results.csv")
    assert 5 <= len(kept) < 24
    assert all(float(row["loss"]) == float(row["learning_rate"]) for row in kept)
    assert "--" in out  # the table shows what has not been run
    status, _, err = run(*ARGUMENTS, "--out", "run", "--resume", cwd=folder)
    assert status == 0, err
    assert len((folder / "cells.log").read_text().splitlines()) == 24
    assert len(rows(folder / "run" / "results.csv")) == 24
