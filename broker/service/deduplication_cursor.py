"""Where deduplication keeps what it knows: a cursor of its own, whose snapshot carries the sequence ids (PIP-6).

The cursor is acknowledged through the entry up to which its properties hold; what stands behind it is read again
when the topic is opened, and kept again only when it was much: an acknowledgement may let ledgers be trimmed that
readers want to come back to.
"""

from __future__ import annotations

from broker.managed_ledger.managed_ledger import ManagedLedger
from broker.model.position import EARLIEST
from broker.service.deduplication import Deduplication
from broker.service.dispatcher import facts_of
from broker.service.settings import ServiceSettings

DEDUPLICATION_CURSOR = "pulsar.dedup"


async def load_deduplication(ledger: ManagedLedger, settings: ServiceSettings) -> Deduplication:
    cursor = await ledger.cursors.open(DEDUPLICATION_CURSOR, EARLIEST)
    known = Deduplication(cursor.acks.properties, producers_max=settings.deduplication_producers_max)
    position = ledger.ledgers.next_valid(cursor.mark_delete_position)
    while position <= ledger.last_confirmed:
        facts = facts_of(await ledger.read_entry(position))
        if facts is not None and facts.chunk >= facts.chunks - 1:
            known.stored(facts.producer_name, facts.sequence_id, facts.highest_sequence_id)
        position = ledger.ledgers.next_valid(position)
    if known.entries_since_snapshot >= settings.deduplication_snapshot_entries:
        cursor.acknowledge_cumulative(ledger.last_confirmed, properties=known.snapshot())
    return known
