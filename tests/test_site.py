"""The documentation site: whole, without dangling links, and without a network."""

import html
import html.parser
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"


def test_site_navigation_has_every_page():
    listed = set(re.findall(r": ([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    assert listed == written | {"index.md", "contributing.md", "changelog.md"}


class Page(html.parser.HTMLParser):
    """The ids of a page, where it links to, and what a browser loads to show it."""

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), set(), set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        if tag in ("script", "img", "link", "iframe") and found.get("rel") != "canonical":
            self.loaded |= {found[name] for name in ("src", "href") if name in found}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder that SITE names, or a site that is built for these tests."""
    if folder := os.environ.get("SITE"):
        return ROOT / folder
    pytest.importorskip("mkdocs", reason="pip install -e '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_site_links_lead_to_a_page_and_a_place_on_it(site):
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    assert len(pages) >= 25
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme:
                assert parts.scheme == "https", (path.name, link)
                continue
            to = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            to = to / "index.html" if to.is_dir() else to
            assert to.is_file(), (path.name, link)
            if parts.fragment and to in pages:
                place = urllib.parse.unquote(parts.fragment)
                assert place in pages[to].ids or place.startswith("__"), (path.name, link)


@pytest.mark.slow
def test_site_loads_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        for address in Page(path).loaded:
            parts = urllib.parse.urlsplit(address)
            assert parts.scheme == parts.netloc == "", (path.name, address)
            if path.name != "404.html":
                assert (path.parent / urllib.parse.unquote(parts.path)).is_file(), (path, address)
    for path in site.glob("assets/*.css"):
        assert "url(http" not in path.read_text()


@pytest.mark.slow
def test_site_equations_are_drawn_and_can_be_heard(site):
    for name in ("guarantees.html", "idea.html", "api/mu2_optax.html"):
        text = (site / name).read_text()
        assert "arithmatex" not in text
        drawings = re.findall(r"<svg [^>]*class=\"math\"[^>]*>", text)
        assert len(drawings) >= 4
        assert all('role="img"' in drawing and 'aria-label="' in drawing for drawing in drawings)
        used = set(re.findall(r'<use href="#(\w+)"', text))
        assert used <= set(re.findall(r'<symbol [^>]*id="(\w+)"', text))
    shown = (site / "api" / "mu2_optax.html").read_text()
    reference = re.sub(r'<span class="sd">.*?</span>', "", shown, flags=re.DOTALL)  # source code
    assert not re.search(r":math:|:func:|:class:|\.\. math::", reference)


@pytest.mark.slow
def test_site_search_needs_no_server_and_finds_names_after_a_dot(site):
    # The `offline` plugin writes the index as a script, which pages on a file system may load.
    script = (site / "search" / "search_index.js").read_text()
    assert script.startswith("var __index = ")
    index = json.loads(script.removeprefix("var __index = ").rstrip("; \n"))
    separator = index["config"]["separator"]
    titles = [entry["title"] for entry in index["docs"] if entry["location"].startswith("api/")]
    found = {word for title in titles for word in re.split(separator, html.unescape(title))}
    assert {"TrainState", "eval_model", "mu2_auto"} <= found
