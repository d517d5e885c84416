import json

import numpy as np
import pytest

from mu2_optax.sweep import SweepResult, load_results, merge, save_results, sweep
from mu2_optax.sweep._results.disk import write_atomically


def make_result(rates=(0.1, 1.0), seeds=(0, 1), label="a", offset=0.0, unfinished=()):
    """A result by hand: a scalar with awkward values, a curve, and a count."""
    shape = (len(rates), len(seeds))
    loss = np.add.outer(np.asarray(rates), np.asarray(seeds) / 3 + offset).astype(np.float32)
    curve = np.stack([loss, loss**2, np.sqrt(loss)], axis=-1)
    finished = np.ones(shape, bool)
    for cell in unfinished:
        finished[cell] = False
        loss[cell] = np.nan
        curve[cell] = np.nan
    metrics = {"loss": loss, "curve": curve}
    return SweepResult(metrics, {"learning_rate": np.asarray(rates)}, np.asarray(seeds), finished,
                       label=label)  # fmt: skip


def awkward():
    result = make_result()
    result.metrics["loss"][0] = [np.nan, np.inf]
    result.metrics["loss"][1, 0] = -np.inf
    result.metrics["curve"][1, 1, 2] = np.nan
    result.metrics["count"] = np.arange(4).reshape(2, 2)
    result.errors[0, 0] = 'ValueError: a comma, a "quote"\nand a line'
    return result


def assert_same(a, b, dtypes=True):
    assert a.label == b.label
    assert a.errors == b.errors
    np.testing.assert_array_equal(a.finished, b.finished)
    np.testing.assert_array_equal(a.seeds, b.seeds)
    assert list(a.axes) == list(b.axes)
    for name in a.axes:
        np.testing.assert_array_equal(a.axes[name], b.axes[name])
    assert list(a.metrics) == list(b.metrics)
    for name in a.metrics:
        np.testing.assert_array_equal(a.metrics[name], b.metrics[name])
        assert not dtypes or a.metrics[name].dtype == b.metrics[name].dtype


def load(path):
    """The one result in a file."""
    (result,) = load_results(path).values()
    return result


def test_json_reads_back_exactly_what_was_written(tmp_path):
    save_results(awkward(), tmp_path / "r.json")
    assert_same(load(tmp_path / "r.json"), awkward())


def test_json_is_strict(tmp_path):
    save_results(awkward(), tmp_path / "r.json")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    json.loads((tmp_path / "r.json").read_text(), parse_constant=refuse)


def test_csv_reads_back_the_same_values(tmp_path):
    save_results(awkward(), tmp_path / "r.csv")
    assert_same(load(tmp_path / "r.csv"), awkward(), dtypes=False)


def test_csv_has_a_row_per_cell_with_optimizer_rate_seed_and_metrics(tmp_path):
    results = [make_result(label="a"), make_result(label="b", unfinished=[(1, 0)])]
    save_results(results, tmp_path / "r.csv")
    header, *rows = (tmp_path / "r.csv").read_text().splitlines()
    assert header == "optimizer,learning_rate,seed,loss,curve"
    assert len(rows) == 7
    assert rows[0].startswith("a,0.1,0,0.10000000149011612,")


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_several_results_in_one_file_come_back_by_label(tmp_path, suffix):
    results = {"a": make_result(label="a"), "b": make_result(label="b", unfinished=[(1, 0)])}
    save_results(results, tmp_path / f"r.{suffix}")
    loaded = load_results(tmp_path / f"r.{suffix}")
    assert list(loaded) == ["a", "b"]
    for label in results:
        assert_same(loaded[label], results[label], dtypes=suffix == "json")


def test_a_sweep_over_two_axes_survives_both_formats(tmp_path):
    train = lambda key, learning_rate, beta: {"loss": learning_rate * beta}
    result = sweep(train, {"learning_rate": [0.1, 1], "beta": [2, 3, 4]}, 2, progress=False)
    for suffix in ("json", "csv"):
        save_results(result, tmp_path / f"r.{suffix}")
        assert_same(load(tmp_path / f"r.{suffix}"), result, dtypes=suffix == "json")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    write_atomically(path, "old")

    def fail(descriptor):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("name", "content"),
    [("r.json", "{}"), ("r.json", "nonsense"), ("r.json", '{"format": "x"}'), ("r.csv", "a,b\n")],
)
def test_a_foreign_file_is_refused(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match="is not a result of a sweep"):
        load_results(tmp_path / name)


