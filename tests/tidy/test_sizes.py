"""How large a function, a class, a file and a folder may grow."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from tests.tidy.sources import HELPERS, PRODUCT, Function, Source, invented, nodes_of, report, sources

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
CLASS_METHODS_MAX = 30
FOLDER_FILES_MAX = 30


def long_functions(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        for node in nodes_of(module.tree):
            if isinstance(node, Function):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    yield f"{module.path}:{node.lineno}: {node.name} has {lines} lines"


def test_functions_fit_on_a_screen() -> None:
    report(long_functions(sources(*PRODUCT, *HELPERS)), "find the part of it that has a name of its own")


def test_long_functions_are_found() -> None:
    text = "def short():\n{0}\nasync def long():\n{0}    y\n".format("    x\n" * (FUNCTION_LINES_MAX - 1))
    assert list(long_functions(invented({"a.py": text}))) == ["a.py:62: long has 61 lines"]


def long_files(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        lines = module.text.count("\n")
        if lines > FILE_LINES_MAX:
            yield f"{module.path}: {lines} lines"


def test_files_have_one_subject() -> None:
    report(long_files(sources(*PRODUCT, *HELPERS)), "part it by subject")


def test_long_files_are_found() -> None:
    files = {"a.py": "\n" * FILE_LINES_MAX, "b.py": "\n" * (FILE_LINES_MAX + 1)}
    assert list(long_files(invented(files))) == ["b.py: 501 lines"]


class ClassMembers(NamedTuple):
    """A class as the count of its methods needs it."""

    bases: frozenset[str]
    """Full names of the classes that it inherits from, those of other packages included."""
    methods: frozenset[str]


def classes_of(modules: Iterable[Source]) -> dict[str, ClassMembers]:
    """Returns the classes by full name, such as `broker.turn.Turn`."""
    found = {}
    for module in modules:
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in nodes_of(module.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for node in nodes_of(module.tree):
            if isinstance(node, ast.ClassDef):
                # `Base[T]` inherits from `Base`.
                named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
                bases = [base.id for base in named if isinstance(base, ast.Name)]
                found[f"{module.name}.{node.name}"] = ClassMembers(
                    frozenset(imported.get(base, f"{module.name}.{base}") for base in bases),
                    frozenset(item.name for item in node.body if isinstance(item, Function)),
                )
    return found


def methods_of(name: str, classes: Mapping[str, ClassMembers]) -> frozenset[str]:
    """Returns the names of a class's methods, inherited ones included; classes of other packages have none."""
    if name not in classes:
        return frozenset()
    bases, own = classes[name]
    return own.union(*(methods_of(base, classes) for base in bases))


def large_classes(modules: Iterable[Source]) -> Iterator[str]:
    classes = classes_of(modules)
    for name in classes:
        count = len(methods_of(name, classes))
        if count > CLASS_METHODS_MAX:
            yield f"{name}: {count} methods"


def test_classes_have_one_job() -> None:
    """Inherited methods count too: a base class with one subclass would only hide a class that is too large."""
    report(large_classes(sources(*PRODUCT)), "find the part that has a job of its own, and call it")


def test_large_classes_are_found_by_their_inherited_methods() -> None:
    def methods(first: int, count: int) -> str:
        return "".join(f"    def f{number}(self): ...\n" for number in range(first, first + count))

    files = {
        "a.py": "class Base:\n" + methods(0, 20),
        "b.py": "from a import Base as B\nclass Whole(B[int]):\n" + methods(15, 16),
        "c.py": "class Base:\n    x = 1\nclass Small(Base):\n" + methods(0, 30),
    }
    assert list(large_classes(invented(files))) == ["b.Whole: 31 methods"]


def wide_folders(modules: Iterable[Source]) -> Iterator[str]:
    counts = Counter(str(PurePath(module.path).parent) for module in modules)
    for folder, count in counts.items():
        if count > FOLDER_FILES_MAX:
            yield f"{folder}: {count} files"


def test_folders_can_be_surveyed() -> None:
    report(wide_folders(sources(*PRODUCT)), "give the files that belong together a folder")


def test_wide_folders_are_found() -> None:
    files = {f"a/{number}.py": "" for number in range(31)} | {f"a/b/{number}.py": "" for number in range(30)}
    assert list(wide_folders(invented(files))) == ["a: 31 files"]
