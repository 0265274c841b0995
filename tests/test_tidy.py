"""House rules that a reader should be able to rely on without checking.

Which room may import which, that no two modules need one another, which rooms stay free of I/O, clocks and
chance, how long functions and files may be, that every module says what lives in it, and that no file names
this machine or a registry. A failure names the file, the line and the rule.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = (
    "protocol",
    "settings",
    "zookeeper",
    "broker",
    "bookie_stub",
    "magnetar",
    "pipeline",
    "pyspark_pulsar",
)
HELPERS = ("tests", "bench")

LEVELS = {
    "protocol": 0,
    "settings": 0,
    "zookeeper": 0,
    "broker.model": 1,
    "broker.config": 1,
    "broker.loop": 1,
    "broker.ledger_client": 2,
    "broker.entry_cache": 2,
    "broker.metadata": 2,
    "broker.managed_ledger": 3,
    "broker.service": 4,
    "broker.net": 5,
    "broker.admin": 5,
    "broker.metrics": 5,
    "broker.recorder": 5,
    "broker.compose": 6,
    "broker.__main__": 6,
    "magnetar": 6,
}
"""A room is a package or a module; the longest name that fits counts. It imports itself and lower levels."""

SAME_LEVEL = {
    ("broker.ledger_client", "broker.metadata"): "ledger ids are given out by the metadata store",
}
"""Exceptions to "lower levels only", each with its reason; never both ways."""

BOOKIE = (
    "base",
    "config",
    "journal",
    "disk",
    "ledgers",
    "cluster",
    "upkeep",
    "compose",
    "wire",
    "http",
    "tools",
)
"""Rooms of the bookie from the bottom up: each may import those before it."""
_CACHE = ("broker.recorder", "broker.entry_cache", "broker.model")
ONLY = {
    "bookie_stub": {"protocol", "settings", "zookeeper", *(f"bookie_stub.{room}" for room in BOOKIE)},
    **{
        f"bookie_stub.{room}": {
            "protocol",
            "settings",
            "zookeeper",
            *(f"bookie_stub.{lower}" for lower in BOOKIE[:height]),
        }
        for height, room in enumerate(BOOKIE)
    },
    "pipeline": {"protocol"},
    # Jobs on access records: the broker's own reader of them, and the policies that decided.
    "pipeline.traces": {"broker.recorder", "broker.entry_cache"},
    "pipeline.replays": {"pipeline", "pipeline.traces", *_CACHE},
    "pipeline.jobs": {"pipeline", "pipeline.traces", "pipeline.replays", *_CACHE},
    "pipeline.audits": {"pipeline", "pipeline.jobs"},
    "pyspark_pulsar": {"protocol"},
    # The bare package runs before each of its rooms and must not drag any of them in.
    "broker": set[str](),
}
"""Rooms outside of the levels, and all that they may import of ours."""

WITHOUT_WAITING = (
    "protocol",
    "broker.model",
    "broker.entry_cache",
    "broker.service.consumer_selector",
    "broker.service.dispatch.draining_hashes",
    "broker.service.dispatch.key_shared",
    "bookie_stub.disk.read_cache",
    "bookie_stub.disk.readahead",
    "bookie_stub.base.record",
    "bookie_stub.disk.write_cache",
    "pipeline.simulators",
)
"""Rooms that decide and never wait: on top of what PURE rules out, no asyncio."""
PURE = (*WITHOUT_WAITING, "broker.managed_ledger", "broker.service")
"""Rooms where time, chance, sockets and files come in as arguments."""
IMPURE_MODULES = frozenset(
    (
        "aiohttp",
        "concurrent",
        "os",
        "prometheus_client",
        "random",
        "secrets",
        "select",
        "socket",
        "ssl",
        "subprocess",
        "threading",
        "time",
        "uvloop",
    )
)

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500

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


def sources(*folders: str) -> Iterator[tuple[str, Path, ast.Module]]:
    """Module name, path and tree of every file that people wrote."""
    for folder in folders:
        yield from sources_in(folder)


@cache
def sources_in(folder: str) -> tuple[tuple[str, Path, ast.Module], ...]:
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not path.stem.endswith(("_pb2", "_pb2_grpc")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts).removesuffix(".__init__")
            found.append((name, path, ast.parse(path.read_text(encoding="utf-8"))))
    return tuple(found)


@cache
def imports(tree: ast.Module, *, in_functions: bool = True) -> tuple[tuple[int, str], ...]:
    """Line and full name of everything imported: wherever in the file, or outside of functions only."""
    found = []
    for node in ast.walk(tree) if in_functions else outside_functions(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = f"{'.' * node.level}{node.module or ''}"
            found += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return tuple(found)


def outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from outside_functions(child)


def is_in(name: str, room: str) -> bool:
    return f"{name}.".startswith(f"{room}.")


def room_of(name: str) -> str | None:
    """None for whatever is not ours."""
    return max((room for room in (*LEVELS, *ONLY) if is_in(name, room)), key=len, default=None)


def may_import(room: str, other: str) -> bool:
    if room == other or (room, other) in SAME_LEVEL:
        return True
    if room in ONLY:
        return other in ONLY[room]
    # Level 6 composes everything, the bookie included; what has no level is closed to all others.
    return LEVELS[room] == 6 or (other in LEVELS and LEVELS[other] < LEVELS[room])


def where(path: Path, line: int | None = None) -> str:
    return f"{path.relative_to(ROOT)}" + ("" if line is None else f":{line}")


def test_rooms_import_only_downwards() -> None:
    wrong = []
    for name, path, tree in sources(*PRODUCT):
        room = room_of(name)
        assert room is not None, f"{where(path)}: belongs to no room"
        assert room != "broker" or name == "broker", f"{where(path)}: give it a level in LEVELS"
        for line, target in imports(tree):
            other = room_of(target)
            if other is not None and not may_import(room, other):
                wrong.append(f"{where(path, line)}: {room} may not import {other}")
    assert not wrong, "\n".join(wrong)


def import_circles(trees: dict[str, ast.Module]) -> list[str]:
    """Each circle written as the modules in the order in which they import; no import is in two of them.

    What is imported for types alone counts: such modules cannot be read one after the other either. What
    a function imports does not: it says by its place that it is needed late.
    """
    needs = {name: sorted(needed_modules(tree, trees.keys())) for name, tree in sorted(trees.items())}
    circles: list[str] = []
    while True:
        try:
            TopologicalSorter(needs).prepare()
            return circles
        except CycleError as error:
            circle: list[str] = error.args[1][::-1]
            circles.append(" -> ".join(circle))
            needs[circle[0]].remove(circle[1])


def needed_modules(tree: ast.Module, modules: Collection[str]) -> set[str]:
    """Those of `modules` that the names belong to; for one out of a package's own file, that package."""
    found = set()
    for _, target in imports(tree, in_functions=False):
        parts = target.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        found.update([name for name in prefixes if name in modules][:1])
    return found


