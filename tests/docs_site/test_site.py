"""The documentation site as `make docs` builds it: its links, anchors, navigation and search."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import pytest

from tests.docs_site.conftest import ROOT, run_build

MADE_BY_THE_THEME: Final = {"search.html", "genindex.html"}
"""Pages of the site without a Markdown page."""

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The links and the anchors of one page of the site."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        """Values of `href` and `src`."""
        self.ids: set[str] = set()
        """Anchors that a link may name."""
        self.fetched: list[str] = []
        """Addresses that a browser asks for by itself: scripts, styles, pictures."""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        self.links += [values[name] for name in ("href", "src") if name in values]
        self.fetched += [values["src"]] if "src" in values else []
        self.fetched += [values["href"]] if tag == "link" and "href" in values else []


@cache
def page_at(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def pages_of(site: Path) -> list[Path]:
    return [path for path in sorted(site.rglob("*.html")) if path.name not in MADE_BY_THE_THEME]


def broken_links(page: Path) -> Iterator[str]:
    for link in page_at(page).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = page.parent / unquote(parts.path) if parts.path else page
        if not target.is_file() or (
            parts.fragment
            and target.suffix == ".html"
            and unquote(parts.fragment) not in page_at(target.resolve()).ids
        ):
            yield link


def test_site_has_every_page_of_the_docs(site: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "docs/*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = {name.removeprefix("docs/") for name in listed.stdout.split()}
    wanted = {name.replace("README.md", "index.md").replace(".md", ".html") for name in names}
    assert wanted - {page.relative_to(site).as_posix() for page in pages_of(site)} == set()


def test_links_and_anchors_of_the_site_lead_somewhere(site: Path) -> None:
    wrong = {
        page.relative_to(site).as_posix(): found
        for page in pages_of(site)
        if (found := list(broken_links(page)))
    }
    assert wrong == {}


def test_site_fetches_nothing_from_a_network(site: Path) -> None:
    asked = {address for page in sorted(site.rglob("*.html")) for address in page_at(page).fetched}
    assert [
        address for address in sorted(asked) if urlsplit(address).scheme or urlsplit(address).netloc
    ] == []


def test_search_finds_pages_by_words_of_their_text(site: Path) -> None:
    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    names = index["docnames"]

    def found(word: str) -> set[str]:
        numbers = index["terms"][word]
        return {names[number] for number in (numbers if isinstance(numbers, list) else [numbers])}

    assert "explanation/entry_cache" in found("requeu")
    assert "reference/configuration" in found("managedledgercachesizemb")
    assert set(names) >= {"index", "tour", "decisions/index", "how-to/test_applications"}


def invented_docs(root: Path, pages: dict[str, str]) -> Path:
    (root / "docs" / "images").mkdir(parents=True)
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        (root / name).write_text(f"# {name}\n")
    for name, text in pages.items():
        (root / "docs" / name).write_text(text)
    return root


NAVIGATION: Final = (
    "# Docs\n\n## How-to guides\n\n| | |\n|---|---|\n| [One](one.md) | x |\n"
    "| [C](../CHANGELOG.md) | x |\n| [D](../CONTRIBUTING.md) | x |\n| [S](../SECURITY.md) | x |\n"
)


@pytest.mark.parametrize(
    ("pages", "named"),
    [
        pytest.param(
            {"one.md": "# One\n", "two.md": "# Two\n"}, "two.md: WARNING: document isn't", id="page-outside"
        ),
        pytest.param(
            {"one.md": "# One\n\n[x](two.md)\n"}, "docs/one.md: the link two.md", id="link-to-no-file"
        ),
        pytest.param({"one.md": "# One\n\n[x](#no-such-part)\n"}, "no-such-part", id="link-to-no-anchor"),
    ],
)
def test_build_stops_and_names_the_page(tmp_path: Path, pages: dict[str, str], named: str) -> None:
    root = invented_docs(tmp_path / "root", {"README.md": NAVIGATION, **pages})
    built = run_build("--root", str(root), str(tmp_path / "out"))
    assert built.returncode == 1
    assert named in built.stderr


def test_build_accepts_pages_that_are_listed(tmp_path: Path) -> None:
    root = invented_docs(
        tmp_path / "root", {"README.md": NAVIGATION, "one.md": "# One\n\n[x](README.md#docs)\n"}
    )
    built = run_build("--root", str(root), str(tmp_path / "out"))
    assert built.returncode == 0, built.stderr
    text = (tmp_path / "out" / "html" / "index.html").read_text()
    assert 'href="one.html"' in text
    assert "How-to guides" in text
