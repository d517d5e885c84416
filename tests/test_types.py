"""What a type checker says of a user's program: the mistakes that are in it, and no others."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import optax
import pytest

import mu2_optax

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "tests" / "typed_program.py"
LINES = PROGRAM.read_text().splitlines()


def marked(mark):
    """Line number (from 0) to what stands behind ``# mark:`` on it."""
    found = ((n, re.search(rf"# {mark}: (\w+)$", line)) for n, line in enumerate(LINES))
    return {n: match[1] for n, match in found if match}


@pytest.fixture(scope="module")
def diagnostics(tmp_path_factory):
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed: pip install -e '.[dev]'")
    folder = tmp_path_factory.mktemp("types")
    settings = {
        "typeCheckingMode": "basic",
        "extraPaths": [str(ROOT)],
    }
    (folder / PROGRAM.name).write_text(PROGRAM.read_text())
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    command += ["--project", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    if not done.stdout.startswith("{"):
        # It fetches its own program on first use, which a machine without a network cannot.
        pytest.skip(f"pyright does not start here: {done.stderr[-300:]}")
    return json.loads(done.stdout)["generalDiagnostics"]


@pytest.mark.slow
def test_types_show_the_mistakes_and_nothing_else(diagnostics):
    assert len(marked("error")) >= 9
    found = {
        d["range"]["start"]["line"]: (d.get("rule"), d["message"])
        for d in diagnostics
        if d["severity"] in ("error", "warning")
    }
    assert {line: rule for line, (rule, _) in found.items()} == marked("error"), found


@pytest.mark.slow
def test_types_of_states_and_results_are_known(diagnostics):
    shown = {
        d["range"]["start"]["line"]: re.search(r'is "(.*)"$', d["message"])[1]
        for d in diagnostics
        if d["severity"] == "information"
    }
    expected = marked("shown")
    assert len(expected) >= 8
    assert {line: shown[line] for line in expected} == expected


def test_types_at_run_time_are_those_of_optax():
    hints = mu2_optax.mu2_sgd.__annotations__
    assert hints["return"] is optax.GradientTransformationExtraArgs
    assert isinstance(mu2_optax.mu2_sgd(0.1), hints["return"])
