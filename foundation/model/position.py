"""Position: the place of an entry, (ledger id, entry id)."""

from __future__ import annotations

from typing import Final, NamedTuple

PositionKey = tuple[int, int]
"""(ledger id, entry id), as dictionaries and sorted lists have it; a `Position` is one."""


class Position(NamedTuple):
    """The place of one entry; compares in the order of the adds."""

    ledger_id: int
    """Rises from ledger to ledger of a managed ledger."""
    entry_id: int
    """Number within the ledger, from 0; -1 = before its first entry."""

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST: Final = Position(-1, -1)
"""Before every entry; on the wire both numbers are 2^64 - 1."""

LATEST: Final = Position(2**63 - 1, 2**63 - 1)
"""After every entry, whatever is added later."""
