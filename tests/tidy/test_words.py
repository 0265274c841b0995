"""Docstrings and names of tests: which must exist, and that they name their subject."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping

import pytest

from tests.tidy.sources import HELPERS, PRODUCT, Function, Source, invented, nodes_of, report, sources

PRONOUNS = ("what", "whatever", "who", "whoever", "whom", "whose", "nobody", "whether", "where", "wherever")
"""They stand for a thing that has a name."""
_BEGINS_WITH_PRONOUN = re.compile(rf"\s*({'|'.join(PRONOUNS)})\b", re.IGNORECASE)
_TEST_OF_PRONOUN = re.compile(rf"test_({'|'.join(PRONOUNS)})_")
_VOICE = re.compile(
    r"[A-Z][a-z-]*s\b(?<!\bAs)"  # A verb in the third person, or a plural.
    r"|(A|An|All|Another|Any|Each|Every|No|One|Some|The|Two)\b"  # A subject, as in "The message is stored."
    r"|(Called|Made|Never)\b"
    r"|[^A-Z]|[A-Z][\w]*[A-Z]"  # A name or a value, such as `settings`, 5.0, PING or LedgerFenced.
)
"""Beginnings of a function's docstring. "Write the value." orders the reader, "Writes the value." says the effect."""
Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def modules_without_docstring(modules: Iterable[Source]) -> Iterator[str]:
    return (module.path for module in modules if not ast.get_docstring(module.tree))


def test_modules_say_in_a_docstring_what_lives_in_them() -> None:
    report(modules_without_docstring(sources(*PRODUCT, *HELPERS)), "give the module a docstring")


def test_modules_without_docstring_are_found() -> None:
    assert list(modules_without_docstring(invented({"a.py": '"""Yes."""', "b.py": "x = 1"}))) == ["b.py"]


def undocumented(modules: Iterable[Source]) -> Iterator[str]:
    """Yields public classes, functions and methods without a docstring.

    A second definition of a name needs none: an overload, the setter of a property.
    """
    for module in modules:
        classes = [node for node in module.tree.body if isinstance(node, ast.ClassDef)]
        for body in (module.tree.body, *(node.body for node in classes)):
            public = [node for node in body if isinstance(node, Documented) and not node.name.startswith("_")]
            described = {node.name for node in public if ast.get_docstring(node)}
            for node in public:
                if node.name not in described:
                    yield f"{module.path}:{node.lineno}: {node.name}"


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
    @property
    def size(self):
        """Yes."""
    @size.setter
    def size(self, size): ...
class Bare: ...
'''
    found = list(undocumented(invented({"a.py": text})))
    assert found == ["a.py:2: public", "a.py:15: Bare", "a.py:9: method"]


def undocumented_attributes(modules: Iterable[Source]) -> Iterator[str]:
    """Yields public attributes of public classes without a string below them.

    Attributes are assigned in the class body (enum members, fields of dataclasses and named tuples) or in `__init__`.
    One that overrides a described attribute of a base class needs no text of its own.
    """
    modules = list(modules)
    classes = {
        node.name: node
        for module in modules
        for node in nodes_of(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    for module in modules:
        for node in nodes_of(module.tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                described = _described(node, classes)
                for name, line in dict(_attributes(node)).items():
                    if name not in described:
                        yield f"{module.path}:{line}: {node.name}.{name}"


def _described(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef]) -> set[str]:
    """Returns the attributes with a text, and the public members, of a class and its bases."""
    found = {name for name, _ in _attributes(node, described=True)}
    found |= {member.name for member in node.body if isinstance(member, Function)}
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in classes and base.id != node.name:
            found |= _described(classes[base.id], classes)
    return found


def _attributes(node: ast.ClassDef, *, described: bool = False) -> Iterator[tuple[str, int]]:
    """Yields (name, line) of the public attributes of a class; with `described`, of those with a text alone."""
    inits = [member for member in node.body if isinstance(member, Function) and member.name == "__init__"]
    bodies = [node.body, *(init.body for init in inits)]
    for body in bodies:
        for statement, following in zip(body, [*body[1:], None], strict=True):
            if described and not _is_text(following) and not _is_key(statement):
                continue
            for target in _targets(statement):
                own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
                name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
                if not name.startswith("_") and (own if body is not node.body else name.isidentifier()):
                    yield name, statement.lineno


def _is_text(statement: ast.stmt | None) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _is_key(statement: ast.stmt) -> bool:
    """Returns True for a field that reads one key as it is: the key's row in its table has the words."""
    value = statement.value if isinstance(statement, ast.AnnAssign) else None
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and ast.unparse(value.func.value).endswith("_key")
        and value.func.attr != "rule"
    )


def _targets(statement: ast.stmt) -> list[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    return [statement.target] if isinstance(statement, ast.AnnAssign) else []


def test_public_attributes_have_docstrings() -> None:
    """A field's name seldom tells its unit, its range, or which value stands for "none"."""
    report(
        undocumented_attributes(sources(*PRODUCT)),
        "write a string below the attribute, or begin its name with an underscore",
    )


def test_public_attributes_without_docstring_are_found() -> None:
    text = '''
class Base:
    code: int = 0
    """On the wire."""
class Derived(Base):
    code = 1
    status = 2
class Color(Enum):
    RED = 1
    """Stop."""
    GREEN = 2
class Thing:
    def __init__(self):
        self.size = 0
        """In bytes."""
        self.rest = 0
        self._own = self.both = 1
        size = 2
class _Private:
    field: int
class Settings:
    size: int = broker_key.int("maxMessageSize")
    ratio: int = broker_key.rule(_ratio)
'''
    assert list(undocumented_attributes(invented({"a.py": text}))) == [
        "a.py:7: Derived.status",
        "a.py:11: Color.GREEN",
        "a.py:16: Thing.rest",
        "a.py:17: Thing.both",
        "a.py:23: Settings.ratio",
    ]


def riddles(modules: Iterable[Source]) -> Iterator[str]:
    """Yields docstrings that begin with a pronoun, those below an attribute included."""
    for module in modules:
        for node in nodes_of(module.tree):
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


def imperatives(modules: Iterable[Source]) -> Iterator[str]:
    """Yields functions' docstrings that say no effect. A property's docstring may name a value, as an attribute's."""
    for module in modules:
        for node in nodes_of(module.tree):
            if isinstance(node, Function) and not any(
                "property" in ast.unparse(one) for one in node.decorator_list
            ):
                text = ast.get_docstring(node)
                if text and not _VOICE.match(text):
                    yield f"{module.path}:{node.lineno}: {text.splitlines()[0]}"


def test_docstrings_of_functions_say_the_effect() -> None:
    report(
        imperatives(sources(*PRODUCT, "bench")), 'begin with a verb in the third person: "Writes the value."'
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Writes the value; returns its new version.", False),
        ("The value is stored.", False),
        ("`version`: of the value stored now.", False),
        ("SEND up to the body.", False),
        ("LedgerFenced refuses it.", False),
        ("Write; returns the new version.", True),
        ("Call `changed` on the loop.", True),
        ("Return", True),
        ("True while it is open.", True),
        ("It is stored.", True),
        ("As `put`.", True),
    ],
)
def test_docstrings_in_the_imperative_are_found(text: str, found: bool) -> None:
    assert bool(list(imperatives(invented({"a.py": f"async def f():\n    {text!r}"})))) is found


def test_a_property_may_be_described_as_a_value() -> None:
    text = "class C:\n    @property\n    def size(self):\n        'Size in bytes.'"
    assert not list(imperatives(invented({"a.py": text})))


def misnamed_tests(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        for node in nodes_of(module.tree):
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
