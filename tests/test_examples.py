"""Each example runs a few steps, says how to use it, and refuses bad options."""

import importlib
import re
import sys

import pytest
from tiny_data import cifar_files, write

SCRIPTS = (
    "nothing_to_choose",
    "finetuning",
    "ppo_cartpole",
    "logistic_regression",
    "mnist_cnn",
    "cifar10_resnet",
    "optax_pipeline",
)


def call(script, monkeypatch, capsys, *options):
    """Runs a script in this process, and returns what it printed."""
    module = importlib.import_module(f"examples.{script}")
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *map(str, options)])
    module.main()
    return capsys.readouterr()


def accuracy(text):
    return float(re.search(r"test accuracy:? (\d\.\d+)", text)[1])


def test_nothing_to_choose_learns_digits(monkeypatch, capsys):
    shown = call("nothing_to_choose", monkeypatch, capsys, "--epochs", 3)
    assert accuracy(shown.out) > 0.93
    assert "loss" in shown.err  # progress


def table(text):
    """The rows of a printed table: the numbers after each name."""
    rows = (re.match(r"(\S.*?)  +(\d.*)", line) for line in text.splitlines())
    return {row[1]: [float(n) for n in re.findall(r"[\d.]+", row[2])] for row in rows if row}


@pytest.mark.slow
def test_finetuning_learns_other_digits_in_each_way(monkeypatch, capsys):
    options = ("--seeds", 1, "--epochs", 10, "--pretraining", 5)
    rows = table(call("finetuning", monkeypatch, capsys, *options).out)
    assert list(rows) == ["all of it", "new head", "LoRA"]
    for auto, _, adam, _ in rows.values():
        assert auto > 0.7
        assert auto > adam - 0.1


@pytest.mark.slow
def test_ppo_cartpole_learns_to_balance_the_pole(monkeypatch, capsys):
    options = ("--steps", 30_000, "--seeds", 2)
    rows = table(call("ppo_cartpole", monkeypatch, capsys, *options).out)
    assert len(rows) == 4
    training, _, _, _, kept, *_ = rows["mu2_auto()"]
    assert training > 50  # actions at random: about 22
    assert kept > 100


def test_logistic_regression_learns_digits_at_any_rate(monkeypatch, capsys):
    for rate in (1, 10_000):
        options = ("--learning-rate", rate, "--epochs", 5)
        shown = call("logistic_regression", monkeypatch, capsys, *options)
        assert accuracy(shown.out) > 0.88
        assert "loss" in shown.err  # progress


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_mnist_cnn_learns_digits(monkeypatch, capsys):
    shown = call("mnist_cnn", monkeypatch, capsys, "--epochs", 1, "--batch", 32)
    assert accuracy(shown.out) > 0.7


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_optax_pipeline_learns_in_each_part(monkeypatch, capsys):
    shown = call("optax_pipeline", monkeypatch, capsys, "--steps", 60)
    found = re.findall(r"(\w+) +test accuracy (\d\.\d+)", shown.out)
    assert len(found) == 7
    assert all(float(value) > 0.6 for _, value in found), found


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_cifar10_resnet_resumes_exactly(tmp_path, monkeypatch, capsys):
    write(tmp_path, cifar_files(records=8))
    options = ("--data-dir", tmp_path, "--width", 2, "--depth", 10, "--batch", 8)
    for name, steps in (("whole", 6), ("part", 3), ("part", 6)):
        kept = ("--steps", steps, "--checkpoint", tmp_path / name)
        shown = call("cifar10_resnet", monkeypatch, capsys, *options, *kept)
    assert "resumed at step 3" in shown.err
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "part").read_bytes()


@pytest.mark.parametrize("script", SCRIPTS)
def test_examples_help_shows_the_commands(script, monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        call(script, monkeypatch, capsys, "--help")
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert f"python -m examples.{script}" in shown
    assert "Measured on" in shown


@pytest.mark.parametrize(
    ("script", "options", "message"),
    [
        ("logistic_regression", ("--learning-rate", "-1"), "expected a positive number, got '-1'"),
        ("logistic_regression", ("--batch", "0"), "expected a positive whole number, got '0'"),
        ("logistic_regression", ("--batch", "100000"), "more than the 1438 training images"),
        ("mnist_cnn", ("--beta", "1.5"), "expected a number from 0 to 1, got '1.5'"),
        ("mnist_cnn", ("--data", "cifar10"), "use examples/cifar10_resnet.py"),
        ("cifar10_resnet", ("--data", "mnist"), "--data must be cifar10, got mnist"),
        ("cifar10_resnet", ("--batch", "9"), "must be a multiple of the 8 devices"),
        ("cifar10_resnet", ("--checkpoint", "nowhere/file"), "there is no folder"),
    ],
)
def test_examples_refuse_bad_options(script, options, message, monkeypatch, capsys):
    with pytest.raises(SystemExit) as end:
        call(script, monkeypatch, capsys, *options)
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_examples_report_missing_data_without_a_traceback(tmp_path, monkeypatch, capsys):
    options = ("--data", "mnist", "--data-dir", tmp_path)
    with pytest.raises(SystemExit) as end:
        call("logistic_regression", monkeypatch, capsys, *options)
    assert end.value.code == 1
    assert f"no train-images-idx3-ubyte.gz in {tmp_path}" in capsys.readouterr().err
