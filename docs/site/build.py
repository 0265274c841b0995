"""Builds the documentation site from the Markdown pages: `make docs`, or `python docs/site/build.py [FOLDER]`.

The pages are written for a code host, and the site is made from copies of them:

* The tables of `docs/README.md` are the navigation: each page that a row begins with, in the order of the rows. A page
  that is missing there, or in the folder page that lists it, stops the build.
* `README.md` of a folder becomes its `index`. Below the docs' root it lists the pages beside it by itself.
* Links between pages stay. A file of the repository that is no page is copied and offered for download.

A warning of Sphinx is an error: a link or an anchor that leads nowhere, a picture that is missing, a page outside the
navigation. The result needs no server, and nothing from the network.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
ROOT_PAGES: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages beside `docs/` that belong to the site."""
DOWNLOADS: Final = "files"
"""The folder of the site's source for files that are no pages."""

_LINK: Final = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
_NAMED_LINK: Final = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")
_FENCES: Final = re.compile(r"(^ *```.*?^ *```)", re.M | re.S)
_FIRST_CELL: Final = re.compile(r"^\| (\[.*?) \|", re.M)
_ADDRESS: Final = re.compile(r"^(?:[a-z]+:|#)")


class SiteError(Exception):
    """The pages cannot become a site; the text names the page and the remedy."""


@dataclass(frozen=True)
class Stage:
    """The site's source, made from the pages of a repository."""

    root: Path
    """Holds `docs/` and ROOT_PAGES."""
    source: Path
    """The folder to fill, which exists."""

    def fill(self) -> None:
        """Writes every page of `docs/` and of ROOT_PAGES, and the pictures. SiteError."""
        docs = self.root / "docs"
        shutil.copytree(docs / "images", self.source / "images", ignore=shutil.ignore_patterns("*.jsonl"))
        pages = {path.relative_to(docs).as_posix(): path for path in sorted(docs.rglob("*.md"))}
        pages |= {name: self.root / name for name in ROOT_PAGES}
        for name, path in pages.items():
            text = self._with_links(path, name)
            staged = self.source / _staged(name)
            staged.parent.mkdir(parents=True, exist_ok=True)
            if name == "README.md":
                text += "".join(_navigation(text))
            elif PurePosixPath(name).name == "README.md":
                text += _toctree(["*"], options=":glob:\n:maxdepth: 1\n")
            staged.write_text(text, encoding="utf-8")

    def _with_links(self, path: Path, name: str) -> str:
        """Returns the page with its links as the staged copy needs them."""

        def changed(match: re.Match[str]) -> str:
            return self._target(match[1], path, name)

        # The parts with odd numbers are fenced blocks, whose text stays.
        parts = _FENCES.split(path.read_text(encoding="utf-8"))
        parts[::2] = [_LINK.sub(changed, part) for part in parts[::2]]
        return "".join(parts)

    def _target(self, link: str, path: Path, name: str) -> str:
        if _ADDRESS.match(link):
            return link
        file, hash_sign, anchor = link.partition("#")
        found = (path.parent / file).resolve()
        if not found.is_file():
            raise SiteError(f"{path.relative_to(self.root)}: the link {link} leads to no file; correct it")
        place = found.relative_to(self.root).as_posix()
        if place in ROOT_PAGES:
            target = place
        elif place.startswith("docs/"):
            target = _staged(place.removeprefix("docs/"))
        else:
            target = f"{DOWNLOADS}/{place}"
            (self.source / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(found, self.source / target)
        return os.path.relpath(target, PurePosixPath(_staged(name)).parent) + hash_sign + anchor


def _staged(name: str) -> str:
    page = PurePosixPath(name)
    return str(page.with_name("index.md")) if page.name == "README.md" else name


def _navigation(text: str) -> Iterator[str]:
    """Yields a hidden list of pages for each section with a table: the links of the first cells, in their order."""
    for section in text.split("\n## ")[1:]:
        caption = section.partition("\n")[0]
        links = [link for cell in _FIRST_CELL.findall(section) for link in _NAMED_LINK.findall(cell)]
        pages = {target.partition("#")[0].removesuffix(".md"): title for title, target in links}
        if pages:
            rows = [f"{title.replace('`', '')} <{page}>" for page, title in pages.items()]
            yield _toctree(rows, options=f":hidden:\n:caption: {caption}\n")


def _toctree(rows: Iterable[str], options: str) -> str:
    listed = "\n".join(rows)
    return f"\n\n```{{toctree}}\n{options}\n{listed}\n```\n"


def build(root: Path, output: Path) -> int:
    """Builds the site into `output/html`, which it replaces. Returns the exit code: 1 after a warning."""
    source, html = output / "source", output / "html"
    for folder in (source, html):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    try:
        Stage(root, source).fill()
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    sphinx = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet", "-b", "html"]
    done = subprocess.run(
        [*sphinx, "-c", str(HERE), "-d", str(output / "doctrees"), str(source), str(html)], check=False
    )
    if done.returncode == 0:
        print(f"open {html / 'index.html'}")
    return done.returncode


def main() -> int:
    """Builds the site of this repository, or of the one that `--root` names."""
    parser = argparse.ArgumentParser("docs/site/build.py", description="Build the documentation site.")
    parser.add_argument("folder", nargs="?", type=Path, help="where to; default: build/docs below the root")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository whose pages are taken")
    given = parser.parse_args()
    root = given.root.resolve()
    return build(root, (given.folder or root / "build" / "docs").resolve())


if __name__ == "__main__":
    sys.exit(main())
