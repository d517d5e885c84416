"""What the charts draw, read from their Vega-Lite specifications."""

import numpy as np
import pytest

from mu2_optax.sweep import SweepResult, plot_curves, plot_sweep
from mu2_optax.sweep._command.optimizers import OPTIMIZERS
from mu2_optax.sweep._styles import styles


def result(label, values, metric="loss", rates=None, **info):
    """A result of (rates, seeds), or with curves."""
    values = np.asarray(values, float)
    rates = 10.0 ** np.arange(len(values)) if rates is None else np.asarray(rates, float)
    finished = np.ones(values.shape[:2], bool)
    return SweepResult({metric: values}, {"learning_rate": rates}, np.arange(values.shape[1]),
                       finished, label=label, info=info)  # fmt: skip


def flat(label, values):
    values = np.asarray(values, float)
    return SweepResult({"loss": values}, {}, np.arange(len(values)), np.ones(len(values), bool),
                       label=label)  # fmt: skip


class Drawn:
    """A chart's data and scales."""

    def __init__(self, chart):
        self.spec = chart.to_dict()
        self.key, _, self.line, _, *marks = self.spec["layer"]
        self.names = [row["line"] for row in self.key["data"]["values"]]
        self.points = self.spec["data"]["values"]
        self.marks = marks[0]["data"]["values"] if marks else []

    def column(self, name, line=None):
        return [row[name] for row in self.points if line in (None, row["line"])]

    def scale(self, channel):
        return self.line["encoding"][channel]["scale"]

    def marked(self, kind):
        return [(row["line"], row["at"]) for row in self.marks if row["kind"] == kind]


def test_plot_sweep_draws_means_with_a_band_of_the_seeds():
    drawn = Drawn(plot_sweep(result("a", [[1, 3, 2], [4, 6, 5]]), "loss"))
    assert drawn.column("x") == [1, 10]
    assert (drawn.column("y"), drawn.column("low"), drawn.column("high")) == (
        [2, 5],
        [1, 4],
        [3, 6],
    )
    assert drawn.column("mean") == ["2", "5"]
    assert drawn.column("seeds") == ["1 to 3", "4 to 6"]
    assert drawn.scale("x")["type"] == "log"
    assert drawn.scale("y")["type"] == "linear"
    assert drawn.line["encoding"]["x"]["axis"]["values"] == [1, 10]


def test_plot_sweep_legend_hides_lines():
    drawn = Drawn(plot_sweep([result("a", [[1]]), result("b", [[2]])], "loss"))
    shown = next(p for p in drawn.spec["params"] if p.get("bind") == "legend")
    assert shown["value"] == [{"line": "a"}, {"line": "b"}]
    assert {"filter": {"param": shown["name"], "empty": False}} in drawn.line["transform"]
    legends = [drawn.key["encoding"][c]["legend"] for c in ("fill", "shape", "strokeDash")]
    assert all(legend["symbolOpacity"] == 1 for legend in legends)


def test_plot_sweep_draws_what_has_no_rate_as_a_thick_flat_line():
    drawn = Drawn(plot_sweep([flat("auto", [2, 4]), result("sgd", [[1, 1], [5, 5]])], "loss"))
    assert drawn.names == ["auto (no rate)", "sgd"]
    assert drawn.column("x", "auto (no rate)") == [1, 10]
    assert drawn.column("y", "auto (no rate)") == [3, 3]
    assert drawn.column("bare", "auto (no rate)") == [True, True]
    thick, thin = drawn.scale("strokeWidth")["range"]
    assert thick > 2 * thin


def test_plot_sweep_rings_the_published_default():
    runs = [result("a", [[1], [2]], untouched=10.0), result("b", [[1], [2]], untouched=3.0)]
    assert Drawn(plot_sweep(runs, "loss")).marked("published default") == [("a", "10")]


def test_plot_sweep_has_crosses_where_a_seed_diverged():
    one = result("a", [[1, 3], [np.nan, 6], [np.inf, np.inf]])
    one.errors[2, 0] = "ValueError: no luck"
    drawn = Drawn(plot_sweep([one, result("b", [[1, 1], [2, np.nan], [3, 3]])], "loss"))
    assert drawn.marked("diverged") == [("a", "10"), ("a", "100"), ("b", "10")]
    assert drawn.column("y", "a") == [2, None, None]
    first, alone, _ = drawn.marks
    assert alone["mean"] == "ValueError: no luck"
    assert 3 < first["y"] < drawn.scale("y")["domain"][1]  # near the upper edge
    high = Drawn(plot_sweep(result("a", [[0.5], [np.nan]], "accuracy"), "accuracy"))
    assert high.scale("y")["domain"][0] < high.marks[0]["y"] < 0.5