def test_an_unknown_suffix_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must end in .json or .csv, got .*r.txt"):
        save_results(make_result(), tmp_path / "r.txt")


def test_merging_joins_rates_and_seeds():
    whole = make_result((0.1, 1.0, 10.0), (0, 1, 2))
    by_rate = merge(make_result((10.0,), (0, 1, 2)), make_result((0.1, 1.0), (0, 1, 2)))
    assert_same(by_rate, whole)
    by_seed = merge(make_result((0.1, 1.0, 10.0), (0, 2)), make_result((0.1, 1.0, 10.0), (1,)))
    assert_same(by_seed, whole)


def test_merging_fills_what_one_half_has_not_run():
    first = make_result(unfinished=[(0, 0), (1, 1)])
    second = make_result(unfinished=[(0, 1), (1, 0)])
    assert_same(merge(first, second), make_result())


def test_merging_leaves_cells_that_nobody_ran_unfinished():
    joined = merge(make_result((0.1,), (0,)), make_result((1.0,), (1,)))
    assert joined.finished.tolist() == [[True, False], [False, True]]
    assert np.isnan(joined.metrics["loss"][0, 1])


def counts(rates, seeds, dtype=np.int64, value=7, failed=()):
    """Integers, as a sweep gives them: where a cell failed they are NaN in float64."""
    count = np.full((len(rates), len(seeds)), value, dtype)
    if failed:
        count = count.astype(np.float64)
    for cell in failed:
        count[cell] = np.nan
    return SweepResult(
        {"count": count}, {"learning_rate": np.asarray(rates)}, np.asarray(seeds),
        np.ones(count.shape, bool), dict.fromkeys(failed, "no luck"),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, bool])
def test_integers_that_nobody_ran_are_nan_also_where_results_overlap(dtype):
    value = np.asarray(7).astype(dtype)
    one = counts([0.1, 1.0], [0], dtype, value)
    joined = merge(one, one, counts([1.0], [0, 1], dtype, value))  # five records for three cells
    np.testing.assert_array_equal(joined.metrics["count"], [[value, np.nan], [value, value]])
    assert joined.finished.tolist() == [[True, False], [True, True]]
    assert merge(one, counts([0.1, 1.0], [1], dtype, value)).metrics["count"].dtype == dtype


@pytest.mark.parametrize("flip", [False, True])
def test_integers_beside_a_failed_cell_are_nan_there(flip):
    parts = [counts([0.1], [0]), counts([1.0], [0], failed=[(0, 0)])]
    joined = merge(*(parts[::-1] if flip else parts))
    np.testing.assert_array_equal(joined.metrics["count"], [[7], [np.nan]])
    assert joined.errors == {(1, 0): "no luck"}


@pytest.mark.parametrize("flip", [False, True])
def test_a_cell_that_failed_and_then_finished_has_finished(flip):
    parts = [counts([0.1], [0, 1], failed=[(0, 1)]), counts([0.1], [1])]
    joined = merge(*(parts[::-1] if flip else parts))
    assert joined.metrics["count"].tolist() == [[7, 7]]
    assert joined.errors == {}


@pytest.mark.parametrize("finished", [False, True])
@pytest.mark.parametrize("flip", [False, True])
def test_what_failed_altogether_or_has_not_begun_merges_with_what_finished(flip, finished):
    cells = [(i, j) for i in range(3) for j in range(2)]
    nothing = SweepResult({}, {"learning_rate": np.array([0.1, 1.0, 10.0])}, np.arange(2),
                          np.full((3, 2), finished),
                          dict.fromkeys(cells, "no luck") if finished else {},
                          label="a")  # fmt: skip
    joined = merge(*((make_result(), nothing) if flip else (nothing, make_result())))
    np.testing.assert_array_equal(joined.metrics["loss"][:2], make_result().metrics["loss"])
    assert np.isnan(joined.metrics["loss"][2]).all()
    assert joined.errors == (dict.fromkeys(cells[4:], "no luck") if finished else {})
    assert joined.finished[2].all() == finished


