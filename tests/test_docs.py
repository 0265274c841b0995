"""The pages name only what exists: links and their anchors, files, make targets, commands, modules, classes.

A failure names the page and the word. Pages are all committed `*.md` files at the root and below `docs/`.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from magnetar.__main__ import COMMANDS, load
from tests.tidy.sources import HELPERS, PRODUCT, sources

ROOT: Final = Path(__file__).resolve().parent.parent
WITH_CLASS_NAMES: Final = ("docs/tour.md", "docs/first_change.md", "docs/architecture.md")
"""Pages in which every CamelCase word in code style is a class of ours or one of `FOREIGN_CLASSES`."""
FOREIGN_CLASSES: Final = {"BookKeeper", "TestCase", "ValueError"}
DEPTH_MAX: Final = 3
"""Levels of base classes that are followed."""
EXAMPLES: Final = {"bench/results/today.json", "entry_cache/policies/clock.py"}
"""Files that a page has its reader make."""
FOLDERS: Final = (*PRODUCT, *HELPERS, "conf", "docs", "docker", ".ci")
"""A word that begins with one of these and a slash is a path below the root."""
WITH_ACTIONS: Final = ("admin", "bookie", "cache", "config", "perf", "pipeline", "token")
"""Commands whose next word names an action."""

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(rf"(?<![\w/.-])(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*[\w/]")
_FILE_SUFFIXES: Final = (".py", ".md", ".tsv", ".toml", ".yml", ".conf", ".svg", ".json", ".proto", "/")


def pages() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    return [name for name in listed if "/" not in name or name.startswith("docs/")]


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def code_of(page: str) -> Iterator[str]:
    """Yields each fenced block and each word in code style."""
    text = text_of(page)
    yield from _FENCE.findall(text)
    yield from _CODE.findall(_FENCE.sub("", text))


@cache
def anchors_of(page: str) -> frozenset[str]:
    """Returns the anchors that a host such as GitHub gives to the page's headings."""
    found = set[str]()
    for heading in re.findall(r"^#+ +(.+)$", _FENCE.sub("", text_of(page)), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return frozenset(found)


@pytest.mark.parametrize("page", pages())
def test_links_lead_to_files_and_headings(page: str) -> None:
    wrong = []
    for target in _LINK.findall(_FENCE.sub("", text_of(page))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        name = file.resolve().relative_to(ROOT).as_posix()
        if not file.exists() or (anchor and anchor not in anchors_of(name)):
            wrong.append(target)
    assert wrong == [], f"{page}: these links lead nowhere"


@pytest.mark.parametrize("page", pages())
def test_paths_exist(page: str) -> None:
    wrong = []
    for code in code_of(page):
        paths = [path for path in _PATH.findall(code) if path.endswith(_FILE_SUFFIXES)]
        wrong += [path for path in paths if path not in EXAMPLES and not (ROOT / path).exists()]
    assert wrong == [], f"{page}: these files do not exist"


@pytest.mark.parametrize("page", pages())
def test_named_tests_exist(page: str) -> None:
    named = {found for code in code_of(page) for found in re.findall(r"(tests/[\w/]+\.py)::(test_\w+)", code)}
    wrong = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if not re.search(rf"^(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.M)
    ]
    assert wrong == [], f"{page}: these tests do not exist"


def test_every_lesson_names_its_test() -> None:
    rows = re.findall(r"^\| (\d+) \|.*\| ([^|]+) \|$", text_of("docs/reference/lessons.md"), re.M)
    assert [int(number) for number, _ in rows] == list(range(1, 43))
    assert [number for number, tests in rows if "::test_" not in tests] == []


@pytest.mark.parametrize("page", pages())
def test_make_targets_exist(page: str) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, re.M))
    named = {name for code in code_of(page) for name in re.findall(r"(?:^|\s|`)make ([a-z][\w-]*)", code)}
    assert named <= targets, f"{page}: the Makefile has no {named - targets}"


@pytest.mark.parametrize("page", pages())
def test_modules_that_are_executed_exist(page: str) -> None:
    ours = (*PRODUCT, *HELPERS)
    named = {name for code in code_of(page) for name in re.findall(r"python3? -m ([\w.]+)", code)}
    missing = [
        name for name in named if name.split(".")[0] in ours and importlib.util.find_spec(name) is None
    ]
    assert missing == [], f"{page}: these modules do not exist"


