"""``examples/data.py``: small files in the canonical formats, and a server that misbehaves."""

import functools
import gzip
import hashlib
import http.server
import io
import tarfile
import threading

import numpy as np
import pytest
from tiny_data import cifar_files, idx, mnist_files, write

from examples import data as datasets

# Folders


def test_data_digits_need_nothing():
    data = datasets.load("digits")
    assert data.train_x.shape == (1438, 8, 8)
    assert data.test_y.shape == (359,)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize("inside", [True, False])
def test_data_reads_idx_files_from_a_folder_or_its_subfolder(tmp_path, name, inside):
    files = mnist_files()
    write(tmp_path / name if inside else tmp_path, files)
    data = datasets.load(name, tmp_path)
    raw = np.frombuffer(gzip.decompress(files["train-images-idx3-ubyte.gz"])[16:], np.uint8)
    expected = (raw.reshape(20, 28, 27) - raw.mean()) / raw.std()
    np.testing.assert_allclose(data.train_x, expected, atol=1e-5)
    labels = gzip.decompress(files["t10k-labels-idx1-ubyte.gz"])[8:]
    assert data.test_y.tolist() == list(labels)
    assert (data.train_x.dtype, data.train_y.dtype) == (np.float32, np.int32)


def test_data_standardises_each_channel_of_cifar(tmp_path):
    files = cifar_files()
    write(tmp_path / "cifar-10-batches-bin", files)
    data = datasets.load("cifar10", tmp_path)
    assert data.train_x.shape == (20, 32, 32, 3)
    assert data.test_x.shape == (4, 32, 32, 3)
    np.testing.assert_allclose(data.train_x.mean(axis=(0, 1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(data.train_x.std(axis=(0, 1, 2)), 1, atol=1e-5)
    record = np.frombuffer(files["test_batch.bin"], np.uint8)[:3073]
    assert data.test_y[0] == record[0]
    green = record[1 + 1024 : 1 + 2048].reshape(32, 32)
    assert np.corrcoef(data.test_x[0, :, :, 1].ravel(), green.ravel())[0, 1] > 0.999999


def damaged(name, change):
    files = mnist_files() if name.endswith(".gz") else cifar_files()
    return files | {name: change(files[name])}


IMAGES, LABELS = "train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"


@pytest.mark.parametrize(
    ("name", "change", "expected"),
    [
        (IMAGES, lambda content: content[:-40], "complete IDX file"),
        (IMAGES, lambda content: b"<html>not found</html>", "complete IDX file"),
        (IMAGES, lambda content: content[:30] + b"\xff\xff" + content[32:], "complete IDX file"),
        (IMAGES, lambda content: gzip.compress(gzip.decompress(content)[:-7]), "complete IDX file"),
        (IMAGES, lambda _: gzip.compress(idx(np.zeros(5))), r"\(count, height, width\)"),
        (LABELS, lambda _: gzip.compress(idx(np.zeros(9))), r"shapes \(10, .*\) and \(9,\)"),
        (LABELS, lambda _: gzip.compress(idx(np.full(10, 77))), "with labels from 0 to 9, got"),
        ("data_batch_3.bin", lambda content: content[:-1], "records of 3073 bytes"),
        ("data_batch_3.bin", lambda content: content[:-3073], "expected 4 images"),
        ("data_batch_3.bin", lambda content: b"", "got 0 bytes"),
        ("test_batch.bin", lambda content: b"\xff" + content[1:], "labels from 0 to 9, got 255"),
    ],
)
def test_data_says_what_is_damaged(tmp_path, name, change, expected):
    write(tmp_path, damaged(name, change))
    with pytest.raises(datasets.DataError, match=expected) as error:
        datasets.load("mnist" if name.endswith(".gz") else "cifar10", tmp_path)
    part = name.partition("-")[0]  # of a pair of images and labels
    assert part in str(error.value)


def test_data_names_a_missing_file(tmp_path):
    files = mnist_files()
    del files[LABELS]
    write(tmp_path, files)
    with pytest.raises(datasets.DataError, match=f"{LABELS} is missing; expected train-images"):
        datasets.load("mnist", tmp_path)


# Downloads


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves ``files``; ``cut`` names those of which only so many bytes are sent at first."""

    def __init__(self, site, *args):
        self.site = site
        super().__init__(*args)

    def do_GET(self):
        name = self.path.lstrip("/")
        self.site.requests.append((name, self.headers.get("Range")))
        if name not in self.site.files:
            self.send_error(404)
            return
        content = self.site.files[name]
        start = 0
        if self.headers.get("Range") and self.site.ranges:
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
            if start >= len(content):
                self.send_error(416)
                return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : self.site.cut.get(name)])

    def log_message(self, *args):
        pass


class Site:
    def __init__(self, files):
        self.files, self.cut, self.ranges, self.requests = dict(files), {}, True, []
        handler = functools.partial(Handler, self)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve():
    sites = []

    def start(files):
        sites.append(Site(files))
        return sites[-1]

    yield start
    for site in sites:
        site.close()


def source_of(name, hashed, *urls):
    known = datasets.SOURCES[name]
    hashes = {file: hashlib.md5(content).hexdigest() for file, content in hashed.items()}
    return datasets.Source(known.folder, known.files, urls, hashes, known.read)


def stored(cache):
    return {str(path.relative_to(cache)): path.read_bytes() for path in cache.rglob("*.*")}


def test_data_download_is_checked_and_cached(tmp_path, monkeypatch, serve):
    files = mnist_files()
    site = serve(files)
    monkeypatch.setitem(datasets.SOURCES, "mnist", source_of("mnist", files, site.url))
    monkeypatch.delenv("MU2_OPTAX_DATA", raising=False)
    monkeypatch.setenv("MU2_OPTAX_CACHE", str(tmp_path))
    data = datasets.load("mnist", progress=False)
    assert len(data.train_y) == 20
    assert stored(tmp_path) == {f"mnist/{name}": content for name, content in files.items()}
    asked = len(site.requests)
    again = datasets.load("mnist", progress=False)
    assert len(site.requests) == asked
    assert (again.train_x == data.train_x).all()


def archive_of(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return {"cifar-10-binary.tar.gz": buffer.getvalue()}


def test_data_archive_is_unpacked(tmp_path, serve):
    files = cifar_files()
    archive = archive_of(files)
    site = serve(archive)
    source = source_of("cifar10", archive, site.url)
    paths = datasets.fetch(source, cache=tmp_path, progress=False)
    assert [path.read_bytes() for path in paths] == list(files.values())
    asked = len(site.requests)
    datasets.fetch(source, cache=tmp_path, progress=False)
    assert len(site.requests) == asked


def test_data_download_with_a_wrong_hash_is_refused(tmp_path, serve):
    source = source_of("mnist", mnist_files(seed=1), serve(mnist_files(seed=0)).url)
    with pytest.raises(datasets.DataError, match="expected MD5") as error:
        datasets.fetch(source, cache=tmp_path, progress=False)
    assert "train-images-idx3-ubyte.gz" in str(error.value)
    assert stored(tmp_path) == {}


@pytest.mark.parametrize("ranges", [True, False])
def test_data_download_goes_on_where_it_was_cut(tmp_path, serve, ranges):
    files = mnist_files()
    site = serve(files)
    site.ranges, site.cut = ranges, {IMAGES: 5000}
    source = source_of("mnist", files, site.url)
    with pytest.raises(datasets.DataError, match=IMAGES):
        datasets.fetch(source, cache=tmp_path, progress=False)
    ((place, partial),) = stored(tmp_path).items()
    assert place == f"mnist/partial/{IMAGES}"
    assert partial
    assert files[IMAGES].startswith(partial)
    site.cut = {}
    datasets.fetch(source, cache=tmp_path, progress=False)
    assert stored(tmp_path) == {f"mnist/{name}": content for name, content in files.items()}
    assert (IMAGES, f"bytes={len(partial)}-") in site.requests
