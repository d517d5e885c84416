"""Every expected number here is worked out by hand from the curve beside it."""

import numpy as np
import pytest

from mu2_optax.sweep import (
    SweepResult,
    lr_sensitivity,
    plateau_width,
    stability_range,
)
from mu2_optax.sweep._metrics import metric_mode


def curve(losses, rates=None, metric="loss"):
    """A result with the given losses, (rates,) for one seed or (rates, seeds)."""
    losses = np.asarray(losses, np.float32)
    losses = losses[:, None] if losses.ndim == 1 else losses
    rates = 10.0 ** np.arange(len(losses)) if rates is None else np.asarray(rates, float)
    finished = np.ones(losses.shape[:2], bool)
    return SweepResult(
        {metric: losses}, {"learning_rate": rates}, np.arange(losses.shape[1]), finished
    )


def test_stability_range_is_all_rates_within_twice_the_best_excess():
    # rates 1, 10, 100, 1000, 10000; the best is 2, so up to 4 counts
    found = stability_range(curve([5, 4, 2, 3, 4.5]), "loss")
    assert found.rates == (10, 100, 1000)
    assert found.value == 100


def test_stability_range_counts_excess_above_the_optimum():
    # excess above 1.5: 3.5, 2.5, 0.5, 1.0, 3: up to 1.0 counts
    found = stability_range(curve([5, 4, 2, 2.5, 4.5]), "loss", optimum=1.5)
    assert found.rates == (100, 1000)
    assert found.value == 10


def test_stability_range_of_an_accuracy_is_that_of_the_error_rate():
    # error rates .5, .2, .1, .15, .3: up to .2 counts
    result = curve([0.5, 0.8, 0.9, 0.85, 0.7], metric="accuracy")
    assert stability_range(result, "accuracy").rates == (10, 100, 1000)


def test_stability_range_refuses_an_optimum_that_is_not():
    with pytest.raises(ValueError, match=r"at least as good as the best 'loss'.*2, got 3"):
        stability_range(curve([5, 2]), "loss", optimum=3)


def test_plateau_width_is_the_widest_run_within_the_tolerance():
    # within 1 of the best, 2: rates 1e1..1e3 (2 decades) and 1e5 alone
    assert plateau_width(curve([4, 3, 2, 3, 9, 2.5]), "loss", 1.0)[0] == pytest.approx(2)
    found = plateau_width(curve([2, 9, 3, 3, 3, 9]), "loss", 1.0)
    assert found.rates == (100, 1000, 10_000)
    assert found.value == pytest.approx(2)


def test_plateau_width_against_the_best_of_another_sweep():
    result = curve([0.9, 0.94, 0.95], metric="accuracy")
    assert plateau_width(result, "accuracy", 0.02, best=0.97).value == 0
    assert plateau_width(result, "accuracy", 0.03, best=0.97).value == pytest.approx(1)
    nowhere = plateau_width(result, "accuracy", 0.01, best=0.97)
    assert nowhere.value == 0
    assert nowhere.rates == ()


def test_lr_sensitivity_is_the_mean_loss_above_the_best_clipped_at_the_start():
    # clipped at 3: 1, 2, 3, 3, 3; above the best, 1: 0, 1, 2, 2, 2
    found = lr_sensitivity(curve([1, 2, 50, np.nan, np.inf]), "loss", initial=3.0)
    assert found.value == pytest.approx(7 / 5)
    assert found.rates == (1,)


def test_measures_take_a_rate_with_a_diverged_seed_for_the_worst():
    result = curve([[1, 1], [1, np.nan], [1, 1]])
    assert stability_range(result, "loss").rates == (1, 100)
    assert plateau_width(result, "loss", 0.5).value == 0


def test_measures_of_a_sweep_that_diverged_everywhere_are_zero():
    result = curve([[np.nan, np.nan], [np.inf, np.inf]])
    assert stability_range(result, "loss").value == 0
    assert stability_range(result, "loss").rates == ()
    assert plateau_width(result, "loss", 1.0).value == 0
    assert lr_sensitivity(result, "loss", initial=2.0).value == 0


def test_plateau_width_interval_spans_what_drawing_the_seeds_again_can_give():
    # Of two seeds one has its plateau over 1..100, the other at 1 alone; each is drawn twice in a
    # quarter of the samples, so that a 95 % interval reaches both.
    result = curve([[1, 1], [1, 9], [1, 9]])
    assert plateau_width(result, "loss", 0.5).interval == pytest.approx((0, 2))


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        ("max", "accuracy acc test_accuracy val_acc Accuracy eval/accuracy"),
        ("min", "loss train_loss val-loss Loss error test_error error_rate perplexity final_loss"),
    ],
)
def test_metric_mode_comes_from_a_plain_name(mode, names):
    assert {name: metric_mode(name) for name in names.split()} == dict.fromkeys(names.split(), mode)


@pytest.mark.parametrize(
    "name",
    ["neg_log_loss", "loss_reduction", "accuracy_loss", "curve", "score", "_loss", "nonloss"],
)
def test_metric_mode_of_other_names_must_be_given(name):
    with pytest.raises(ValueError, match=r"`mode=\"min\"` or `mode=\"max\"`.*--mode"):
        metric_mode(name)
    assert metric_mode(name, "max") == "max"
    assert metric_mode(name, "min") == "min"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda r: stability_range(r, "loss", factor=0.5), "`factor` must be at least 1, got 0.5"),
        (lambda r: plateau_width(r, "loss", -1), "`tolerance` must not be negative, got -1"),
        (lambda r: plateau_width(r, "loss", 1, mode="low"), "'min', 'max' or None, got 'low'"),
        (lambda r: lr_sensitivity(r, "loss", np.nan), "`initial`, .* must be finite, got nan"),
    ],
)
def test_measures_name_bad_arguments(call, match):
    with pytest.raises(ValueError, match=match):
        call(curve([1, 2]))


def test_measures_say_why_a_sweep_cannot_be_measured():
    unfinished = curve([1, 2])
    unfinished.finished[0, 0] = False
    with pytest.raises(ValueError, match="1 cells of the sweep have not been run"):
        plateau_width(unfinished, "loss", 1)
    with pytest.raises(ValueError, match="positive learning rates, got 0"):
        plateau_width(curve([1, 2], rates=[0, 1]), "loss", 1)
    two = SweepResult(
        {"loss": np.ones((1, 1, 1))},
        {"learning_rate": np.ones(1), "beta": np.ones(1)},
        np.arange(1),
        np.ones((1, 1, 1), bool),
    )
    with pytest.raises(ValueError, match=r"\['learning_rate', 'beta'\].*select"):
        plateau_width(two, "loss", 1)
    assert plateau_width(two.select(beta=1), "loss", 1).value == 0
    with pytest.raises(KeyError, match="learning_rate"):
        plateau_width(two.select(learning_rate=1), "loss", 1)


@pytest.mark.parametrize("seeds", [1, 3, 6, 7, 10])
def test_stability_range_takes_the_best_for_the_optimum_despite_rounding(seeds):
    result = curve(np.full((2, seeds), 0.1))
    best = float(np.float32(0.1))
    assert stability_range(result, "loss", optimum=best).value == 10
    result.metrics["loss"] = np.full((2, seeds), 0.1)  # the mean of which may be less by rounding
    assert stability_range(result, "loss", optimum=0.1).value == 10
