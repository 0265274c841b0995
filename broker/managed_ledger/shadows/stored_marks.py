"""Positions of cursors as they are stored, read without taking them from a broker that has them open."""

from __future__ import annotations

from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.managed_ledger_info import SHADOW_SOURCE, managed_ledger_key, read_cursors
from broker.managed_ledger.records.pulsar_records import decode_cursor, decode_ledger_list
from foundation.model.position import Position


async def source_in_store(environment: ManagedLedgerEnvironment, name: str) -> str | None:
    """Returns the stored name of a shadow's source; None for a managed ledger that is no shadow. Raises MetadataError."""
    found = await environment.metadata.get(managed_ledger_key(name))
    if found is None:
        return None
    info = decode_ledger_list(found.value)
    return None if info.deleted else info.properties.get(SHADOW_SOURCE)


async def stored_marks(environment: ManagedLedgerEnvironment, name: str) -> dict[str, Position]:
    """Returns the stored mark-delete positions of all cursors by name, or positions before them. Raises MetadataError."""
    nodes = await read_cursors(environment.metadata, name)
    # A cursor whose position is in a ledger: its node has the position as of the ledger's begin, which is not later.
    return {cursor_name: decode_cursor(node.value).info.mark_delete for cursor_name, node in nodes}
