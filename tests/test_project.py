"""What the repository says of itself agrees with itself."""

import pathlib
import re
import subprocess
import tomllib

import pytest

import mu2_optax

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    assert mu2_optax.__version__ == PROJECT["version"]
    assert f"\n## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_citation_is_the_paper_of_the_readme():
    citation = (ROOT / "CITATION.cff").read_text()
    title = re.search(r"title     = \{(.*)\}", (ROOT / "README.md").read_text())[1]
    assert title in citation
    for line in ("cff-version: 1.2.0", "license: Apache-2.0", "type: conference-paper"):
        assert line in citation


def test_ci_runs_every_step_that_there_is():
    run = (ROOT / ".ci" / "run").read_text()
    steps = {path.name for path in (ROOT / ".ci").iterdir()} - {"run"}
    assert steps == set(re.findall(r"^\.ci/(\w+)$", run, re.MULTILINE))


def test_the_sdist_would_hold_whatever_is_tracked():
    """A file outside of the listed folders would be missed; .ci/packages compares every name."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")  # an unpacked sdist has no list of what is tracked
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    patterns = included["targets"]["sdist"]["include"]
    always = {"pyproject.toml", "LICENSE", ".gitignore"}
    for name in {path.split("/")[0] for path in tracked} - always:
        assert any(pathlib.PurePath(name).match(pattern) for pattern in patterns), name
