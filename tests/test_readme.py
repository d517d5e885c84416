"""The README's commands are the ones that CI runs; tests/test_docs.py runs its code."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
COMMANDS = re.findall(r"```bash\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("name", ["mu2-sweep", "pytest"])
def test_readme_commands_are_lines_that_make_their_own_environment(name):
    (command,) = [command for command in COMMANDS if name in command]
    assert command.count("\n") == 1
    assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_readme_test_command_is_what_ci_runs():
    (pattern,) = re.findall(r"grep -m1 '(.*)' README.md", (ROOT / ".ci" / "tests").read_text())
    (found,) = [command for command in COMMANDS if re.search(pattern, command, re.MULTILINE)]
    assert "pytest" in found
