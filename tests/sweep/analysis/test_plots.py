import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure
from mu2_optax.sweep._analysis.styles import MARKERS, styles
from sweep.conftest import environment

from mu2_optax.sweep import SweepResult, plot_curves, plot_sweep


def result(label, losses, steps=None):
    """Losses of shape (rates, seeds), as they are or as the end of a falling curve."""
    losses = np.asarray(losses, float)
    metrics = {"loss": losses}
    if steps:
        metrics["curve"] = losses[..., None] * np.geomspace(100, 1, steps)
    rates = 10.0 ** np.arange(len(losses))
    finished = np.ones(losses.shape, bool)
    return SweepResult(
        metrics, {"learning_rate": rates}, np.arange(losses.shape[1]), finished, label=label
    )


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are saved, instead of their files."""
    figures = []
    monkeypatch.setattr(
        "matplotlib.figure.Figure.savefig", lambda figure, path: figures.append(figure)
    )
    return figures


def lines(figure):
    """The drawn lines that have data, by label."""
    found = figure.axes[0].get_lines()
    return {line.get_label(): line for line in found if len(line.get_xdata())}


def test_a_line_is_the_mean_over_seeds_on_a_log_axis_of_rates(drawn, tmp_path):
    plot_sweep(
        [result("a", [[1, 3], [4, 6]]), result("b", [[2, 2], [3, 3]])], "loss", tmp_path / "p"
    )
    axes = drawn[0].axes[0]
    assert axes.get_xscale() == "log"
    assert lines(drawn[0])["a"].get_ydata().tolist() == [2, 5]
    assert lines(drawn[0])["b"].get_ydata().tolist() == [2, 3]
    assert [text.get_text() for text in drawn[0].legends[0].get_texts()] == ["a", "b"]


def test_without_a_learning_rate_a_line_is_flat_over_the_rates_of_the_others(drawn, tmp_path):
    flat = SweepResult({"loss": np.array([1.0, 3.0])}, {}, np.arange(2), np.ones(2, bool))
    swept = result("swept", [[1, 3], [4, 6], [9, 9]])
    swept.info["untouched"] = 10.0
    plot_sweep({"auto": flat, "swept": swept}, "loss", tmp_path / "p")
    line = lines(drawn[0])["auto (no rate)"]
    assert line.get_xdata().tolist() == [1, 10, 100]
    assert line.get_ydata().tolist() == [2, 2, 2]
    assert line.get_marker() == ""
    rings = [line for line in drawn[0].axes[0].get_lines() if line.get_markersize() == 12]
    assert rings[0].get_xydata().tolist() == [[10, 5]]  # the published default
    assert "published default" in [text.get_text() for text in drawn[0].legends[0].get_texts()]


def test_the_band_spans_the_seeds(drawn, tmp_path):
    plot_sweep(result("a", [[1, 3, 2], [4, 6, 5]]), "loss", tmp_path / "p")
    heights = drawn[0].axes[0].collections[0].get_paths()[0].vertices[:, 1]
    assert heights.min() == 1
    assert heights.max() == 6


def test_a_diverged_rate_is_a_cross_and_no_point(drawn, tmp_path):
    plot_sweep(result("a", [[1, 3], [np.nan, 6], [np.inf, np.inf]]), "loss", tmp_path / "p")
    axes = drawn[0].axes[0]
    np.testing.assert_array_equal(lines(drawn[0])["a"].get_ydata(), [2, np.nan, np.nan])
    assert [text.xy[0] for text in axes.texts] == [10, 100]
    assert axes.get_xlim()[1] > 100  # where the crosses are seen
    assert "diverged" in [text.get_text() for text in drawn[0].legends[0].get_texts()]


def test_a_rate_of_zero_is_left_out_with_a_warning(drawn, tmp_path):
    swept = result("a", [[1, 3], [2, 4]])
    swept.axes["learning_rate"][1] = 0.0
    with pytest.warns(UserWarning, match="the learning rate 0 has no place on a logarithmic axis"):
        plot_sweep(swept, "loss", tmp_path / "p")
    assert lines(drawn[0])["a"].get_ydata().tolist() == [2]


def test_unfinished_cells_are_left_out_and_not_marked(drawn, tmp_path):
    partial = result("a", [[1, np.nan], [np.nan, np.nan]])
    partial.finished[:] = [[True, False], [False, False]]
    plot_sweep(partial, "loss", tmp_path / "p")
    np.testing.assert_array_equal(lines(drawn[0])["a"].get_ydata(), [1, np.nan])
    assert not drawn[0].axes[0].texts


def test_losses_over_many_decades_get_a_log_axis_and_accuracies_do_not(drawn, tmp_path):
    plot_sweep(result("a", [[1e-3, 1e-3], [1, 1]]), "loss", tmp_path / "p")
    plot_sweep(result("a", [[1e-3, 1e-3], [1, 1]]), "loss", tmp_path / "p", mode="max")
    assert [figure.axes[0].get_yscale() for figure in drawn] == ["log", "linear"]


def test_curves_are_drawn_against_steps_until_they_diverge(drawn, tmp_path):
    good, bad = result("good", [[1, 3], [4, 6]], steps=5), result("bad", [[1, 3], [4, 6]], steps=5)
    bad.metrics["curve"][1, 0, 3] = np.nan
    plot_curves([good, bad], "curve", tmp_path / "p", learning_rate=10)
    drawn_lines = lines(drawn[0])
    assert drawn_lines["good"].get_xdata().tolist() == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(drawn_lines["good"].get_ydata()[-1], 5)
    assert drawn_lines["bad"].get_xdata().tolist() == [1, 2, 3]


def test_curves_of_one_result_have_a_line_per_rate(drawn, tmp_path):
    plot_curves(result("a", [[1, 3], [4, 6]], steps=5), "curve", tmp_path / "p")
    assert {"1", "10"} <= set(lines(drawn[0]))


def test_files_are_written_at_twice_the_readme_width(tmp_path):
    from matplotlib.image import imread

    plot_sweep(result("a", [[1, 3], [4, 6]]), "loss", tmp_path / "new" / "p.png")
    assert imread(tmp_path / "new" / "p.png").shape[1] == 1600


def panel():
    """Axes of a figure of the caller's."""
    from matplotlib.figure import Figure

    return Figure().add_subplot()


