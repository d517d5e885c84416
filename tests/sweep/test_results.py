"""What a sweep returns: reading it, joining it, and files of it."""

import io

import numpy as np
import pandas as pd
import pytest

from mu2_optax.sweep import (
    SweepResult,
    load_results,
    merge,
    save_results,
    write_csv,
    write_report,
)


def make_result(rates=(0.1, 1.0), seeds=(0, 1), label="a", offset=0.0, unfinished=()):
    """A result by hand: a scalar and a curve."""
    shape = (len(rates), len(seeds))
    loss = np.add.outer(np.asarray(rates), np.asarray(seeds) / 3 + offset).astype(np.float32)
    curve = np.stack([loss, loss**2, np.sqrt(loss)], axis=-1)
    finished = np.ones(shape, bool)
    for cell in unfinished:
        finished[cell] = False
        loss[cell] = np.nan
        curve[cell] = np.nan
    metrics = {"loss": loss, "curve": curve}
    axes = {"learning_rate": np.asarray(rates)}
    return SweepResult(metrics, axes, np.asarray(seeds), finished, label=label)


def awkward():
    """A result with everything that a file has to keep."""
    result = make_result()
    result.metrics["loss"][0] = [np.nan, np.inf]
    result.metrics["loss"][1, 0] = -np.inf
    result.metrics["curve"][1, 1, 2] = np.nan
    result.metrics["val/count"] = np.arange(4).reshape(2, 2)
    result.metrics["good"] = np.array([[True, False], [True, True]])
    result.errors[0, 0] = 'ValueError: a comma, a "quote"\nand a line'
    result.info["context"] = {"steps": 100}
    return result


def assert_same(a, b):
    assert (a.label, a.errors, a.info) == (b.label, b.errors, b.info)
    np.testing.assert_array_equal(a.finished, b.finished)
    np.testing.assert_array_equal(a.seeds, b.seeds)
    for mine, theirs in ((a.axes, b.axes), (a.metrics, b.metrics)):
        assert list(mine) == list(theirs)
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])
            assert mine[name].dtype == theirs[name].dtype


# Files


def test_save_results_reads_back_exactly_and_by_label(tmp_path):
    path = tmp_path / "new" / "r.npz"
    results = {"a": awkward(), "b": make_result(label="b", unfinished=[(1, 0)])}
    save_results(path, results)
    loaded = load_results(path)
    assert list(loaded) == ["a", "b"]
    for label, result in results.items():
        assert_same(loaded[label], result)
    save_results(path, awkward())
    assert_same(load_results(path)["a"], awkward())
    assert [file.name for file in path.parent.iterdir()] == ["r.npz"]


def test_save_results_keeps_the_old_file_if_it_fails(tmp_path, monkeypatch):
    path = tmp_path / "r.npz"
    save_results(path, make_result())
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="No space left on device"):
        save_results(path, awkward())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_load_results_refuses_what_is_foreign_or_damaged(tmp_path):
    path = tmp_path / "r.npz"
    save_results(path, make_result())
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[whole.index(make_result().metrics["loss"].tobytes())] ^= 1
    other = io.BytesIO()
    np.savez(other, header=np.asarray('{"format": "x"}'))
    for content in (b"", b"nonsense", whole[:-40], whole[:100], bytes(changed), other.getvalue()):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"r.npz is not a result of a sweep, or is damaged"):
            load_results(path)
    with pytest.raises(ValueError, match=r"must end in .npz, got .*r.json"):
        save_results(tmp_path / "r.json", make_result())
    with pytest.raises(FileNotFoundError):
        load_results(tmp_path / "none.npz")


def test_write_csv_has_a_row_per_finished_cell_and_every_digit(tmp_path):
    path = tmp_path / "r.csv"
    results = [awkward(), make_result(label="b", unfinished=[(1, 0)])]
    write_csv(path, results)
    header, first, *_ = path.read_text().splitlines()
    assert header == "optimizer,learning_rate,seed,loss,curve,val/count,good,error"
    assert first.startswith('a,0.1,0,nan,"[0.10000000149011612, ')
    table = pd.read_csv(path)
    assert len(table) == 4 + 3
    for result, rows in zip(results, (table[:4], table[4:]), strict=True):
        np.testing.assert_array_equal(
            rows["loss"].to_numpy(np.float32), result.metrics["loss"][result.finished]
        )
    assert table["error"][0] == results[0].errors[0, 0]


# Joining


@pytest.mark.parametrize(
    "call",
    [
        lambda result: merge([result, result]),
        lambda result: write_csv("sweep.csv", ["sgd"]),
        lambda result: write_csv("sweep.csv", {"sgd": 3}),
        lambda result: write_report("report.html", "loss", result),
        lambda result: save_results("sweep.npz", 3),
    ],
)
def test_results_of_another_kind_are_refused_by_name(call):
    with pytest.raises(TypeError, match=r"`results` must be of sweeps, got .*; "):
        call(make_result((0.1, 1.0), (0, 1)))


def test_merge_joins_rates_and_seeds():
    whole = make_result((0.1, 1.0, 10.0), (0, 1, 2))
    assert_same(merge(make_result((10.0,), (0, 1, 2)), make_result((0.1, 1.0), (0, 1, 2))), whole)
    assert_same(merge(*(make_result((0.1, 1.0, 10.0), (seed,)) for seed in (2, 0, 1))), whole)
    first = make_result(unfinished=[(0, 0), (1, 1)])
    assert_same(merge(first, make_result(unfinished=[(0, 1), (1, 0)])), make_result())
    wide = make_result((1.0,), (0,))
    wide.metrics["loss"] = np.full((1, 1), 1 / 3)
    assert float(merge(make_result((0.1,), (0,)), wide).metrics["loss"][1, 0]) == 1 / 3


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


