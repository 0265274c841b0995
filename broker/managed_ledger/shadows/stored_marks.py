"""Positions of cursors and ledgers of logs as they are stored, read without taking them from a broker that has them open."""

from __future__ import annotations

from bookkeeper.ensembles.awaited_reads import read_entries
from bookkeeper.ensembles.open_end import OpenEnd, find_open_end
from bookkeeper.ensembles.own_ledger import read_metadata
from broker.managed_ledger.cursor_record import NO_LEDGER
from broker.managed_ledger.environment import ManagedLedgerEnvironment
from broker.managed_ledger.ledger_list import LedgerList
from broker.managed_ledger.managed_ledger_info import (
    SHADOW_SOURCE,
    CursorInfo,
    cursor_key,
    managed_ledger_key,
    read_cursors,
)
from broker.managed_ledger.records.pulsar_records import decode_cursor, decode_ledger_list, decode_position
from foundation.model.errors import BrokerError
from foundation.model.position import Position


async def source_in_store(environment: ManagedLedgerEnvironment, name: str) -> str | None:
    """Returns the stored name of a shadow's source; None for a managed ledger that is no shadow. Raises MetadataError."""
    found = await environment.metadata.get(managed_ledger_key(name))
    if found is None:
        return None
    info = decode_ledger_list(found.value)
    return None if info.deleted else info.properties.get(SHADOW_SOURCE)


async def stored_ledgers(environment: ManagedLedgerEnvironment, name: str) -> LedgerList | None:
    """Returns the stored ledgers of a log; None without any. Raises MetadataError, PersistenceError without its bookies."""
    found = await environment.metadata.get(managed_ledger_key(name))
    info = None if found is None else decode_ledger_list(found.value)
    if info is None or info.deleted or not info.ledgers:
        return None
    for one in info.ledgers:
        # A broker has it open, or was killed.
        if one.closed_at_ms is None and (
            metadata := await read_metadata(environment.metadata, one.ledger_id)
        ):
            nothing = OpenEnd(-1, 0)
            end = await find_open_end(one.ledger_id, metadata[0], environment.ledgers.bookies, nothing)
            one.entries, one.size_bytes = end.last_entry + 1, end.length
    return LedgerList(info.ledgers[:-1], info.ledgers[-1])


async def stored_marks(environment: ManagedLedgerEnvironment, name: str) -> dict[str, Position]:
    """Returns the stored mark-delete positions of all cursors by name, or positions before them. Raises MetadataError."""
    nodes = await read_cursors(environment.metadata, name)
    found = {cursor_name: await _stored(environment, node.value) for cursor_name, node in nodes}
    return {cursor_name: info.mark_delete for cursor_name, info in found.items()}


async def stored_cursor(
    environment: ManagedLedgerEnvironment, name: str, cursor_name: str
) -> CursorInfo | None:
    """Returns a cursor as it is stored, or as it was a while ago; None without one. Raises MetadataError."""
    node = await environment.metadata.get(cursor_key(name, cursor_name))
    return None if node is None else await _stored(environment, node.value)


async def _stored(environment: ManagedLedgerEnvironment, node: bytes) -> CursorInfo:
    stored = decode_cursor(node)
    if stored.ledger_id != NO_LEDGER:
        try:
            found = await _last_in(environment, stored.ledger_id)
        except BrokerError:
            found = None  # The node has the position as of the ledger's begin, which keeps more.
        if found is not None:
            info, has_texts = found
            if not has_texts:
                info.cursor_properties = stored.info.cursor_properties
            return info
    return stored.info


async def _last_in(environment: ManagedLedgerEnvironment, ledger_id: int) -> tuple[CursorInfo, bool] | None:
    """Returns the last position in a cursor's ledger, which its broker may be writing; None without an entry."""
    metadata = await read_metadata(environment.metadata, ledger_id)
    if metadata is None:
        return None
    end = await find_open_end(ledger_id, metadata[0], environment.ledgers.bookies, OpenEnd(-1, 0))
    if end.last_entry < 0:
        return None
    (entry,) = await read_entries(environment.ledgers, ledger_id, end.last_entry, end.last_entry, 1)
    return decode_position(b"".join((entry.header, entry.body)))
