"""Reads a managed ledger from a position to its end, for recovery. The entry cache is not involved."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bookkeeper.ensembles.awaited_reads import read_entries
from broker.managed_ledger.managed_ledger import ManagedLedger
from foundation.model.entry import Entry
from foundation.model.position import Position


async def entries_after(ledger: ManagedLedger, position: Position) -> AsyncIterator[Entry]:
    """Yields the confirmed entries after the position, in order. Raises as `Ledgers.read`."""
    context = ledger.context
    following = ledger.ledgers.next_valid(position)
    while following <= ledger.last_confirmed and following.entry_id <= ledger.ledgers.last_entry(
        following.ledger_id
    ):
        last = ledger.ledgers.last_entry(following.ledger_id)
        entries = await read_entries(
            context.environment.ledgers, *following, last, context.settings.read_bytes_max
        )
        for entry in entries:
            yield entry
        following = ledger.ledgers.next_valid(entries[-1].position)
