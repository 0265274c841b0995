"""Bytes of a backlog, by the sizes of ledgers and the mean size of their entries. Pure: no entry is read."""

from __future__ import annotations

from broker.managed_ledger.ledger_list import LedgerList
from foundation.model.position import Position


def bytes_after(ledgers: LedgerList, position: Position) -> int:
    """Returns the bytes of the entries after the position; exact but for the ledger that it stands in."""
    total = 0
    for info in ledgers.infos():
        if info.ledger_id > position.ledger_id:
            total += info.size_bytes
        elif info.ledger_id == position.ledger_id and info.entries:
            left = info.entries - 1 - min(position.entry_id, info.entries - 1)
            total += info.size_bytes * left // info.entries
    return total


def position_leaving(ledgers: LedgerList, bytes_max: int) -> Position:
    """Returns the first position after which at most so many bytes stand: (first ledger, -1) when all of them fit."""
    left = bytes_max
    for info in reversed(ledgers.infos()):
        if info.size_bytes > left:
            # Rounded down: one entry more would be above the limit.
            kept = info.entries * max(left, 0) // info.size_bytes
            return Position(info.ledger_id, info.entries - 1 - kept)
        left -= info.size_bytes
    return Position(ledgers.infos()[0].ledger_id, -1)
