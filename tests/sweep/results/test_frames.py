import sys

import numpy as np
import pandas as pd
import pytest

from mu2_optax.sweep import SweepResult


def result():
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


def test_a_table_has_a_row_per_finished_cell_and_goes_back_into_the_array():
    whole = result()
    table = whole.to_pandas()
    columns = ["optimizer", "learning_rate", "beta", "seed", "loss", "curve", "error"]
    assert list(table.columns) == columns
    assert len(table) == 11
    assert set(table["optimizer"]) == {"sgd"}
    assert table["loss"].dtype == np.float32
    assert table.set_index(["learning_rate", "beta", "seed"])["error"][0.1, 0.9, 0] == "no luck"
    back = table.set_index(["learning_rate", "beta", "seed"])["loss"].to_xarray()
    np.testing.assert_array_equal(back.values, whole.metrics["loss"])
    steps = table.explode("curve")
    assert len(steps) == 22
    np.testing.assert_array_equal(table["curve"][0], whole.metrics["curve"][0, 0, 0])
    both = pd.concat([table, table])
    assert both.groupby("learning_rate")["loss"].count().tolist() == [10, 10]


def test_a_dataset_has_the_arrays_and_their_names():
    whole = result()
    data = whole.to_xarray()
    assert data["loss"].dims == whole.dims("loss")
    assert data["curve"].dims == whole.dims("curve")
    np.testing.assert_array_equal(data["curve"].values, whole.metrics["curve"])
    assert data["loss"].sel(learning_rate=1.0, beta=0.5, seed=7) == 8
    assert data["finished"].values.sum() == 11
    assert data.attrs == {"label": "sgd"}


def test_curves_of_two_lengths_have_steps_of_their_own():
    whole = result()
    whole.metrics["long"] = np.zeros((2, 2, 3, 5))
    data = whole.to_xarray()
    assert data["curve"].dims[-1] == "curve_step"
    assert data["long"].dims[-1] == "long_step"


def test_without_a_learning_rate_there_is_the_seed_alone():
    flat = SweepResult({"loss": np.array([1, 2])}, {}, np.arange(2), np.ones(2, bool), label="auto")
    assert flat.to_pandas().columns.tolist() == ["optimizer", "seed", "loss"]
    assert flat.to_xarray()["loss"].dims == ("seed",)


@pytest.mark.parametrize("package", ["pandas", "xarray"])
def test_a_missing_package_is_named(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=f"`pip install {package}`"):
        getattr(result(), f"to_{package}")()
