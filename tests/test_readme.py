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
    (pattern,) = re.findall(r"grep -m1 '(.*)' README.md", (ROOT / ".ci" / "tests").read_text())
    first = next(line for line in README.splitlines() if re.search(pattern, line))
    assert first + "\n" in blocks("bash")
    assert "pytest" in first


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("docs/training.md#flax-nnx", "nnx.Dropout"),
        ("docs/how_do_i.md#-accumulate-gradients", "accumulate=True"),
        ("docs/how_do_i.md#-clip", "one of the two gradients would be clipped"),
        ("docs/how_do_i.md#-decay-the-weights", "weight_decay"),
        ("docs/how_do_i.md#-freeze-a-part", "freeze"),
        ("docs/how_do_i.md#-stop-and-resume", "checkpoint"),
        ("docs/sweeps.md", "mu2-sweep"),
        ("docs/choosing.md", "Which optimizer"),
    ],
)
def test_what_a_newcomer_looks_for_is_a_click_away(link, words):
    assert f"]({link})" in README
    page, _, anchor = link.partition("#")
    sections = re.split(r"^(?=## )", (ROOT / page).read_text(), flags=re.MULTILINE)
    titles = [section.splitlines()[0].removeprefix("## ") for section in sections]
    slugs = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]
    there = sections[slugs.index(anchor)] if anchor else "".join(sections)
    assert words in there


def test_the_prose_takes_a_few_minutes():
    """At most 900 words; code, tables, comments and the addresses of links do not count."""
    text = re.sub(r"```.*?```|<!--.*?-->|^\|.*?$", "", README, flags=re.DOTALL | re.MULTILINE)
    assert len(re.sub(r"\]\([^)]*\)", "]", text).split()) <= 900