def test_modules_import_in_no_circle() -> None:
    circles = import_circles({name: tree for name, _, tree in sources(*PRODUCT)})
    assert not circles, "let the lower module say as a Protocol what it needs:\n" + "\n".join(circles)


FOR_TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


@pytest.mark.parametrize(
    ("files", "circles"),
    [
        ({"a": "from b import x", "b": "import c", "c": "import sys"}, []),
        ({"a": "from b import x", "b": "import a"}, ["a -> b -> a"]),
        ({"a": "import b", "b": "import c", "c": "import a"}, ["a -> b -> c -> a"]),
        ({"a": "import b", "b": FOR_TYPES + "from a import x"}, ["a -> b -> a"]),
        ({"a": "import b", "b": "def late():\n    import a"}, []),
        ({"p": "from p.a import x", "p.a": "from p import b", "p.b": ""}, []),
        ({"p": "from p.a import x", "p.a": "from p import y"}, ["p -> p.a -> p"]),
        (
            {"a": "import b", "b": "import a", "c": "import d", "d": "import c"},
            ["a -> b -> a", "c -> d -> c"],
        ),
    ],
)
def test_import_circles_are_found_and_named(files: dict[str, str], circles: list[str]) -> None:
    assert import_circles({name: ast.parse(text) for name, text in files.items()}) == circles