def test_a_picture_can_be_drawn_into_given_axes_without_a_legend():
    axes = panel()
    plot_sweep([result("a", [[1, 3], [np.nan, 6]]), result("b", [[2, 2], [3, 3]])], "loss",
               axes=axes, title="left", ylim=(0, 9))  # fmt: skip
    assert axes.get_legend_handles_labels()[1] == ["a", "b", "diverged"]
    assert axes.get_title(loc="left") == "left"
    assert axes.get_ylim() == (0, 9)
    assert axes.get_legend() is None
    assert not axes.figure.legends
    axes = panel()
    plot_curves(result("a", [[1, 3], [4, 6]], steps=5), "curve", axes=axes)
    assert axes.get_legend_handles_labels()[1] == ["1", "10"]


def test_curves_are_drawn_at_the_given_steps():
    axes = panel()
    run = result("a", [[1, 3]], steps=3)
    plot_curves(run, "curve", axes=axes, steps=[0, 50, 100])
    assert axes.get_lines()[0].get_xdata().tolist() == [0, 50, 100]
    with pytest.raises(ValueError, match="`steps` must have a number for each of the 3 values"):
        plot_curves(run, "curve", axes=axes, steps=[0, 50])


def test_curves_of_what_is_better_high_have_no_log_axis():
    run = result("a", [[1e-3, 1e-3]], steps=5)
    run.metrics["accuracy"] = run.metrics["curve"]
    scales = []
    for metric, mode in (("curve", None), ("accuracy", None), ("curve", "max")):
        axes = panel()
        plot_curves(run, metric, axes=axes, mode=mode)
        scales.append(axes.get_yscale())
    assert scales == ["log", "linear", "linear"]


def test_more_lines_than_colours_can_still_be_told_apart():
    axes = panel()
    plot_sweep([result(str(i), [[i + 1.0]]) for i in range(40)], "loss", axes=axes)
    looks = {
        (line.get_color(), line._unscaled_dash_pattern, line.get_marker())
        for line in axes.get_lines()
    }
    assert len(looks) == 40


def test_an_optimizer_has_its_colour_and_marker_in_every_picture():
    runs = [result(name, [[1, 3], [4, 6]], steps=3) for name in ("adam", "of mine", "sgd")]
    for drawn in (runs, runs[1:], runs[::-1]):
        axes, curves = panel(), panel()
        plot_sweep(drawn, "loss", axes=axes)
        plot_curves(drawn, "curve", axes=curves, learning_rate=1)
        for line, curve in zip(axes.get_lines(), curves.get_lines(), strict=True):
            look = styles([line.get_label()])[line.get_label()]
            assert (line.get_color(), line.get_marker()) == (look.color, MARKERS[look.marker][0])
            assert curve.get_color() == look.color


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda p: plot_sweep([], "loss", p), "nothing to plot"),
        (lambda p: plot_sweep(result("a", [[1]]), "loss"), "`path` or `axes` must be given"),
        (lambda p: plot_sweep(result("a", [[1]]), "loss", p, axes=3), "one of the two"),
        (lambda p: plot_sweep([result("a", [[1]])] * 2, "loss", p), "two results have the label"),
        (lambda p: plot_curves(result("a", [[1]]), "loss", p), "one value per step"),
        (
            lambda p: plot_curves([result("a", [[1]]), result("b", [[1]])], "loss", p),
            "`learning_rate` must be given",
        ),
    ],
)
def test_what_cannot_be_drawn_is_an_error(tmp_path, call, match):
    with pytest.raises(ValueError, match=match):
        call(tmp_path / "p.png")


@pytest.mark.slow
def test_drawing_does_not_import_pyplot_or_choose_a_backend(tmp_path):
    script = (
        "import sys, numpy as np\n"
        "from mu2_optax.sweep import SweepResult, plot_sweep\n"
        "r = SweepResult({'loss': np.ones((2, 1))}, {'learning_rate': np.array([1., 2.])},\n"
        "                np.arange(1), np.ones((2, 1), bool))\n"
        "plot_sweep(r, 'loss', 'p.png')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment(), check=True, timeout=300
    )


def test_curves_leave_out_what_has_failed_or_not_run():
    run = result("a", [[1, 3], [4, 6]], steps=5)
    run.finished[1] = False
    figure = Figure()
    axes = figure.add_subplot()
    plot_curves(run, "curve", axes=axes)
    assert len(axes.get_lines()) == 1
    failed = SweepResult({}, run.axes, run.seeds, np.ones((2, 2), bool), label="b")
    axes = figure.add_subplot()
    plot_curves([run, failed], "curve", axes=axes, learning_rate=1)
    assert [line.get_label() for line in axes.get_lines()] == ["a"]


def test_the_largest_numbers_can_be_drawn(tmp_path):
    run = result("a", [[1e308, 1e308], [-1e308, 0]])
    run.metrics["curve"] = np.repeat(run.metrics["loss"][..., None], 3, axis=-1)
    plot_sweep(run, "loss", tmp_path / "a.png")
    plot_curves(run, "curve", tmp_path / "b.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
