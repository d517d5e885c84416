"""Halving finds the best cell of the grid at a quarter of the steps."""

import functools

import numpy as np
import pytest

from mu2_optax.sweep import SweepInterrupted, halving

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


python = functools.partial(halving, strategy="python", progress=False)
halved = lambda train, **options: python(train, RATES, 2, [1, 4, 16], **options)


def test_halving_runs_the_best_rate_to_the_end_and_says_which_it_stopped():
    calls = []
    result = halved(quadratic(calls), label="sgd")
    assert result.label == "sgd"
    assert result.learning_rates.tolist() == RATES
    assert result.finished.tolist() == [[rate == 1.0] * 2 for rate in RATES]
    assert result.metrics["loss"][6].tolist() == [0.0, 0.0]
    assert np.isnan(result.metrics["loss"][0]).all()
    told = result.info["halving"]
    assert sorted(told["stopped"]) == [[1e-3, 1], [3e-3, 1], [0.01, 1], [0.03, 1], [0.1, 1],
                                       [0.3, 4], [3.0, 1]]  # fmt: skip
    assert told["share"] == sum(steps for _, steps in calls) / (2 * 8 * 16) == 0.25


@pytest.mark.parametrize(("count", "share"), [(4, 0.375), (8, 0.25), (16, 0.1875), (64, 0.1875)])
def test_halving_costs_a_share_of_all_steps(count, share):
    train = lambda learning_rate, key, steps: {"loss": learning_rate}
    result = python(train, np.arange(1.0, count + 1), 1, 160)
    assert result.info["halving"]["share"] == share
    assert result.finished[0, 0]


def test_halving_takes_the_highest_of_a_reward_and_nothing_that_diverged():
    train = lambda learning_rate, key, steps: {
        "loss": 0.0,
        "reward": np.nan if learning_rate == 3 else np.inf if learning_rate == 1 else learning_rate,
    }
    result = halved(train, metric="reward", mode="max")
    assert result.learning_rates[result.finished[:, 0]].tolist() == [0.3]


def test_halving_resumes_with_the_same_bits_and_with_more_rates(tmp_path):
    whole = halved(quadratic())
    with pytest.raises(SweepInterrupted):
        halved(quadratic(interrupted_at=(1.0, 4)), resume=tmp_path)
    calls = []
    again = halved(quadratic(calls), resume=tmp_path)
    assert calls == [(1.0, 4), (0.3, 4), (1.0, 4), (1.0, 16), (1.0, 16)]
    for name, values in whole.metrics.items():
        assert again.metrics[name].tobytes() == values.tobytes()
    assert again.info["halving"] == whole.info["halving"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["steps-1", "steps-16", "steps-4"]
    calls.clear()
    python(quadratic(calls), [*RATES, 0.9], 2, [1, 4, 16], resume=tmp_path)
    assert calls == [(0.9, 1), (0.9, 1), (0.9, 4), (0.9, 4)]


@pytest.mark.parametrize("budgets", [[], [0, 4], [4, 4], [4, 1], [1.5, 4], -1])
def test_halving_refuses_budgets_that_do_not_grow(budgets):
    with pytest.raises(ValueError, match="`budgets` must be growing numbers of steps"):
        halving(quadratic(), RATES, 1, budgets)
