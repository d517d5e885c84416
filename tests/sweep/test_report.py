import numpy as np

from mu2_optax.sweep import SweepResult
from mu2_optax.sweep._command.report import table


def result(label, values, metric="accuracy", seeds=2):
    values = np.repeat(np.asarray(values, float)[:, None], seeds, axis=1)
    rates = 10.0 ** np.arange(-4, len(values) - 4)
    finished = np.ones(values.shape, bool)
    return SweepResult({metric: values}, {"learning_rate": rates}, np.arange(seeds), finished,
                       label=label)  # fmt: skip


def test_the_row_with_the_widest_plateau_near_the_tables_best_is_marked():
    flat_but_poor = result("poor", [0.5, 0.5, 0.5])
    good = result("good", [0.89, 0.9, 0.2])
    lines = table({"poor": flat_but_poor, "good": good}, "accuracy", "max").splitlines()
    assert lines[1].split() == ["1e-4", "1e-3", "0.01", "plateau", "ratio"]
    assert lines[2].split() == ["poor", ".500", ".500", ".500", "0.0", "100"]
    assert lines[3].split() == ["*", "good", ".890", ".900", ".200", "1.0", "10"]


def test_a_loss_is_on_the_plateau_up_to_twice_the_tables_best():
    lines = table({"a": result("a", [3, 2, 1], "loss")}, "loss", "min").splitlines()
    assert lines[2].split() == ["*", "a", "3.000", "2.000", "1.000", "1.0", "10"]


def test_diverged_and_unfinished_cells_are_told_apart():
    partial = result("a", [0.5, np.nan, np.nan])
    partial.finished[2] = False
    lines = table({"a": partial}, "accuracy", "max").splitlines()
    assert lines[2].split() == ["a", ".500", "div", "--", "--", "--"]


def test_a_table_in_which_everything_diverged_can_be_printed():
    assert "div" in table({"a": result("a", [np.nan, np.nan])}, "accuracy", "max")
