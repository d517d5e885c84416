"""Digits and IDX files as arrays."""

import numpy as np
import pytest
from sweep.conftest import write_idx, write_mnist

from mu2_optax.sweep import load_digits, load_mnist


@pytest.mark.parametrize("zipped", [True, False])
def test_load_mnist_reads_idx_files_and_standardises(tmp_path, zipped):
    images, labels, test_images, test_labels = write_mnist(tmp_path, zipped)
    data = load_mnist(tmp_path)
    mean, deviation = images.mean(), images.std()
    # Float32 in the loader, float64 here; near the mean the difference has few digits left.
    np.testing.assert_allclose(data.train_x, (images - mean) / deviation, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(data.test_x, (test_images - mean) / deviation, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(data.train_y, labels)
    np.testing.assert_array_equal(data.test_y, test_labels)


def test_load_mnist_finds_the_folder_by_the_environment(tmp_path, monkeypatch):
    write_mnist(tmp_path / "mnist")
    monkeypatch.setenv("MU2_OPTAX_DATA", str(tmp_path))
    assert load_mnist().train_x.shape == (70, 28, 28)


def test_load_mnist_says_where_it_looks(tmp_path, monkeypatch):
    monkeypatch.delenv("MU2_OPTAX_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"--data\), or set MU2_OPTAX_DATA"):
        load_mnist()
    with pytest.raises(FileNotFoundError, match=r"no train-images-idx3-ubyte.gz in"):
        load_mnist(tmp_path)


def test_load_mnist_refuses_a_broken_file(tmp_path):
    write_mnist(tmp_path, zipped=False)
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="expected a complete IDX file of bytes"):
        load_mnist(tmp_path)
    path.write_bytes(b"hello world")
    with pytest.raises(ValueError, match="expected a complete IDX file"):
        load_mnist(tmp_path)


def test_load_data_without_standardising_lies_between_0_and_1(tmp_path):
    images = write_mnist(tmp_path)[0]
    mnist = load_mnist(tmp_path, standardize=False)
    np.testing.assert_allclose(mnist.train_x, images / 255, rtol=1e-6)
    digits = load_digits(standardize=False)
    assert (digits.train_x.min(), digits.train_x.max()) == (0, 1)
    standardised = load_digits()
    np.testing.assert_array_equal(digits.test_y, standardised.test_y)
    # Both are the same images: one is the other, shifted and scaled by numbers.
    scaled = (digits.test_x - digits.train_x.mean()) / digits.train_x.std()
    np.testing.assert_allclose(scaled, standardised.test_x, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train-images-idx3", np.zeros(5)),
        ("t10k-labels-idx1", np.zeros(9)),
        ("t10k-labels-idx1", np.full(10, 77)),
    ],
)
def test_load_mnist_refuses_files_that_do_not_fit_together(tmp_path, name, content):
    write_mnist(tmp_path)
    write_idx(tmp_path / f"{name}-ubyte.gz", content)
    with pytest.raises(ValueError, match=r"images .* with labels from 0 to 9, got arrays of the"):
        load_mnist(tmp_path)
