"""The notebook runs from top to bottom, in time, and shows what was committed with it."""

import pathlib
import re
import resource

import pytest

nbclient = pytest.importorskip("nbclient", reason="pip install -e '.[notebook]'")
nbformat = pytest.importorskip("nbformat")

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
LETTERS = {ord(letter): None for letter in "abcdefghijklmnopqrstuvwxyz:,"}
SECONDS = 120  # of one processor: the clock also counts what else the machine does


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def printed(notebook):
    return "".join(o.text for o in outputs(notebook) if o.output_type == "stream")


def pictures(notebook):
    return sum("image/png" in o.get("data", {}) for o in outputs(notebook))


def test_the_committed_notebook_has_run_from_top_to_bottom():
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert {o.output_type for o in outputs(notebook)} == {"stream", "display_data"}
    assert not [o for o in outputs(notebook) if o.get("name") == "stderr"]
    assert pictures(notebook) == 4
    assert NOTEBOOK.stat().st_size < 300_000


def test_the_links_of_the_notebook_lead_somewhere():
    text = "".join(c.source for c in nbformat.read(NOTEBOOK, 4).cells if c.cell_type == "markdown")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (NOTEBOOK.parent / target).is_file(), target


@pytest.mark.slow
def test_the_notebook_runs_in_time_and_says_what_it_said(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, 4)
    before = printed(notebook)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    client = nbclient.NotebookClient(
        notebook, timeout=1200, resources={"metadata": {"path": str(ROOT / "examples")}}
    )
    client.execute()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime < SECONDS
    after = printed(notebook)
    assert pictures(notebook) == 4
    accuracy = re.compile(r"test accuracy ([\d.]+)")
    assert float(accuracy.search(after)[1]) == pytest.approx(
        float(accuracy.search(before)[1]), abs=0.02
    )
    first, largest, _ = map(float, re.search(r"rate: .*", after)[0].translate(LETTERS).split())
    assert 0 < first < largest
    average, iterate = map(float, re.search(r"median .*", after)[0].translate(LETTERS).split())
    assert average < iterate
    error, bar, noise = map(float, re.findall(r"\d\.\de-\d+", after))
    assert error < noise / 30
    assert bar / 3 < error < 3 * bar
    decades = dict(re.findall(r"^(\S+) +within 0.02 of its best over (\d+)", after, re.MULTILINE))
    assert int(decades["μ²-SGD"]) >= 4
    assert max(int(decades["SGD"]), int(decades["Adam"])) <= 2
