"""Which room may import which, that modules import in no circle, and which rooms stay free of I/O, clocks and chance."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.tidy.sources import HELPERS, PRODUCT, Source, invented, nodes_of, report, sources

ROOT = Path(__file__).resolve().parents[2]

_FROM_THE_BOTTOM_UP = (
    ("foundation.value", "foundation.units", "foundation.seldom"),
    # The names of the cache's policies are in the table of keys, too.
    (
        "protocol",
        "foundation.settings",
        "foundation.http",
        "foundation.objects",
        "foundation.tls",
        "foundation.zookeeper",
        "foundation.bookie_report",
        "bookkeeper.leaks",
        "entry_cache.policy_names",
    ),
    ("foundation.model", "foundation.loop", "broker.config"),
    ("entry_cache", "bookkeeper.metadata", "bookkeeper.client", "broker.compaction"),
    ("bookkeeper.ensembles",),
    ("broker.managed_ledger", "broker.schemas", "broker.security"),
    # Modules beside the layers of the service: the words that all layers share.
    ("broker.service", "broker.offload"),
    ("broker.service.namespaces",),
    ("broker.service.policies",),
    ("broker.service.limits",),
    ("broker.service.compaction", "broker.service.transactions"),
    ("broker.service.subscriptions",),
    ("broker.service.topics",),
    ("broker.peers",),
    ("broker.service.lifecycle", "broker.cluster"),
    ("broker.numbers",),
    (
        "broker.net",
        "broker.admin",
        "broker.websocket",
        "broker.metrics",
        "broker.recorder",
        "broker.faults",
        "broker.console",
    ),
    ("broker.compose", "magnetar"),
)
LEVELS = {room: level for level, rooms in enumerate(_FROM_THE_BOTTOM_UP) for room in rooms}
"""A room is a package or a module; the longest name that fits counts. It imports itself and lower levels."""
TOP_LEVEL = len(_FROM_THE_BOTTOM_UP) - 1
ROOFS = ("broker", "bookkeeper", "foundation")
"""Packages of rooms: every module in them belongs to a room."""

SAME_LEVEL = {
    ("broker.console", "broker.admin"): "the console's data are routes of the admin API",
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
_CACHE = (
    "broker.recorder",
    "entry_cache",
    "foundation.model",
    "foundation.units",
    "entry_cache.policy_names",
)
ONLY = {
    # Libraries: these are all the rooms of ours that they may use, so no settings, and nothing of the broker.
    "entry_cache": {"entry_cache.policy_names", "foundation.model", "foundation.value", "foundation.units"},
    "bookkeeper.metadata": {"protocol", "foundation.model", "foundation.seldom", "foundation.zookeeper"},
    "bookkeeper.client": {
        "protocol",
        "foundation.bookie_report",
        "foundation.model",
        "foundation.loop",
        "foundation.tls",
    },
    "bookkeeper.ensembles": {
        "protocol",
        "foundation.model",
        "foundation.units",
        "foundation.value",
        "foundation.loop",
        "bookkeeper.client",
        "bookkeeper.metadata",
    },
    "bookkeeper.repair": {
        "protocol",
        "foundation.model",
        "foundation.units",
        "foundation.value",
        "bookkeeper.client",
        "bookkeeper.ensembles",
        "bookkeeper.metadata",
        "foundation.http",
    },
    "bookie_stub": {
        "protocol",
        "foundation.bookie_report",
        "foundation.http",
        "foundation.settings",
        "foundation.units",
        "foundation.value",
        "foundation.zookeeper",
        *(f"bookie_stub.{room}" for room in BOOKIE),
    },
    **{
        f"bookie_stub.{room}": {
            "protocol",
            "foundation.bookie_report",
            "foundation.http",
            "foundation.settings",
            "foundation.units",
            "foundation.value",
            "foundation.zookeeper",
            *(f"bookie_stub.{lower}" for lower in BOOKIE[:height]),
        }
        for height, room in enumerate(BOOKIE)
    },
    "pipeline": {"protocol"},
    # Jobs on access records: the broker's own reader of them, and the policies that decided.
    "pipeline.traces": {"broker.recorder", "entry_cache"},
    "pipeline.replays": {"pipeline", "pipeline.traces", *_CACHE},
    "pipeline.jobs": {"pipeline", "pipeline.traces", "pipeline.replays", *_CACHE},
    "pipeline.audits": {"pipeline", "pipeline.jobs", "bookkeeper.leaks", "foundation.units"},
    "pyspark_pulsar": {"protocol", "foundation.tls", "foundation.objects"},
    # A bare package runs before each of its rooms and must not drag any of them in.
    **{roof: set[str]() for roof in ROOFS},
}
"""Rooms outside of the levels, and libraries: all that each may import of ours."""

WITHOUT_WAITING = (
    "foundation.value",
    "protocol",
    "bookkeeper.leaks",
    "foundation.model",
    "entry_cache",
    "broker.schemas.avro_resolution",
    "broker.schemas.avro_schema",
    "broker.schemas.compatibility",
    "broker.schemas.definitions",
    "broker.service.subscriptions.dispatch.draining_hashes",
    "broker.service.subscriptions.dispatch.key_shared",
    "bookie_stub.disk.read_cache",
    "bookie_stub.disk.readahead",
    "bookie_stub.base.record",
    "bookie_stub.disk.write_cache",
    "pipeline.simulators",
)
"""Rooms that decide and never wait: on top of what PURE rules out, no asyncio."""
PURE = (*WITHOUT_WAITING, "broker.managed_ledger", "broker.schemas", "broker.service")
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

_ATTACHMENTS = tuple(f"entry_cache.{part}" for part in ("observe", "policies", "bounds"))
NOT_FROM = dict.fromkeys(("broker.managed_ledger", "broker.service", "broker.net"), _ATTACHMENTS)
"""Parts of a lower room that a room may not import: they attach to the cache from outside, so its users do without."""


@cache
def imports(tree: ast.Module, *, in_functions: bool = True) -> tuple[tuple[int, str], ...]:
    """Returns line and full name of each import, by default with those inside of functions."""
    found = []
    for node in nodes_of(tree) if in_functions else outside_functions(tree):
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
    """Returns the room of a module or name, None for one of another package."""
    return max((room for room in (*LEVELS, *ONLY) if is_in(name, room)), key=len, default=None)


def may_import(room: str, other: str) -> bool:
    if room == other or (room, other) in SAME_LEVEL:
        return True
    if room in ONLY:
        return other in ONLY[room]
    # The top composes everything, the bookie included; what has no level is closed to all others.
    return LEVELS[room] == TOP_LEVEL or (other in LEVELS and LEVELS[other] < LEVELS[room])


def upward_imports(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        room = room_of(module.name)
        if room is None or (room in ROOFS and module.name != room):
            yield f"{module.path}: it is in no room; give its room a level in LEVELS"
            continue
        for line, target in imports(module.tree):
            other = room_of(target)
            if other is not None and not may_import(room, other):
                yield f"{module.path}:{line}: {room} may not import {other}"


def missing_rooms(rooms: Iterable[str], modules: Iterable[str]) -> list[str]:
    """Returns the rooms without a module: a rule that names one of them checks nothing."""
    modules = list(modules)
    return sorted({room for room in rooms if not any(is_in(module, room) for module in modules)})


def named_rooms() -> Iterator[str]:
    """Yields every room that a rule of this file names."""
    yield from (*LEVELS, *PURE, *NOT_FROM, *_ATTACHMENTS)
    for pair in SAME_LEVEL:
        yield from pair
    for room, others in ONLY.items():
        yield from (room, *others)


def rooms_of_the_map(text: str) -> dict[str, int]:
    """Returns the levels of the map in docs/architecture.md; a line without a number goes on with the level above it."""
    rooms, level = {}, -1
    for line in text.partition("```")[2].partition("\n\n")[0].splitlines():
        number, names = line[:3].strip(), re.split(r" {3,}", line[3:])
        level = int(number) if number else level
        for name in names:
            if name in LEVELS:
                rooms[name] = level
    return rooms


def test_map_of_the_architecture_has_every_room_at_its_level() -> None:
    found = rooms_of_the_map((ROOT / "docs/architecture.md").read_text(encoding="utf-8"))
    assert found == LEVELS, "docs/architecture.md shows other levels than LEVELS"


def test_rules_name_rooms_that_exist() -> None:
    missing = missing_rooms(named_rooms(), [module.name for module in sources(*PRODUCT)])
    report(missing, "a rule names a room without a module; write the room's name of today")


def test_rooms_that_do_not_exist_are_found() -> None:
    assert missing_rooms(["a.b", "a.c", "a.b.d"], ["a.b.d.e", "a.bc"]) == ["a.c"]


def test_rooms_import_only_downwards() -> None:
    report(upward_imports(sources(*PRODUCT)), "move the name down, or hand it in as an argument")


def test_upward_imports_are_found() -> None:
    files = {
        "broker/net/a.py": "from broker.service import x\nimport os",
        "broker/service/a.py": "def late():\n    from broker.net.a import x",
        "broker/a.py": "",
        "elsewhere/a.py": "",
    }
    assert list(upward_imports(invented(files))) == [
        "broker/service/a.py:2: broker.service may not import broker.net",
        "broker/a.py: it is in no room; give its room a level in LEVELS",
        "elsewhere/a.py: it is in no room; give its room a level in LEVELS",
    ]


def imports_of_attachments(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        for room, attachments in NOT_FROM.items():
            for line, target in imports(module.tree):
                if is_in(module.name, room) and any(is_in(target, attachment) for attachment in attachments):
                    yield f"{module.path}:{line}: {room} may not import {target}"


def test_users_of_the_cache_do_not_import_its_attachments() -> None:
    report(imports_of_attachments(sources(*PRODUCT)), "pass the value through EntryCache or its listener")


def test_imports_of_attachments_are_found() -> None:
    files = {
        "broker/managed_ledger/a.py": "from entry_cache.observe.cache_events import Op",
        "broker/compose/a.py": "from entry_cache.observe.cache_events import Op",
        "broker/net/a.py": "from entry_cache.listener import HitKind",
    }
    assert list(imports_of_attachments(invented(files))) == [
        "broker/managed_ledger/a.py:1: broker.managed_ledger may not import entry_cache.observe.cache_events.Op"
    ]


def import_circles(trees: dict[str, ast.Module]) -> list[str]:
    """Returns each circle as the modules in the order in which they import; no import is in two of them.

    An import for types alone counts: such modules cannot be read one after the other either. An import inside of a
    function does not count: it says by its place that it is needed late.
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
    """Returns the modules that the imported names are in; for a name of a package's own file, that package."""
    found = set()
    for _, target in imports(tree, in_functions=False):
        parts = target.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        found.update([name for name in prefixes if name in modules][:1])
    return found