def named_commands() -> list[tuple[str, str, str]]:
    """Returns (page, command, action or "") of each `magnetar ...` in code style."""
    found = set[tuple[str, str, str]]()
    for page in pages():
        for code in code_of(page):
            for command, action in re.findall(
                r"(?<![\w./:-])(?<!run )magnetar ([a-z]+)(?: ([a-z][a-zA-Z-]+))?", code
            ):
                found.add((page, command, action if command in WITH_ACTIONS else ""))
    return sorted(found)


def test_decisions_have_one_number_each() -> None:
    numbers = [page.name[:4] for page in sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))]
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]


def test_commands_exist() -> None:
    wrong = [(page, command) for page, command, _ in named_commands() if command not in COMMANDS]
    assert wrong == []


@pytest.mark.parametrize(
    ("command", "action"), sorted({(command, action) for _, command, action in named_commands() if action})
)
def test_actions_of_commands_exist(command: str, action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        load(command)([action, "--help"])
    assert ended.value.code in (0, None), f"magnetar {command} {action}: {capsys.readouterr().err}"


@cache
def class_members() -> dict[str, set[str]]:
    """Returns the names in the bodies of each class of ours and of its bases, by the class's name."""
    found, bases = dict[str, set[str]](), dict[str, set[str]]()
    for source in sources(*PRODUCT, *HELPERS):
        for node in ast.walk(source.tree):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(_members(node))
                own = {base.id for base in node.bases if isinstance(base, ast.Name)}
                bases.setdefault(node.name, set()).update(own)
    for _ in range(DEPTH_MAX):
        for name, names in bases.items():
            found[name].update(*(found[base] for base in names if base in found))
    return found


def _members(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield inner.name
            case ast.Name(id=name) | ast.Attribute(attr=name):
                yield name
            case ast.Constant(value=str(slot)):
                yield slot


@pytest.mark.parametrize("page", WITH_CLASS_NAMES)
def test_classes_and_their_methods_exist(page: str) -> None:
    members = class_members()
    wrong = []
    for code in code_of(page):
        for name, method in re.findall(
            r"(?<![\w/.`])([A-Z][a-z0-9]+(?:[A-Z][a-z0-9]*)+)(?:\.([a-z_]\w*))?(?![\w/])", code
        ):
            if name in FOREIGN_CLASSES:
                continue
            if name not in members or (method and method not in members[name]):
                wrong.append(f"{name}.{method}" if method else name)
    assert wrong == [], f"{page}: these classes or methods do not exist"


def test_tour_gives_line_counts_that_are_about_right() -> None:
    rows = re.findall(r"^\| \d+ \| `([^`]+\.py)` \| (\d+) \|", text_of("docs/tour.md"), re.M)
    assert rows
    lengths = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path, _ in rows}
    wrong = {path: lengths[path] for path, lines in rows if abs(lengths[path] - int(lines)) > 10}
    assert wrong == {}, "docs/tour.md: correct these counts"


def test_features_by_client_name_checks_that_exist() -> None:
    page = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
    rows = page.partition("### Features by client")[2].partition("\nLimits are")[0].splitlines()
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows if row.startswith("|")][2:]
    assert len(cells) > 20
    interop = ROOT / "tests" / "interop"
    texts = {
        column: "\n".join(file.read_text(encoding="utf-8") for file in (interop / folder).rglob(pattern))
        for column, (folder, pattern) in enumerate(
            (("go", "*.go"), ("java", "*.java"), ("rust/src", "*.rs")), 2
        )
    }
    for row in cells:
        if row[1] != "-":
            assert (interop / f"test_{row[1].strip('`')}.py").exists(), row
        for column, text in texts.items():
            quoted = row[column].strip("`") if column == 4 else f'"{row[column].strip("`")}"'
            assert row[column] == "-" or quoted in text, row


LANGUAGES: Final = {
    "java": ("java", "*.java"),
    "go": ("go", "*.go"),
    "rust": ("rust", "*.rs"),
    "node": ("javascript", "*.js"),
}
"""Folder below `examples/`, which is also the name of a page, to the name of its code blocks and its files."""


@pytest.mark.parametrize("folder", LANGUAGES)
def test_code_on_the_pages_of_languages_is_that_of_the_examples(folder: str) -> None:
    block, pattern = LANGUAGES[folder]
    files = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "examples" / folder).rglob(pattern)
    )
    shown = re.findall(rf"^```{block}\n(.*?)^```", text_of(f"docs/how-to/languages/{folder}.md"), re.M | re.S)
    assert len(shown) >= 3
    assert [code for code in shown if code not in files] == []
