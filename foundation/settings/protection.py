"""Refuses settings that ask for a protection which this process does not have.

A key asks for a protection when its row in a table says so (`Key.asks_for`, the last column of a file of unused keys).
Its defaults ask for nothing and pass. Any other value stops a start and is refused at run time, because a broker that
ignores it would be open while its owner believes that it is closed.
"""

from __future__ import annotations

from collections.abc import Mapping

from foundation.settings.errors import MissingProtection
from foundation.settings.keys import KeyTable, format_value, mask


def refuse_missing(table: KeyTable, texts: Mapping[str, tuple[str, str]]) -> None:
    """Raises MissingProtection if a text asks for a protection that is missing.

    `texts` has the text and the origin of each key. The error is one line: the first such key with its remedy, and the
    names of the others.
    """
    asking = [
        name
        for name, (text, _) in texts.items()
        if table.protection(name) and table.is_unused(name) and not _harmless(table, name, text)
    ]
    if not asking:
        return
    name, *others = asking
    text, where = texts[name]
    line = (
        f"{where}: {name}={mask(name, text)}: asks for {table.protection(name)} (not built);"
        f" to go without, leave the key {_default(table, name)}"
    )
    if others:
        line += "; the same goes for " + ", ".join(f"{other} ({texts[other][1]})" for other in others)
    raise MissingProtection(line)


def refuse_misspelt(table: KeyTable, name: str, text: str, where: str, near: str) -> None:
    """Raises MissingProtection if an unknown key probably misspells `near`, and `near` asks for a protection."""
    if table.protection(near) and not _harmless(table, near, text):
        raise MissingProtection(
            f"{where}: {name}={mask(near, text)}: not a key that Pulsar or Magnetar knows, and {near} asks for"
            f" {table.protection(near)}: correct the name or remove it"
        )


def _harmless(table: KeyTable, name: str, text: str) -> bool:
    try:
        return table.says_nothing(name, text)
    except ValueError:  # No value that the key allows.
        return False


def _default(table: KeyTable, name: str) -> str:
    """Describes the value that holds without the key."""
    key = table.keys.get(name)
    value = table.unused.defaults[name][0] if key is None else format_value(key.default)
    return f"at {value}" if value else "unset"
