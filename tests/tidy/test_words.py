"""Docstrings and names of tests: which must exist, and that they name their subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import pytest

from tests.tidy.sources import HELPERS, PRODUCT, Function, Source, invented, report, sources

PRONOUNS = ("what", "whatever", "who", "whoever", "whom", "whose", "nobody", "whether", "where", "wherever")
"""They stand for a thing that has a name."""
_BEGINS_WITH_PRONOUN = re.compile(rf"\s*({'|'.join(PRONOUNS)})\b", re.IGNORECASE)
_TEST_OF_PRONOUN = re.compile(rf"test_({'|'.join(PRONOUNS)})_")
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules_without_docstring(modules: Iterable[Source]) -> Iterator[str]:
    return (module.path for module in modules if not ast.get_docstring(module.tree))


def test_modules_say_in_a_docstring_what_lives_in_them() -> None:
    report(modules_without_docstring(sources(*PRODUCT, *HELPERS)), "give the module a docstring")


def test_modules_without_docstring_are_found() -> None:
    assert list(modules_without_docstring(invented({"a.py": '"""Yes."""', "b.py": "x = 1"}))) == ["b.py"]


def undocumented(modules: Iterable[Source]) -> Iterator[str]:
    """Yields public classes, functions and methods without a docstring.

    A second definition of a name needs none: an overload, the setter of a property. Neither does a method that does
    nothing in a class outside a Protocol: the class says so, and the Protocol describes the method.
    """
    for module in modules:
        classes = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
        owners: list[ast.Module | ast.ClassDef] = [module.tree, *classes]
        for owner in owners:
            public = [
                node
                for node in owner.body
                if isinstance(node, Documented)
                and not node.name.startswith("_")
                and not does_nothing(node, owner)
            ]
            described = {node.name for node in public if ast.get_docstring(node)}
            for node in public:
                if node.name not in described:
                    yield f"{module.path}:{node.lineno}: {node.name}"


def does_nothing(node: ast.stmt, owner: ast.AST) -> bool:
    """Tells whether `node` is a method with the body `...` in a class that is no Protocol."""
    if not isinstance(owner, ast.ClassDef) or not isinstance(node, ast.FunctionDef):
        return False
    is_protocol = any(isinstance(base, ast.Name) and base.id == "Protocol" for base in owner.bases)
    return not is_protocol and [ast.unparse(statement) for statement in node.body] == ["..."]


def test_public_names_have_docstrings() -> None:
    """Other modules use a name without a leading underscore: they need its effect, its units and its errors."""
    report(undocumented(sources(*PRODUCT)), "describe the name, or begin it with an underscore")


def test_public_names_without_docstring_are_found() -> None:
    text = '''
def public(): ...
def described():
    """Yes."""
def _private(): ...
class Public:
    """Yes."""
    def __len__(self): ...
    async def method(self): ...
    def ignored(self): ...
    @property
    def size(self):
        """Yes."""
    @size.setter
    def size(self, size): ...
class Bare: ...
class Shape(Protocol):
    """Yes."""
    def promised(self): ...
'''
    found = list(undocumented(invented({"a.py": text})))
    assert found == ["a.py:2: public", "a.py:16: Bare", "a.py:9: method", "a.py:19: promised"]


def riddles(modules: Iterable[Source]) -> Iterator[str]:
    """Yields docstrings that begin with a pronoun, those below an attribute included."""
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
                text = node.value.value
                if isinstance(text, str) and _BEGINS_WITH_PRONOUN.match(text):
                    yield f"{module.path}:{node.lineno}: {text.strip().splitlines()[0]}"


def test_docstrings_name_their_subject() -> None:
    """A sentence that begins with "What …" or "Who …" leaves the reader to guess which thing it is about."""
    report(riddles(sources(*PRODUCT)), "say which thing does what")


def test_docstrings_that_begin_with_a_pronoun_are_found() -> None:
    text = '''
"""Where a query begins."""
class C:
    """Whole entries."""
    size: int
    """What it has."""
def f():
    """Who calls."""
'''
    assert sorted(riddles(invented({"a.py": text}))) == [
        "a.py:2: Where a query begins.",
        "a.py:6: What it has.",
        "a.py:8: Who calls.",
    ]


def misnamed_tests(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, Function) and _TEST_OF_PRONOUN.match(node.name):
                yield f"{module.path}:{node.lineno}: {node.name}"


def test_tests_name_their_subject() -> None:
    report(misnamed_tests(sources("tests")), "write test_<subject>_<does something>")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("test_what_is_read", True),
        ("test_nobody_waits", True),
        ("test_whole_entries_are_read", False),
        ("test_entry_says_where_it_is", False),
        ("what_is_read", False),
    ],
)
def test_misnamed_tests_are_found(name: str, found: bool) -> None:
    assert bool(list(misnamed_tests(invented({"a.py": f"async def {name}(): ..."})))) is found
