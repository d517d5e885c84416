"""The README's commands are the ones that CI runs; tests/test_docs.py runs its code."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


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
