"""The code of the documents runs."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page):
    return re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_snippet_is_python(page):
    for block in blocks(page):
        compile(block, page.name, "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target.strip()).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("name", ["guarantees.md", "no_learning_rate.md", "nothing_to_choose.md"])
def test_the_snippets_of_a_page_run_one_after_another(name):
    scope = {}
    for block in blocks(ROOT / "docs" / name):
        exec(block, scope)
