"""The notebook runs from top to bottom, in time, and was committed after such a run."""

import pathlib
import re
import resource

import pytest

nbclient = pytest.importorskip("nbclient", reason="pip install -e '.[notebook]'")
nbformat = pytest.importorskip("nbformat")

ROOT = pathlib.Path(__file__).resolve().parents[1]
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
SECONDS = 120  # of one processor: the clock also counts what else the machine does


def printed(notebook):
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    return "".join(output.text for output in outputs if output.output_type == "stream")


def accuracy(notebook):
    return float(re.search(r"test accuracy ([\d.]+)", printed(notebook))[1])


def test_notebook_was_committed_as_it_ran_from_top_to_bottom():
    notebook = nbformat.read(NOTEBOOK, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert NOTEBOOK.stat().st_size < 350_000  # pictures of vl-convert are hardly compressed


def test_notebook_links_lead_to_files():
    text = "".join(c.source for c in nbformat.read(NOTEBOOK, 4).cells if c.cell_type == "markdown")
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (NOTEBOOK.parent / target).is_file(), target


@pytest.mark.slow
def test_notebook_runs_in_time_and_to_the_same_accuracy(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(NOTEBOOK, 4)
    before = accuracy(notebook)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    resources = {"metadata": {"path": str(ROOT / "examples")}}
    nbclient.NotebookClient(notebook, timeout=1200, resources=resources).execute()
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime < SECONDS
    assert accuracy(notebook) == pytest.approx(before, abs=0.02)