@pytest.mark.parametrize("flip", [False, True])
def test_merging_keeps_the_wider_of_two_dtypes(flip):
    narrow = make_result((0.1,), (0,))
    wide = make_result((1.0,), (0,))
    wide.metrics["loss"] = np.full((1, 1), 1 / 3)
    joined = merge(*((wide, narrow) if flip else (narrow, wide)))
    assert float(joined.metrics["loss"][1, 0]) == 1 / 3


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8, bool])
@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_integers_read_back_exactly(tmp_path, suffix, dtype):
    most = 1 if dtype is bool else np.iinfo(dtype).max
    result = counts([0.1, 1.0], [0], dtype, most)
    result.metrics["curve"] = np.asarray([[[most, 0]], [[most, 1]]], dtype)
    save_results(result, tmp_path / f"r.{suffix}")
    loaded = load(tmp_path / f"r.{suffix}")
    for name, array in result.metrics.items():
        assert loaded.metrics[name].tolist() == array.tolist()
        assert loaded.metrics[name].dtype.kind in "iub"


def test_a_csv_in_which_one_name_is_an_axis_and_a_metric_is_refused(tmp_path):
    axes = {"learning_rate": np.ones(1), "beta": np.ones(1)}
    with_axis = SweepResult({"loss": np.ones((1, 1, 1))}, axes, np.arange(1),
                            np.ones((1, 1, 1), bool), label="a")  # fmt: skip
    with_metric = make_result((1.0,), (0,), label="b")
    with_metric.metrics["beta"] = np.full((1, 1), 0.5)
    with pytest.raises(ValueError, match=r"metric with the name of an axis.*'beta'.*JSON"):
        save_results([with_axis, with_metric], tmp_path / "r.csv")
    save_results([with_axis, with_metric], tmp_path / "r.json")
    assert list(load_results(tmp_path / "r.json")["b"].axes) == ["learning_rate"]


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (make_result(label="b"), "same label.*dict by label"),
        (make_result(offset=1.0), "has two outcomes"),
        (make_result().select(learning_rate=0.1), "same axes"),
    ],
)
def test_merging_what_does_not_belong_together_is_an_error(other, match):
    with pytest.raises(ValueError, match=match):
        merge(make_result(), other)


def test_an_unknown_metric_lists_the_known_ones():
    with pytest.raises(KeyError, match=r"no metric 'acc'.*\['curve', 'loss'\]"):
        make_result().metric("acc")


def test_final_is_the_end_of_a_curve_and_a_scalar_itself():
    result = make_result()
    np.testing.assert_array_equal(result.final("curve"), result.metrics["curve"][..., -1])
    np.testing.assert_array_equal(result.final("loss"), result.metrics["loss"])
    assert result.dims("curve") == ("learning_rate", "seed", "step")


def test_the_complete_seeds_of_an_unfinished_sweep_are_those_run_at_every_rate():
    partial = make_result(seeds=(0, 1, 2), unfinished=[(0, 1)])
    partial.errors.update({(0, 2): "no luck", (1, 1): "no luck either"})
    whole = partial.complete_seeds()
    expected = make_result(seeds=(0, 2))
    expected.errors[0, 1] = "no luck"
    assert_same(whole, expected)
    nothing = make_result(unfinished=[(0, 0), (1, 1)]).complete_seeds()
    assert nothing.metrics["curve"].shape == (2, 0, 3)


def test_selecting_keeps_the_errors_of_the_selected_cells():
    result = awkward()
    assert result.select(learning_rate=0.1).errors == {(0,): result.errors[0, 0]}
    assert result.select(learning_rate=1.0).errors == {}
    close = SweepResult({"loss": np.arange(3.0)[:, None]},
                        {"beta": np.array([0.9, 0.9999999, 1.0])}, np.arange(1),
                        np.ones((3, 1), bool))  # fmt: skip
    assert close.select(beta=0.9999999).metrics["loss"].tolist() == [1.0]
    assert close.select(beta=np.float32(0.9)).metrics["loss"].tolist() == [0.0]
    with pytest.raises(ValueError, match=r"no value 0.99999 in"):
        close.select(beta=0.99999)
    with pytest.raises(ValueError, match=r"no value 5.*\[0.1, 1.0\]"):
        result.select(learning_rate=5)
    with pytest.raises(ValueError, match="no axis `beta`"):
        result.select(beta=5)