@pytest.mark.parametrize(
    ("room", "other", "allowed"),
    [
        ("broker.service", "broker.managed_ledger", True),
        ("broker.net", "broker.service", True),
        ("broker.managed_ledger", "settings", True),
        ("magnetar", "bookie_stub", True),
        ("broker.compose", "bookie_stub", True),
        ("bookie_stub", "protocol", True),
        ("broker.model", "broker.loop", False),
        ("broker.service", "broker.net", False),
        ("broker.net", "broker.admin", False),
        ("broker.entry_cache", "broker.metadata", False),
        ("broker.service", "bookie_stub", False),
        ("bookie_stub", "broker.model", False),
        ("protocol", "settings", False),
        ("settings", "broker.model", False),
        ("broker.net", "magnetar", False),
        ("pipeline", "broker.model", False),
        ("pipeline", "protocol", True),
        ("pipeline", "pipeline.jobs", False),
        ("pipeline.replays", "broker.entry_cache", True),
        ("pipeline.replays", "pipeline.jobs", False),
        ("pipeline.jobs", "broker.service", False),
        ("broker.recorder", "pipeline.traces", False),
        ("pyspark_pulsar", "protocol", True),
        ("pyspark_pulsar", "pipeline", False),
        ("broker.service", "pyspark_pulsar", False),
    ],
)
def test_the_levels_are_those_of_the_design(room: str, other: str, allowed: bool) -> None:
    assert may_import(room, other) is allowed


def test_nobody_imports_tests_or_benchmarks() -> None:
    wrong = [
        f"{where(path, line)}: {target}"
        for _, path, tree in sources(*PRODUCT)
        for line, target in imports(tree)
        if target.split(".")[0] in HELPERS
    ]
    assert not wrong, "\n".join(wrong)


def test_imports_are_absolute() -> None:
    wrong = [
        where(path, line)
        for _, path, tree in sources(*PRODUCT, *HELPERS)
        for line, target in imports(tree)
        if target.startswith(".")
    ]
    assert not wrong, "write the whole name: " + ", ".join(wrong)


def test_pure_rooms_do_no_io() -> None:
    wrong = []
    for name, path, tree in sources(*PRODUCT):
        if any(is_in(name, room) for room in PURE):
            waits = not any(is_in(name, room) for room in WITHOUT_WAITING)
            for line, target in imports(tree):
                module = target.split(".")[0]
                if module in IMPURE_MODULES or (module == "asyncio" and not waits):
                    wrong.append(f"{where(path, line)}: {target} in a pure room; take it as an argument")
    assert not wrong, "\n".join(wrong)


def test_functions_fit_on_a_screen() -> None:
    wrong = []
    for _, path, tree in sources(*PRODUCT, *HELPERS):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                lines = node.end_lineno - node.lineno + 1
                if lines > FUNCTION_LINES_MAX:
                    wrong.append(f"{where(path, node.lineno)}: {node.name} has {lines} lines")
    assert not wrong, "\n".join(wrong)


def test_files_are_one_subject_long() -> None:
    wrong = []
    for _, path, _tree in sources(*PRODUCT, *HELPERS):
        lines = path.read_text(encoding="utf-8").count("\n")
        if lines > FILE_LINES_MAX:
            wrong.append(f"{where(path)}: {lines} lines")
    assert not wrong, "\n".join(wrong)


def test_every_module_says_what_lives_in_it() -> None:
    wrong = [where(path) for _, path, tree in sources(*PRODUCT, *HELPERS) if not ast.get_docstring(tree)]
    assert not wrong, "no module docstring: " + ", ".join(wrong)


def text_files() -> Iterator[tuple[Path, str]]:
    """Every text file that git tracks or would track."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, check=True, capture_output=True).stdout.decode().split("\0")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a work tree")
    for name in filter(None, names):
        path = ROOT / name
        if path.is_file() and b"\0" not in (content := path.read_bytes()):
            yield path, content.decode("utf-8", errors="replace")


def test_no_file_names_this_machine_or_a_registry() -> None:
    wrong = []
    for path, text in text_files():
        for pattern in NOT_IN_FILES:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                wrong.append(f"{where(path, line)}: {match[0]}")
    assert not wrong, "\n".join(wrong)
