"""UnusedKeys: keys that Pulsar knows and this project does not use, from a data file.

Such a key is accepted from a conf file and named once in the log when it is set to a value of its own. A key that
asks for a protection is refused instead (`foundation/settings/protection.py`). The file has one line per key, tab-separated,
below a line with the names of its columns:

    key        the name
    defaults   the values that count as "left alone", `|` between several, Pulsar 4.2's first (empty: unset)
    dynamic    `yes` where Pulsar lets the key change at run time
    reason     why it has no effect here; `docs/reference/configuration.md` lists the keys by it
    asks for   the protection that any other value asks for
    5.0        the default of Pulsar 5.0 where it is another one, `<unset>` where it has none any more

The last two columns are missing where a key has neither.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

UNSET = "<unset>"
"""As a default of one release: none."""


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
    """The protection that a value beside the defaults asks for; empty for none."""
    v50: str = ""
    """Default of Pulsar 5.0, where it differs; UNSET where it has none."""

    def default_for(self, profile: str) -> str:
        """Returns the default in a profile, empty where the key is unset."""
        value = self.v50 if self.v50 and profile == "5.0" else self.defaults[0]
        return "" if value == UNSET else value


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
        """Values by key that are a default of some release, that of 4.2 first."""
        return {
            row.name: (*row.defaults, row.v50) if row.v50 not in ("", UNSET) else row.defaults
            for row in self.rows
        }

    @cached_property
    def asks_for(self) -> dict[str, str]:
        """Protections by key; a key that asks for none is missing."""
        return {row.name: row.asks_for for row in self.rows if row.asks_for}

    @cached_property
    def dynamic(self) -> frozenset[str]:
        """Keys that Pulsar lets change at run time."""
        return frozenset(row.name for row in self.rows if row.dynamic)