@pytest.mark.parametrize("worst", [1e30, 1e300, np.finfo(float).max])
def test_plot_sweep_keeps_the_axis_from_a_value_far_beyond_the_others(worst):
    drawn = Drawn(plot_sweep(result("a", [[2.3], [0.5], [worst], [np.nan]]), "loss"))
    low, high = drawn.scale("y")["domain"]
    assert 0 < low < 0.5
    assert 2.3 < high < 3
    assert drawn.marked("diverged") == [("a", "100"), ("a", "1000")]
    assert drawn.marks[0]["mean"] == f"{worst:.4g}"
    assert max(y for y in drawn.column("y") if y is not None) <= high
    rewards = result("a", [[-300.0], [-100.0], [-worst]], "reward")
    low, high = Drawn(plot_sweep(rewards, "reward", mode="max")).scale("y")["domain"]
    assert (low > -330, high < 0) == (True, True)


def test_plot_sweep_has_a_logarithmic_axis_for_wide_losses_alone():
    wide = [[1e-3], [1e-1], [1]]
    drawn = Drawn(plot_sweep(result("a", wide), "loss"))
    assert drawn.scale("y")["type"] == "log"
    assert drawn.line["encoding"]["y"]["axis"]["values"] == [0.001, 0.01, 0.1, 1]
    assert Drawn(plot_sweep(result("a", wide), "loss", mode="max")).scale("y")["type"] == "linear"
    decades = [[10.0**-i] for i in range(0, 24, 2)]  # a problem without noise: nothing is left out
    low, high = Drawn(plot_sweep(result("a", decades), "loss")).scale("y")["domain"]
    assert low < 1e-22
    assert high > 1


def test_plot_sweep_leaves_out_what_has_not_run_and_a_rate_of_0():
    partial = result("a", [[1, 2], [3, 4], [5, 6]], rates=[0, 1, 10])
    partial.finished[1, 1] = partial.finished[2] = False
    with pytest.warns(UserWarning, match="the learning rate 0 has no place"):
        drawn = Drawn(plot_sweep(partial, "loss"))
    assert drawn.column("y") == [3, None]
    assert not drawn.marks


def test_plot_sweep_writes_files_and_stands_beside_another(tmp_path):
    curves = np.ones((2, 2, 5)) * [[[1]], [[3]]]
    pair = plot_sweep(result("a", [[1], [2]]), "loss") | plot_curves(
        result("c", curves), "loss", learning_rate=1
    )
    pair.save(tmp_path / "pair.png")
    assert (tmp_path / "pair.png").read_bytes()[:4] == b"\x89PNG"
    pair.save(tmp_path / "pair.svg")
    text = (tmp_path / "pair.svg").read_text()
    for word in ("learning rate", "step", "loss", ">a<"):
        assert word in text


def test_plot_curves_draws_each_result_at_its_rate():
    curves = np.arange(12.0).reshape(2, 2, 3)
    runs = {"a": result("a", curves), "b": result("b", curves), "auto": flat("auto", curves[0])}
    drawn = Drawn(plot_curves(runs, "loss", learning_rate={"a": 1, "b": 10}))
    assert drawn.names == ["a", "b", "auto"]
    assert drawn.column("y", "a") == drawn.column("y", "auto") == [1.5, 2.5, 3.5]
    assert drawn.column("y", "b") == [7.5, 8.5, 9.5]
    assert Drawn(plot_curves(runs, "loss", learning_rate=10)).column("y", "a") == [7.5, 8.5, 9.5]


def test_plot_curves_ends_with_a_cross_where_a_seed_diverged():
    curves = np.ones((1, 2, 5))
    curves[0, 1, 3:] = np.nan, 1.0
    drawn = Drawn(plot_curves(result("a", curves), "loss", learning_rate=1))
    assert drawn.column("x") == [1, 2, 3]
    assert drawn.marked("diverged") == [("a", "4")]


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: plot_sweep([], "loss"), "distinct labels, got"),
        (lambda: plot_sweep([result("a", [[1]])] * 2, "loss"), "distinct labels, got"),
        (lambda: plot_sweep(result("a", [[1]], "score"), "score"), "does not say whether low"),
        (lambda: plot_curves(flat("a", [1]), "loss"), "one value per step, but 'loss' has"),
        (
            lambda: plot_curves([result("a", [[[1]]]), result("b", [[[1]]])], "loss"),
            "must be given",
        ),
    ],
)
def test_plots_name_bad_arguments(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def test_styles_of_the_commands_optimizers_are_all_different():
    looks = styles(OPTIMIZERS)
    assert len({look.color for look in looks.values()}) == len(OPTIMIZERS)
    assert looks["adam"] == styles(["adam"])["adam"] == styles(["Adam"])["Adam"]
    assert styles(["μ²-SGD"])["μ²-SGD"] == looks["mu2_sgd"]
