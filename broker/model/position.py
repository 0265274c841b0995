"""Position: where an entry stands, (ledger id, entry id), ordered as the entries were added."""

from __future__ import annotations

from typing import Final, NamedTuple


class Position(NamedTuple):
    ledger_id: int
    entry_id: int

    def __str__(self) -> str:
        return f"{self.ledger_id}:{self.entry_id}"


EARLIEST: Final = Position(-1, -1)
"""Before every entry; on the wire both halves are 2^64 - 1."""

LATEST: Final = Position(2**63 - 1, 2**63 - 1)
"""Behind every entry, whatever is added later."""
