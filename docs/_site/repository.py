"""Brings what the pages link to outside of docs/ into the site.

A page may link to ``../benchmarks/results/convex_mnist/figure.png`` or ``../examples/data.py``; a
site holds only what lies in docs/. Here the README, CONTRIBUTING and CHANGELOG become pages, linked
pictures are copied, linked sources become pages that show them, and links are rewritten. A link to
a folder becomes plain text. Whatever is left dangling fails the strict build.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
PAGES |= {"CHANGELOG.md": "changelog.md"}
LANGUAGES = {".py": "python", ".toml": "toml", ".cff": "yaml", "": "text"}
LINK = re.compile(
    r"\[(?P<text>(?:!\[[^]]*\]\([^)]*\)|[^][]|\[[^][]*\])*)\]\((?P<to>[^)#:\s]+)(?P<at>#[^)]*)?\)"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the repository's own pages, and then all that any page links to."""
    root = _root(config)
    for source, uri in PAGES.items():
        files.append(File.generated(config, uri, abs_src_path=str(root / source)))
    waiting = list(files.documentation_pages())
    while waiting:
        page = waiting.pop()
        for link in LINK.finditer(page.content_string):
            path = _repository_path(root, page.src_uri, link["to"])
            uri = _site_uri(path)
            if not (root / path).is_file() or uri in files.src_uris:
                continue
            files.append(_brought(root / path, uri, config))
            if uri.endswith(".md"):
                waiting.append(files.src_uris[uri])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Points the links of a page at where their targets are in the site."""
    root, here = _root(config), page.file.src_uri

    def rewritten(link: re.Match[str]) -> str:
        path = _repository_path(root, here, link["to"])
        if (root / path).is_dir():
            return link["text"]
        uri = _site_uri(path)
        if uri not in files.src_uris:
            return link[0]
        to = posixpath.relpath(uri, posixpath.dirname(here) or ".")
        return f"[{LINK.sub(rewritten, link['text'])}]({to}{link['at'] or ''})"

    return LINK.sub(rewritten, markdown)


def _root(config: MkDocsConfig) -> Path:
    return Path(config.config_file_path).parent


def _repository_path(root: Path, page_uri: str, to: str) -> str:
    """The path of a link's target in the repository."""
    named = {uri: source for source, uri in PAGES.items()}
    in_docs = f"docs/{page_uri}"
    source = named.get(page_uri, in_docs if (root / in_docs).is_file() else page_uri)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), to))


def _site_uri(path: str) -> str:
    """Where a file of the repository is in the site; sources become pages."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    suffix = Path(path).suffix
    return PAGES.get(path, f"{path}.md" if suffix in LANGUAGES else path)


def _brought(path: Path, uri: str, config: MkDocsConfig) -> File:
    if path.suffix not in LANGUAGES:
        return File.generated(config, uri, abs_src_path=str(path))
    name = path.relative_to(_root(config)).as_posix()
    code = f"# `{name}`\n\n````{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}````\n"
    return File.generated(config, uri, content=code)
