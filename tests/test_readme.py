"""The README's code runs as it stands, and its commands are the ones that CI runs."""

import pathlib
import re

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def test_the_quick_start_runs_and_finds_the_minimum():
    scope = {}
    exec(blocks("python")[0], scope)
    np.testing.assert_allclose(scope["params"]["w"], [1, -2, 3], atol=0.1)
    np.testing.assert_allclose(scope["params"]["b"], 0.5, atol=0.1)


@pytest.mark.parametrize("name", ["mu2-sweep", "pytest"])
def test_each_command_is_one_line_that_makes_its_own_environment(name):
    (command,) = [block for block in blocks("bash") if name in block]
    assert command.count("\n") == 1
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_ci_takes_the_test_command_from_the_readme():
    (pattern,) = re.findall(r"grep -m1 '(.*)' README.md", (ROOT / ".ci" / "run").read_text())
    first = next(line for line in README.splitlines() if re.search(pattern, line))
    assert first + "\n" in blocks("bash")
    assert "pytest" in first
