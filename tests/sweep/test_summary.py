"""The printed table and its verdict; every expected number is worked out by hand."""

import numpy as np

from mu2_optax.sweep import SweepResult
from mu2_optax.sweep._summary import summarize, text_table, verdict


def result(label, values, metric="accuracy", seeds=2, **info):
    values = np.repeat(np.asarray(values, float)[:, None], seeds, axis=1)
    rates = 10.0 ** np.arange(-4, len(values) - 4)
    finished = np.ones(values.shape, bool)
    return SweepResult({metric: values}, {"learning_rate": rates}, np.arange(seeds), finished,
                       label=label, info=info)  # fmt: skip


def flat(label, value, metric="accuracy", seeds=2):
    return SweepResult({metric: np.full(seeds, value)}, {}, np.arange(seeds), np.ones(seeds, bool),
                       label=label)  # fmt: skip


def table(*results, metric="accuracy", mode="max", **options):
    summary = summarize({r.label: r for r in results}, metric, mode, **options)
    return text_table(summary).splitlines()


def losses(*results, **options):
    return table(*results, metric="loss", mode="min", **options)


def test_table_marks_the_widest_plateau_near_the_best_of_all():
    lines = table(result("poor", [0.5, 0.5, 0.5]), result("good", [0.89, 0.9, 0.2]))
    assert lines[1].split() == ["tuned", "1e-4", "1e-3", "0.01", "plateau"]
    assert lines[2].split() == ["poor", ".500", "at", "1e-4", ".500", ".500", ".500", "0.0"]
    assert lines[3].split() == ["*", "good", ".900", "at", "1e-3", ".890", ".900", ".200", "1.0"]


def test_table_of_a_loss_has_a_plateau_to_5_percent_of_the_best():
    lines = losses(result("a", [3, 1.04, 1], "loss"))
    assert lines[2].split()[-1] == "1.0"
    assert "within 0.05 of the table's best (5 % of it)" in " ".join(lines)
    rewards = result("a", [-300, -104, -100], "reward")  # better high, and no accuracy
    assert table(rewards, metric="reward")[2].split()[-1] == "1.0"


def test_table_marks_no_row_without_a_width_and_all_equal_ones():
    steep = [result(name, [0.5, 0.9, 0.6]) for name in "ab"]
    assert not any(line.startswith("*") for line in table(*steep))
    equal = result("x", [0.9, 0.9, 0.1]), result("y", [0.1, 0.9, 0.89])
    assert [line[0] for line in table(*equal, steep[0])[2:5]] == ["*", "*", " "]


def test_table_tells_diverged_failed_stopped_and_unfinished_cells_apart():
    some = result("a", [0.5, np.nan, np.nan, np.nan], halving={"stopped": [[1e-1, 27]]})
    some.finished[2:] = False
    lines = table(some, result("b", [0.4, 0.4, 0.4, 0.4]))
    assert lines[2].split() == ["a", ".500", "at", "1e-4", ".500", "div", "--", "@27", "--"]
    some.errors[1, 0] = "no luck"
    assert table(some)[2].split()[4:6] == [".500", "err"]
    nothing = SweepResult({}, some.axes, some.seeds, some.finished, {(0, 0): "no luck"}, "b")
    assert table(some, nothing)[3].split() == ["b", "--", "err", "div", "--", "--", "--"]


def test_table_of_what_has_nothing_to_choose():
    swept = result("swept", [0.5, 0.9, 0.91], untouched=1e-4)
    lines = table(flat("auto", 0.92), swept)
    assert lines[1].split()[:2] == ["untouched", "tuned"]
    assert lines[2].split() == ["auto", ".920", "nothing", "to", "tune"]
    assert lines[3].split()[:6] == ["*", "swept", ".500", ".910", "at", "0.01"]
    assert table(flat("auto", 0.92)) == [
        "accuracy, mean of 2 seeds",
        "       untouched",
        "  auto      .920",
        "untouched: at the rate published as its default.",
        "Nothing chosen: auto .920.",
    ]


def test_table_without_labels_or_with_other_rates():
    assert table(result("", [0.5, 0.6]))[2].split() == [".600", "at", "1e-3", ".500", ".600", "0.0"]
    lines = table(result("a", [0.5, 0.6, 0.7]), result("short", [0.5, 0.6]))
    assert lines[3].split() == ["short", ".600", "at", "1e-3", ".500", ".600", "0.0"]


def test_verdict_names_the_untouched_the_tuned_and_the_widest():
    swept = result("swept", [0.5, 0.9, 0.91], untouched=1e-4)
    runs = {"auto": flat("auto", 0.92), "swept": swept}
    assert verdict(summarize(runs, "accuracy", "max")) == [
        "Nothing chosen: auto .920.",
        "Best of the others untouched: swept .500; tuned: swept .910, at 0.01.",
        "Widest plateau: swept, 1.0 decades of rates within 0.02 of the table's best.",
    ]
    runs = {"b": result("b", [2, 1, np.nan], "loss"), "c": result("c", [3, 0.5, 4], "loss")}
    assert verdict(summarize(runs, "loss", "min")) == ["Best tuned: c .500, at 1e-3."]
