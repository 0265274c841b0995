"""No committed file names the machine it was written on, or the host of a package registry."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.tidy.sources import ROOT, report

NOT_IN_FILES = tuple(
    re.compile(pattern)
    for pattern in (
        # Written so that this file does not match itself.
        r"(?<![\w.])/w[o]rk/",
        r"\bpypi\.[o]rg\b",
        r"\bfiles\.pythonh[o]sted\.org\b",
        r"\brepo\d?\.maven\.[a-z.]*[o]rg\b",
        r"\bregistry\.npmjs\.[o]rg\b",
        r"\b(static\.)?crates\.[i]o\b",
        r"\bproxy\.golang\.[o]rg\b",
    )
)


def text_files() -> Iterator[tuple[str, str]]:
    """Yields path and text of every text file that git tracks or would track."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a work tree")
    for name in filter(None, names):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            yield name, content.decode("utf-8", errors="replace")


def named_places(path: str, text: str) -> Iterator[str]:
    for pattern in NOT_IN_FILES:
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {match[0]}"


def test_files_name_no_machine_and_no_registry() -> None:
    report((place for path, text in text_files() for place in named_places(path, text)), "leave the name out")


def test_names_of_machines_and_registries_are_found() -> None:
    text = "x\nfrom https://pypi" + ".org/simple\ncd /wo" + "rk/main, not homework/ or network/x\n"
    assert list(named_places("a", text)) == ["a:3: /wo" + "rk/", "a:2: pypi" + ".org"]
