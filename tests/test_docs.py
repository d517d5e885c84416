"""The documents: their snippets run, and their links lead somewhere."""

import pathlib
import re
import textwrap

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("compiled_quickly")

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"
RECIPES = DOCS / "how_do_i.md"
TABLES = sorted((ROOT / "benchmarks" / "results").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^( *)```python\n(.*?)^\1```$", flags=re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def snippets(page, text=None, line=0):
    """The snippets of a page, or of a part of it, compiled with the page's line numbers."""
    text = page.read_text() if text is None else text
    found = list(FENCE.finditer(text))
    assert len(found) == text.count("```python"), "a fence is not closed where it was opened"
    for match in found:
        above = "\n" * (line + text.count("\n", 0, match.start(2)))
        yield compile(above + textwrap.dedent(match[2]), str(page), "exec")


def recipes():
    """The problem that all recipes share, and each of them with its heading and its line."""
    problem, *parts = re.split(r"^(?=## )", RECIPES.read_text(), flags=re.MULTILINE)
    line = problem.count("\n")
    for part in parts:
        yield pytest.param(problem, part, line, id=part.partition("\n")[0].strip("#? "))
        line += part.count("\n")


def slow_but_the_first(page):
    """What a newcomer reads first runs with the fast tests."""
    first = page.name in ("README.md", "quick_start.md")
    return pytest.param(page, id=page.name, marks=() if first else pytest.mark.slow)


@pytest.mark.parametrize(
    "page", [slow_but_the_first(p) for p in PAGES if p != RECIPES and "```python" in p.read_text()]
)
def test_docs_snippets_of_a_page_run_one_after_another(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": page.stem}
    for snippet in snippets(page):
        exec(snippet, scope)
    if page.name == "README.md":  # 1,000 noisy batches of 16: a standard error of 0.008
        np.testing.assert_allclose(scope["average"]["w"], [1, -2, 3], atol=0.1)
    if page.name == "quick_start.md":
        assert scope["accuracy"] > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("problem", "recipe", "line"), list(recipes()))
def test_docs_each_recipe_runs_by_itself(problem, recipe, line):
    scope = {"__name__": RECIPES.stem}
    for snippet in (*snippets(RECIPES, problem), *snippets(RECIPES, recipe, line)):
        exec(snippet, scope)


@pytest.mark.parametrize("page", PAGES + TABLES, ids=lambda page: str(page.relative_to(ROOT)))
def test_docs_links_lead_to_files(page):
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target.strip()).exists(), target
