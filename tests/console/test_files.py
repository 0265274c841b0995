"""Rules of the console's files: their size, no foreign address, no inline code, a head for each module."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGES: Final = Path(__file__).resolve().parents[2] / "broker" / "console" / "pages"
SIZE_MAX: Final = 250_000
"""Bytes of all files together, uncompressed."""
LINES_MAX: Final = 300
"""Lines of one module; a longer one has two subjects."""
ADDRESSES: Final = re.compile(r"https?://[^\s\"'`)]+|\bdata:[a-z]+/", re.IGNORECASE)
MARKUP: Final = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
"""Ways from a text to markup or code."""
NAMES_OF_SVG: Final = {"http://www.w3.org/2000/svg"}
"""Addresses that name a vocabulary; browsers load nothing from them."""


def files(*suffixes: str) -> list[Path]:
    found = [path for path in sorted(PAGES.rglob("*")) if path.is_file() and path.suffix in suffixes]
    assert found, f"no {suffixes} in {PAGES}"
    return found


def foreign_addresses(text: str) -> set[str]:
    return set(ADDRESSES.findall(text)) - NAMES_OF_SVG


def inline_code(page: str) -> list[str]:
    """Returns parts of a page that its Content-Security-Policy would block."""
    patterns = (r"<script(?![^>]*\bsrc=)[^>]*>", r"<style[^>]*>", r"\sstyle=", r"\son[a-z]+=", r"javascript:")
    return [match[0] for pattern in patterns for match in re.finditer(pattern, page, re.IGNORECASE)]


def head_of(text: str) -> str:
    """Returns the comment at the beginning of a module or style sheet, empty without one."""
    found = re.match(r"/\*\*?(.*?)\*/", text, re.DOTALL)
    return "" if found is None else found[1].strip(" *\n")


def undocumented_exports(text: str) -> list[str]:
    """Returns exported functions and classes without a comment of JSDoc directly above them."""
    lines = text.split("\n")
    return [
        line
        for place, line in enumerate(lines)
        if re.match(r"export (async )?(function|class) ", line)
        and not lines[place - 1].rstrip().endswith("*/")
    ]


def imports(text: str) -> list[str]:
    return re.findall(r"^(?:import|\} from|export .* from)[^\"]*\"([^\"]+)\";", text, re.MULTILINE)


def test_all_files_together_are_small() -> None:
    size = sum(path.stat().st_size for path in PAGES.rglob("*") if path.is_file())
    assert size < SIZE_MAX


def test_files_name_no_foreign_address() -> None:
    for path in files(".js", ".css", ".html", ".svg"):
        assert not foreign_addresses(path.read_text(encoding="utf-8")), path


def test_page_has_no_inline_code() -> None:
    assert not inline_code((PAGES / "index.html").read_text(encoding="utf-8"))


def test_modules_say_what_they_are_for() -> None:
    for path in files(".js", ".css"):
        text = path.read_text(encoding="utf-8")
        assert len(head_of(text)) > 30, path
        assert not undocumented_exports(text), path
        assert text.count("\n") <= LINES_MAX, path


def test_modules_make_no_markup_from_text() -> None:
    """A name of a topic that is put into markup runs as code."""
    for path in files(".js"):
        text = path.read_text(encoding="utf-8")
        assert not MARKUP.findall(text), path


def test_imported_modules_exist() -> None:
    for path in files(".js"):
        for name in imports(path.read_text(encoding="utf-8")):
            assert name.startswith("."), (path, name)
            assert (path.parent / name).is_file(), (path, name)


def test_rules_find_what_breaks_them() -> None:
    assert foreign_addresses('fetch("https://example.org/x.js")') == {"https://example.org/x.js"}
    assert inline_code('<script>x</script><p style="a" onclick="b">') == ["<script>", " style=", " onclick="]
    assert not inline_code('<script type="module" src="/a.js"></script>')
    assert head_of("/**\n * Draws.\n */\n") == "Draws."
    assert head_of("const x = 1;") == ""
    assert undocumented_exports("/** Yes. */\nexport function a() {}\n\nexport class B {}") == [
        "export class B {}"
    ]
    assert imports('import { a } from "./a.js";\nimport {\n  b,\n} from "b";\n') == ["./a.js", "b"]
