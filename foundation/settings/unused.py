"""UnusedKeys: keys that Pulsar knows and this project does not use, from a data file.

Such a key is accepted from a conf file and named once in the log when it is set to a value of its own. A key that
asks for a protection is refused instead (`foundation/settings/protection.py`). The file has one line per key, tab-separated,
below a line with the names of its columns:

    key        the name
    defaults   the values that count as "left alone", `|` between several (empty: unset)
    dynamic    `yes` where Pulsar lets the key change at run time
    reason     why it has no effect here; `docs/reference/configuration.md` lists the keys by it
    asks for   the protection that any other value asks for; the column is missing where there is none
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple


class UnusedKey(NamedTuple):
    """A line of the file."""

    name: str
    """The key."""
    defaults: tuple[str, ...]
    """Values that say nothing new; `("",)` where the default is unset."""
    dynamic: bool
    """Pulsar lets the key change at run time."""
    reason: str
    """Why the key has no effect here."""
    asks_for: str = ""
    """The protection that a value beside `defaults` asks for; empty for none."""


class UnusedKeys:
    """The lines of one file, read at the first use."""

    def __init__(self, path: Path) -> None:
        self._path = path

    # Read late: a process whose settings name none of these keys never opens the file.
    @cached_property
    def rows(self) -> list[UnusedKey]:
        """The lines in the order of the file, which is the alphabet's."""
        _, *lines = self._path.read_text(encoding="utf-8").splitlines()
        cells = (line.split("\t") for line in lines)
        return [
            UnusedKey(name, tuple(values.split("|")), yes != "", *words)
            for name, values, yes, *words in cells
        ]

    @cached_property
    def defaults(self) -> dict[str, tuple[str, ...]]:
        """Default values by key."""
        return {row.name: row.defaults for row in self.rows}

    @cached_property
    def asks_for(self) -> dict[str, str]:
        """Protections by key; a key that asks for none is missing."""
        return {row.name: row.asks_for for row in self.rows if row.asks_for}

    @cached_property
    def dynamic(self) -> frozenset[str]:
        """Keys that Pulsar lets change at run time."""
        return frozenset(row.name for row in self.rows if row.dynamic)
