"""ReadView: what cursors of one managed ledger see of it, where that is less than all confirmed entries.

A topic with transactions has one (`broker/service/transactions`): its readers stop before the oldest open transaction
and do not get the entries of aborted ones. Other managed ledgers have none, which costs their cursors one test per run
of entries.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from broker.model.entry import Entry
from broker.model.position import Position


class Divided(NamedTuple):
    """Entries that a cursor has taken, by their fate."""

    shown: list[Entry]
    """To be delivered."""
    left_out: list[Entry]
    """Not to be delivered now."""
    dead: list[tuple[int, int]]
    """Positions, all of entries in `left_out`, that no reader will ever get: the cursor acknowledges them."""


class ReadView(Protocol):
    """Limits reading and hides entries."""

    def last_readable(self, last_confirmed: Position) -> Position:
        """Return the last entry that may be read, at or before `last_confirmed`; never goes back."""
        ...

    def divide(self, cursor_name: str, taken: list[Entry]) -> Divided:
        """Divide consecutive entries of one ledger; `taken` may itself be the first list."""
        ...