@pytest.mark.parametrize("dtype", [np.int64, bool])
def test_merge_leaves_cells_that_nobody_ran_unfinished_and_nan(dtype):
    value = np.asarray(7).astype(dtype)
    one = counts([0.1, 1.0], [0], dtype, value)
    joined = merge(one, one, counts([1.0], [0, 1], dtype, value))
    np.testing.assert_array_equal(joined.metrics["count"], [[value, np.nan], [value, value]])
    assert joined.finished.tolist() == [[True, False], [True, True]]
    assert merge(one, counts([0.1, 1.0], [1], dtype, value)).metrics["count"].dtype == dtype


@pytest.mark.parametrize("flip", [False, True])
def test_merge_keeps_an_error_until_the_cell_has_finished(flip):
    merge_any = lambda *parts: merge(*(parts[::-1] if flip else parts))
    joined = merge_any(counts([0.1], [0]), counts([1.0], [0], failed=[(0, 0)]))
    np.testing.assert_array_equal(joined.metrics["count"], [[7], [np.nan]])
    assert joined.errors == {(1, 0): "no luck"}
    joined = merge_any(joined, counts([1.0], [0]))
    assert joined.metrics["count"].tolist() == [[7], [7]]
    assert joined.errors == {}
    nothing = SweepResult({}, {"learning_rate": np.array([1.0, 5.0])}, np.arange(1),
                          np.zeros((2, 1), bool))  # fmt: skip
    joined = merge_any(counts([1.0], [0]), nothing)
    np.testing.assert_array_equal(joined.metrics["count"], [[7], [np.nan]])
    assert joined.finished.tolist() == [[True], [False]]


@pytest.mark.parametrize(
    ("other", "match"),
    [
        (make_result(label="b"), "same label and axes.*dict by label"),
        (make_result(offset=1.0), "a cell has two outcomes of 'loss'"),
        (make_result().select(learning_rate=0.1), "same label and axes"),
    ],
)
def test_merge_refuses_what_does_not_belong_together(other, match):
    with pytest.raises(ValueError, match=match):
        merge(make_result(), other)


# Reading


def two_axes():
    """Two rates, two values of β and three seeds; one cell not run, one failed."""
    finished = np.ones((2, 2, 3), bool)
    finished[1, 1, 2] = False
    loss = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    loss[1, 1, 2] = loss[0, 1, 0] = np.nan
    curve = np.stack([loss, 2 * loss], axis=-1)
    axes = {"learning_rate": np.array([0.1, 1.0]), "beta": np.array([0.5, 0.9])}
    errors = {(0, 1, 0): "no luck"}
    metrics = {"loss": loss, "curve": curve}
    return SweepResult(metrics, axes, np.array([0, 1, 7]), finished, errors, "sgd")


def test_sweep_result_diverged_counts_failures_and_not_what_has_not_run():
    result = two_axes()
    result.metrics["curve"][0, 0, 1, 0] = np.inf
    assert np.argwhere(result.diverged()).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert np.argwhere(result.diverged("loss")).tolist() == [[0, 1, 0]]
    assert np.argwhere(result.failed()).tolist() == [[0, 1, 0]]


def test_sweep_result_select_keeps_what_belongs_to_the_selected_cells():
    result = two_axes()
    part = result.select(beta=np.float32(0.9))  # the nearest within float32's precision
    assert list(part.axes) == ["learning_rate"]
    assert part.errors == {(0, 0): "no luck"}
    assert result.select(beta=0.5).errors == {}
    np.testing.assert_array_equal(part.metrics["loss"], result.metrics["loss"][:, 1])
    with pytest.raises(ValueError, match=r"no learning_rate=5 .*\[0.1, 1.0\]"):
        result.select(learning_rate=5)
    with pytest.raises(ValueError, match="no gamma=5"):
        result.select(gamma=5)


def test_sweep_result_to_pandas_has_a_row_per_finished_cell():
    whole = two_axes()
    table = whole.to_pandas()
    columns = ["optimizer", "learning_rate", "beta", "seed", "loss", "curve", "error"]
    assert list(table.columns) == columns
    assert len(table) == 11
    assert table["loss"].dtype == np.float32
    by_cell = table.set_index(["learning_rate", "beta", "seed"])
    assert by_cell["error"][0.1, 0.9, 0] == "no luck"
    np.testing.assert_array_equal(by_cell["loss"].to_xarray().values, whole.metrics["loss"])
    assert len(table.explode("curve")) == 22


def test_sweep_result_to_xarray_has_the_arrays_and_their_names():
    whole = two_axes()
    data = whole.to_xarray()
    assert data["curve"].dims == whole.dims("curve")
    np.testing.assert_array_equal(data["curve"].values, whole.metrics["curve"])
    assert data["loss"].sel(learning_rate=1.0, beta=0.5, seed=7) == 8
    assert data["finished"].values.sum() == 11
    assert data.attrs == {"label": "sgd"}
    whole.metrics["long"] = np.zeros((2, 2, 3, 5))
    data = whole.to_xarray()
    assert (data["curve"].dims[-1], data["long"].dims[-1]) == ("curve_step", "long_step")
