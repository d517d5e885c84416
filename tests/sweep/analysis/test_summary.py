import numpy as np
from mu2_optax.sweep._analysis.text import text_table

from mu2_optax.sweep import SweepResult


def result(label, values, metric="accuracy", seeds=2):
    values = np.repeat(np.asarray(values, float)[:, None], seeds, axis=1)
    rates = 10.0 ** np.arange(-4, len(values) - 4)
    finished = np.ones(values.shape, bool)
    return SweepResult({metric: values}, {"learning_rate": rates}, np.arange(seeds), finished,
                       label=label)  # fmt: skip


def test_the_row_with_the_widest_plateau_near_the_tables_best_is_marked():
    flat_but_poor = result("poor", [0.5, 0.5, 0.5])
    good = result("good", [0.89, 0.9, 0.2])
    lines = text_table({"poor": flat_but_poor, "good": good}, "accuracy", "max").splitlines()
    assert lines[1].split() == ["tuned", "1e-4", "1e-3", "0.01", "plateau"]
    assert lines[2].split() == ["poor", ".500", "at", "1e-4", ".500", ".500", ".500", "0.0"]
    assert lines[3].split() == ["*", "good", ".900", "at", "1e-3", ".890", ".900", ".200", "1.0"]


def test_a_near_untrained_rate_is_not_on_the_plateau_of_a_loss():
    # 2.3 before training, 1.3 at best: the plateau goes up to 1.35, not up to twice the best.
    losses = result("a", [2.29, 2.2, 1.36, 1.3, 1.34], "loss")
    losses.metrics["start"] = np.full((5, 2), 2.3)
    text = text_table({"a": losses}, "loss", "min", "start")
    row = text.splitlines()[2]
    values = ["2.290", "2.200", "1.360", "1.300", "1.340"]
    assert row.split() == ["*", "a", "1.300", "at", "0.1", *values, "1.0"]
    assert "within 0.05 of the table's best (5 % of the way from before training)" in text


def test_where_the_start_is_not_known_a_plateau_goes_to_5_percent_of_the_best():
    text = text_table({"a": result("a", [3, 1.04, 1], "loss")}, "loss", "min")
    assert text.splitlines()[2].split()[-1] == "1.0"
    assert "within 0.05 of the table's best (5 % of it)" in text
    rewards = result("a", [-300, -104, -100], "reward")  # better high, and no accuracy
    assert text_table({"a": rewards}, "reward", "max").splitlines()[2].split()[-1] == "1.0"


def test_a_curve_tells_the_start():
    curves = result("a", [2, 1.4, 1], "loss")
    final = curves.metrics["loss"]
    start = np.full_like(final, 11.0)
    start[0] = 1e6  # one step at this rate, and far away
    curves.metrics["loss"] = np.stack([start, final], axis=-1)
    text = text_table({"a": curves}, "loss", "min")
    assert "within 0.5 of the table's best" in text
    assert text.splitlines()[2].split()[-1] == "1.0"


def test_a_tolerance_can_be_given():
    text = text_table({"a": result("a", [3, 2, 1], "loss")}, "loss", "min", tolerance=1.0)
    assert text.splitlines()[2].split()[-1] == "1.0"
    assert "within 1 of the table's best" in text


def test_no_row_is_marked_where_no_plateau_has_a_width_and_equals_are_all_marked():
    steep = {name: result(name, [0.5, 0.9, 0.6]) for name in "ab"}
    assert "* " not in text_table(steep, "accuracy", "max")
    equal = {"a": result("a", [0.9, 0.9, 0.1]), "b": result("b", [0.1, 0.9, 0.89])}
    lines = text_table(equal | {"c": steep["a"]}, "accuracy", "max").splitlines()
    assert [line[0] for line in lines[2:5]] == ["*", "*", " "]


def test_diverged_and_unfinished_cells_are_told_apart():
    partial = result("a", [0.5, np.nan, np.nan])
    partial.finished[2] = False
    lines = text_table({"a": partial}, "accuracy", "max").splitlines()
    assert lines[2].split() == ["a", ".500", "at", "1e-4", ".500", "div", "--", "--"]


def test_failed_cells_are_told_from_diverged_ones():
    some = result("a", [0.5, np.nan, np.nan])
    some.errors[1, 0] = "no luck"
    nothing = SweepResult({}, some.axes, some.seeds, some.finished,
                          {(i, j): "no luck" for i in range(3) for j in range(2)})  # fmt: skip
    lines = text_table({"a": some, "b": nothing}, "accuracy", "max").splitlines()
    assert lines[2].split() == ["a", ".500", "at", "1e-4", ".500", "err", "div", "0.0"]
    assert lines[3].split() == ["b", "--", "err", "err", "err", "0.0"]


def test_a_table_in_which_everything_diverged_can_be_printed():
    assert "div" in text_table({"a": result("a", [np.nan, np.nan])}, "accuracy", "max")


def flat(label, value, metric="accuracy", seeds=2):
    return SweepResult({metric: np.full(seeds, value)}, {}, np.arange(seeds), np.ones(seeds, bool),
                       label=label)  # fmt: skip


def test_a_row_with_nothing_to_choose_has_one_value_and_no_plateau():
    swept = result("swept", [0.5, 0.9, 0.91])
    swept.info["untouched"] = 1e-4
    text = text_table({"auto": flat("auto", 0.92), "swept": swept}, "accuracy", "max")
    lines = text.splitlines()
    assert lines[1].split()[:2] == ["untouched", "tuned"]
    assert lines[2].split() == ["auto", ".920", "nothing", "to", "tune"]
    assert lines[3].split()[:6] == ["*", "swept", ".500", ".910", "at", "0.01"]
    assert lines[-1] == (
        "Nothing chosen: auto .920. "
        "Best of the others untouched: swept .500; tuned: swept .910, at 0.01."
    )


def test_the_best_of_a_loss_is_the_lowest_and_the_untouched_may_be_missing():
    losses = {"b": result("b", [2, 1, np.nan], "loss"), "c": result("c", [3, 0.5, 4], "loss")}
    text = text_table({"auto": flat("auto", 0.7, "loss")} | losses, "loss", "min")
    assert text.endswith("Nothing chosen: auto .700. Best of the others tuned: c .500, at 1e-3.")


def test_a_table_of_rows_with_nothing_to_choose_has_no_rates():
    assert text_table({"auto": flat("auto", 0.92)}, "accuracy", "max").splitlines() == [
        "accuracy, mean of 2 seeds",
        "       untouched",
        "  auto      .920",
        "untouched: at the rate published as its default.",
    ]


def test_a_result_without_a_label_leaves_the_header_as_it_is():
    lines = text_table({"": result("", [0.5, 0.6])}, "accuracy", "max").splitlines()
    assert lines[1].split() == ["tuned", "1e-4", "1e-3", "plateau"]
    assert lines[2].split() == [".600", "at", "1e-3", ".500", ".600", "0.0"]


def test_a_rate_that_another_row_has_leaves_a_gap():
    short = result("short", [0.5, 0.6])
    lines = text_table({"a": result("a", [0.5, 0.6, 0.7]), "short": short}, "accuracy", "max")
    assert lines.splitlines()[3].split() == ["short", ".600", "at", "1e-3", ".500", ".600",
                                             "0.0"]  # fmt: skip
