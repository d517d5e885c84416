"""What the repository says of itself agrees with itself."""

import pathlib
import re
import subprocess
import tomllib

import pytest

import mu2_optax

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_project_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == PROJECT["version"]
    assert mu2_optax.__version__ == PROJECT["version"]
    assert f"\n## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


PARTS = {path.name for path in (ROOT / ".ci").iterdir()} - {"run", "environment", "once_more"}


def test_project_ci_runs_every_part():
    run = (ROOT / ".ci" / "run").read_text()
    rows = re.findall(r"^(?:WORKERS=1 )?parts ([a-z ]+)", run, re.MULTILINE)
    named = sorted(" ".join(rows).split())
    assert named == sorted(PARTS - {"nightly"} | {"environment"})  # it needs an index of its own


def test_project_workflow_runs_every_part():
    workflow = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    (listed,) = re.findall(r"^ +part: \[(.*)\]$", workflow, re.MULTILINE)
    named = {*listed.split(", "), *re.findall(r"^ +- \{ part: (\w+),", workflow, re.MULTILINE)}
    assert named == PARTS


def test_project_pre_commit_checks_what_ci_lints():
    commands = re.findall(r"^\.venv/bin/(.*)$", (ROOT / ".ci" / "lint").read_text(), re.MULTILINE)
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = re.findall(r"^ +entry: \.venv/bin/(.*)$", hooks, re.MULTILINE)
    assert [entry.removesuffix(" --force-exclude") for entry in entries] == commands


def test_project_sdist_holds_whatever_is_tracked():
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