def test_modules_import_in_no_circle() -> None:
    circles = import_circles({module.name: module.tree for module in sources(*PRODUCT)})
    report(circles, "let the lower module say as a Protocol what it needs")


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
        ("broker.service", "broker.service.namespaces", False),
        ("broker.service.transactions", "broker.service.subscriptions", False),
        ("broker.service.subscriptions", "broker.service.transactions", True),
        ("broker.service.subscriptions", "broker.service.topics", False),
        ("broker.service.topics", "broker.service.lifecycle", False),
        ("broker.net", "broker.service", True),
        ("broker.managed_ledger", "foundation.settings", True),
        ("magnetar", "bookie_stub", True),
        ("broker.compose", "bookie_stub", True),
        ("bookie_stub", "protocol", True),
        ("foundation.model", "foundation.loop", False),
        ("broker.service", "broker.net", False),
        ("broker.net", "broker.admin", False),
        ("entry_cache", "bookkeeper.metadata", False),
        ("entry_cache", "foundation.model", True),
        ("entry_cache", "foundation.settings", False),
        ("bookkeeper.client", "bookkeeper.ensembles", False),
        ("bookkeeper.ensembles", "foundation.settings", False),
        ("bookkeeper.repair", "bookkeeper.ensembles", True),
        ("bookkeeper.repair", "bookie_stub.config", False),
        ("broker.service", "bookkeeper.repair", False),
        ("broker.service", "bookie_stub", False),
        ("bookie_stub", "foundation.model", False),
        ("protocol", "foundation.settings", False),
        ("foundation.settings", "foundation.model", False),
        ("broker.net", "magnetar", False),
        ("pipeline", "foundation.model", False),
        ("pipeline", "protocol", True),
        ("pipeline", "pipeline.jobs", False),
        ("pipeline.replays", "entry_cache", True),
        ("pipeline.replays", "pipeline.jobs", False),
        ("pipeline.jobs", "broker.service", False),
        ("broker.recorder", "pipeline.traces", False),
        ("pyspark_pulsar", "protocol", True),
        ("pyspark_pulsar", "pipeline", False),
        ("broker.service", "pyspark_pulsar", False),
    ],
)
def test_levels_allow_the_imports_of_the_design(room: str, other: str, allowed: bool) -> None:
    assert may_import(room, other) is allowed


