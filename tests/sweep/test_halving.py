"""Halving finds the best cell of the grid at a quarter of the steps."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import optax
import pytest

from mu2_optax.sweep import SweepInterrupted, halving, load_digits, sweep
from mu2_optax.sweep._command.tasks import TASKS, make_train

RATES = [1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]


def quadratic(calls=None, interrupted_at=None):
    """Steps of gradient descent on x²/2: the best rate is 1, and 3 diverges."""

    def train(learning_rate, key, steps):
        if calls is not None:
            calls.append((learning_rate, steps))
        if (learning_rate, steps) == interrupted_at:
            raise KeyboardInterrupt
        return {"loss": np.float64(1 - learning_rate) ** (2 * steps), "steps": steps}

    return train


def halved(train, **options):
    given = {"strategy": "python", "progress": False} | options
    return halving(train, RATES, 2, [1, 4, 16], **given)


def test_the_best_rate_is_run_to_the_end_and_the_others_are_said_to_be_stopped():
    calls = []
    result = halved(quadratic(calls))
    assert result.finished.tolist() == [[rate == 1.0] * 2 for rate in RATES]
    assert result.metrics["loss"][6].tolist() == [0.0, 0.0]
    assert np.isnan(result.metrics["loss"][0]).all()
    told = result.info["halving"]
    assert told["budgets"] == [1, 4, 16]
    assert sorted(told["stopped"]) == [[1e-3, 1], [3e-3, 1], [0.01, 1], [0.03, 1], [0.1, 1],
                                       [0.3, 4], [3.0, 1]]  # fmt: skip
    assert told["share"] == sum(steps for _, steps in calls) / (2 * 8 * 16) == 0.25
    assert [rung["rates"] for rung in told["rungs"]] == [RATES, [0.3, 1.0], [1.0]]
    assert result.learning_rates.tolist() == RATES


@pytest.mark.parametrize(("count", "share"), [(4, 0.375), (8, 0.25), (16, 0.1875), (64, 0.1875)])
def test_it_costs_a_share_of_all_steps(count, share):
    train = lambda learning_rate, key, steps: {"loss": learning_rate}
    rates = np.arange(1.0, count + 1)
    result = halving(train, rates, 1, 160, strategy="python", progress=False)
    assert result.info["halving"]["share"] == share
    assert result.finished[0, 0]


def test_the_highest_reward_is_run_to_the_end_and_what_diverged_is_not():
    train = lambda learning_rate, key, steps: {
        "loss": 0.0,
        "reward": np.nan if learning_rate == 3 else np.inf if learning_rate == 1 else learning_rate,
    }
    result = halved(train, metric="reward", mode="max")
    assert result.learning_rates[result.finished[:, 0]].tolist() == [0.3]
    assert result.info["halving"]["rungs"][0]["means"][-2:] == [None, None]


def test_a_resumed_run_runs_nothing_again_and_has_the_same_bits(tmp_path):
    whole = halved(quadratic())
    resume = tmp_path / "run.jsonl"
    with pytest.raises(SweepInterrupted) as stopped:
        halved(quadratic(interrupted_at=(1.0, 4)), resume=resume)
    assert stopped.value.result.shape == (8, 2)  # of the whole, where nothing has finished
    assert not stopped.value.result.finished.any()
    calls = []
    again = halved(quadratic(calls), resume=resume)
    assert calls == [(1.0, 4), (0.3, 4), (1.0, 4), (1.0, 16), (1.0, 16)]
    for name, values in whole.metrics.items():
        assert again.metrics[name].tobytes() == values.tobytes()
    assert again.info["halving"] == whole.info["halving"]
    calls.clear()
    halved(quadratic(calls), resume=resume)
    assert calls == []
    assert sorted(path.name.split("-")[1].split(".")[0] for path in tmp_path.iterdir()) == [
        "1", "16", "4",
    ]  # fmt: skip


def test_rates_can_be_added_to_it_too(tmp_path):
    resume = tmp_path / "run.jsonl"
    options = {"strategy": "python", "progress": False, "resume": resume}
    halving(quadratic(), RATES[:5], 1, [1, 4], **options)
    calls = []
    halving(quadratic(calls), RATES, 1, [1, 4], **options)
    assert [call for call in calls if call[1] == 1] == [(rate, 1) for rate in RATES[5:]]


@pytest.mark.parametrize("budgets", [[], [0, 4], [4, 4], [4, 1], [1.5, 4], -1])
def test_budgets_that_do_not_grow_are_refused(budgets):
    with pytest.raises(ValueError, match="`budgets` must be growing numbers of steps"):
        halving(quadratic(), RATES, 1, budgets)


def test_what_it_cannot_do_is_refused():
    with pytest.raises(TypeError, match="takes no `minutes`"):
        halving(quadratic(), RATES, 1, 16, minutes=1)
    with pytest.raises(ValueError, match="must be rates alone, got the axes"):
        halving(quadratic(), {"learning_rate": RATES, "beta": [0.5]}, 1, 16)


@pytest.fixture(scope="module")
def digits():
    """Adam on the command's default task, with a function of the steps."""
    data, task = load_digits(), TASKS["digits"]

    def train(learning_rate, key, steps):
        tx = optax.with_extra_args_support(optax.adam(learning_rate))
        return make_train(replace(task, steps=steps), data)(tx, key)

    return train


@pytest.mark.slow
def test_it_finds_the_best_cell_of_the_digits_at_a_quarter_of_the_steps(digits, tmp_path):
    rates = np.logspace(-4, 2, 8)
    options = {"strategy": "loop", "progress": False}
    whole = sweep(lambda rate, key: digits(rate, key, 440), rates, 2, **options)
    loss = whole.metrics["test_loss"].mean(axis=1)
    resume = tmp_path / "run.jsonl"
    result = halving(digits, rates, 2, 440, metric="test_loss", resume=resume, **options)
    (best,) = np.flatnonzero(result.finished.all(axis=1))
    assert best == loss.argmin()
    assert result.info["halving"]["share"] <= 0.25
    for name, values in whole.metrics.items():  # the same cells as in the whole grid
        assert result.metrics[name][best].tobytes() == values[best].tobytes()
    with ThreadPoolExecutor(2) as executor:
        spread = halving(digits, rates, 2, 440, metric="test_loss", executor=executor, **options)
    for name, values in result.metrics.items():
        assert spread.metrics[name].tobytes() == values.tobytes()
    assert len(list(tmp_path.iterdir())) == 3
