"""Sizes of backlogs in bytes, by arithmetic over the ledgers: an entry counts as its ledger's mean."""

from __future__ import annotations

from broker.managed_ledger.ledger_list import LedgerList
from broker.model.position import Position


def bytes_behind(ledgers: LedgerList, position: Position) -> int:
    """Returns the stored bytes behind a position. One in a ledger that is not in the list counts as the earliest."""
    if position.ledger_id not in ledgers:
        return ledgers.size_bytes
    size = 0
    for info in ledgers.infos():
        if info.ledger_id > position.ledger_id:
            size += info.size_bytes
        elif info.ledger_id == position.ledger_id and info.entries:
            behind = max(0, info.entries - 1 - max(-1, position.entry_id))
            size += info.size_bytes * behind // info.entries
    return size