def imports_of_helpers(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        for line, target in imports(module.tree):
            if target.split(".")[0] in HELPERS:
                yield f"{module.path}:{line}: {target}"


def test_product_imports_no_tests_and_no_benchmarks() -> None:
    report(imports_of_helpers(sources(*PRODUCT)), "move the name into the product")


def relative_imports(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        for line, target in imports(module.tree):
            if target.startswith("."):
                yield f"{module.path}:{line}: {target}"


def test_imports_are_absolute() -> None:
    report(relative_imports(sources(*PRODUCT, *HELPERS)), "write the whole name")


def impure_imports(modules: Iterable[Source]) -> Iterator[str]:
    for module in modules:
        if any(is_in(module.name, room) for room in PURE):
            waits = not any(is_in(module.name, room) for room in WITHOUT_WAITING)
            for line, target in imports(module.tree):
                package = target.split(".")[0]
                if package in IMPURE_MODULES or (package == "asyncio" and not waits):
                    yield f"{module.path}:{line}: {target}"


def test_pure_rooms_do_no_io() -> None:
    report(impure_imports(sources(*PRODUCT)), "take it as an argument")


def test_forbidden_imports_are_found() -> None:
    files = {
        "protocol/a.py": "import asyncio\nimport struct\nfrom . import b",
        "broker/service/a.py": "import asyncio\nfrom time import monotonic\nimport tests.x",
        "broker/net/a.py": "import time",
    }
    modules = invented(files)
    assert list(impure_imports(modules)) == [
        "protocol/a.py:1: asyncio",
        "broker/service/a.py:2: time.monotonic",
    ]
    assert list(relative_imports(modules)) == ["protocol/a.py:3: ..b"]
    assert list(imports_of_helpers(modules)) == ["broker/service/a.py:3: tests.x"]
