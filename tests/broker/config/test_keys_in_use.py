"""Every key in use is read somewhere, and no key that is read says `used=False`."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from bookie_stub.config.keys import BOOKIE_KEYS
from broker.config.keys import BROKER_KEYS
from foundation.settings.keys import KeyTable
from foundation.settings.load import PROFILE_KEY
from magnetar.process.client_keys import CLIENT_KEYS

ROOT = Path(__file__).resolve().parents[3]
TABLES = (
    "broker/config/",
    "bookie_stub/config/keys.py",
    "bookie_stub/config/rules.py",
    "magnetar/process/client_keys.py",
)
"""Files in which the name of a key is no use of it: tables, computed values, comparisons."""
REFUSALS = "broker/config/tls_rules.py"
"""The only use of some keys: a value that cannot be kept is refused."""


@cache
def texts_in(*folders: str) -> set[str]:
    """Returns every string constant of the code: reading a setting takes its name."""
    found: set[str] = set()
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            name = path.relative_to(ROOT).as_posix()
            if name == REFUSALS or not name.startswith(TABLES):
                tree = ast.parse(path.read_text(encoding="utf-8"))
                found.update(
                    node.value
                    for node in ast.walk(tree)
                    if isinstance(node, ast.Constant) and isinstance(node.value, str)
                )
    return found


READ_IN = {
    BROKER_KEYS: ("broker", "magnetar"),
    BOOKIE_KEYS: ("bookie_stub", "magnetar"),
    CLIENT_KEYS: ("magnetar",),
}
# Read by the loader itself: the first to choose the defaults of all others, the second to refuse all values but one.
BY_THE_LOADER = {PROFILE_KEY, "authorizationProvider"}
RULES = ("broker/config/rules.py", "bookie_stub/config/rules.py")
GETTERS = {"int", "float", "bool", "str", "list"}


def asked_for_by_rules() -> set[str]:
    """Returns the keys that other keys' values are computed from."""
    calls = [
        node
        for path in RULES
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GETTERS
    ]
    first = [call.args[0] for call in calls if call.args]
    return {arg.value for arg in first if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}


@pytest.mark.parametrize("table", READ_IN, ids=lambda table: table.name)
def test_key_in_use_is_read(table: KeyTable) -> None:
    used = {key.name for key in table.keys.values() if key.used} - BY_THE_LOADER - asked_for_by_rules()
    unread = sorted(used - texts_in(*READ_IN[table]))
    assert not unread, f"no code reads these; read them or give them used=False: {', '.join(unread)}"


@pytest.mark.parametrize("table", READ_IN, ids=lambda table: table.name)
def test_key_that_is_read_is_in_use(table: KeyTable) -> None:
    unused = {key.name for key in table.keys.values() if not key.used}
    # A key that another table answers for is read through that one.
    others = {name for other in READ_IN if other is not table for name in other.keys}
    read = sorted(unused & texts_in(*READ_IN[table]) - others)
    assert not read, f"these are read, so they are in use: {', '.join(read)}"
