"""The project's own modules, parsed, for the house rules."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = (
    "protocol",
    "foundation",
    "bookkeeper",
    "entry_cache",
    "broker",
    "bookie_stub",
    "magnetar",
    "pipeline",
    "pyspark_pulsar",
)
"""Folders of the code that users install."""
HELPERS = ("tests", "bench", "docs")
"""Folders that nothing in `PRODUCT` may import."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Source(NamedTuple):
    """A module that people wrote."""

    name: str
    """The full name; that of a package for its `__init__.py`."""
    path: str
    """Relative to the root of the repository."""
    text: str
    tree: ast.Module


def sources(*folders: str) -> list[Source]:
    """Returns the modules of the folders, without those that tools generate."""
    return [source for folder in folders for source in _sources_in(folder)]


@cache
def _sources_in(folder: str) -> tuple[Source, ...]:
    # The garbage collector would walk the growing trees again and again, which takes three times as long as the parsing.
    gc.disable()
    try:
        return tuple(
            source_of(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8"))
            for path in sorted((ROOT / folder).rglob("*.py"))
            if not path.stem.endswith(("_pb2", "_pb2_grpc"))
        )
    finally:
        gc.freeze()
        gc.enable()


def source_of(path: str, text: str) -> Source:
    """Parses a module. SyntaxError."""
    name = path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
    return Source(name, path, text, ast.parse(text))


@cache
def nodes_of(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Returns all nodes of a module. A walk takes as long as the parsing, and most rules look at all nodes."""
    return tuple(ast.walk(tree))


def invented(files: Mapping[str, str]) -> list[Source]:
    """Returns modules that exist in a test alone: path to text."""
    return [source_of(path, text) for path, text in files.items()]


def report(findings: Iterable[str], remedy: str) -> None:
    """Fails with the remedy and a line for each finding."""
    wrong = list(findings)
    assert not wrong, remedy + ":\n" + "\n".join(wrong)
