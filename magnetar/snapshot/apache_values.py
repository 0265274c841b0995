"""Reads the values that Apache Pulsar keeps of logs, cursors and schemas, for a snapshot's tables.

The messages are those of `protocol/pulsar_metadata.proto`. While a cursor is open its acknowledgements are in its cursor
ledger; the node then has none, and a snapshot calls them unknown.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from broker.managed_ledger.records.pulsar_records import unwrapped
from protocol.pulsar_metadata_pb2 import ManagedCursorInfo, ManagedLedgerInfo, SchemaLocator

NO_LEDGER = -1
"""The cursor ledger of a closed cursor."""
COMPACTED_LEDGER = "CompactedTopicLedger"
"""The property of the compaction's cursor that names the compacted ledger; in Magnetar's stores too."""

_AnyMessage = TypeVar("_AnyMessage", bound=Message)


class ApacheLedger(NamedTuple):
    """One ledger of a log."""

    ledger_id: int
    """BookKeeper's id."""
    entries: int
    """0 while the ledger is open."""
    size_bytes: int
    """0 while the ledger is open."""
    closed_ms: int
    """Milliseconds since the epoch; 0 = open."""


class ApacheCursor(NamedTuple):
    """One cursor of a log, as its node tells it."""

    cursor_ledger: int
    """NO_LEDGER when the cursor is closed; only then `acked` is complete."""
    mark_ledger: int
    """Ledger of the mark-delete position."""
    mark_entry: int
    """Entry of the mark-delete position; -1 = before the ledger's first entry."""
    acked: list[tuple[int, int, int]]
    """(ledger, entry before the first acknowledged one, last acknowledged entry)"""
    compacted_ledger: int | None
    """The ledger of compacted messages, for the cursor of the compaction."""


def log_ledgers(value: bytes) -> list[ApacheLedger]:
    """Returns the ledgers of a log in their order. Raises ValueError for other bytes."""
    return [
        ApacheLedger(ledger.ledgerId, ledger.entries, ledger.size, ledger.timestamp)
        for ledger in _parsed(ManagedLedgerInfo(), unwrapped(value)).ledgerInfo
    ]


def cursor(value: bytes) -> ApacheCursor:
    """Returns the cursor. Raises ValueError for other bytes."""
    info = _parsed(ManagedCursorInfo(), unwrapped(value))
    acked = []
    for each in info.individualDeletedMessages:
        low, high = each.lowerEndpoint, each.upperEndpoint
        # A range may begin in the ledger before; in this one it then begins with the first entry.
        before = low.entryId if low.ledgerId == high.ledgerId else -1
        acked.append((high.ledgerId, before, high.entryId))
    return ApacheCursor(
        info.cursorsLedgerId,
        info.markDeleteLedgerId if info.HasField("markDeleteLedgerId") else -1,
        info.markDeleteEntryId if info.HasField("markDeleteEntryId") else -1,
        acked,
        next((each.value for each in info.properties if each.name == COMPACTED_LEDGER), None),
    )


def schema_ledgers(value: bytes) -> tuple[int, list[int]]:
    """Returns the number of a schema's versions, and the ledgers that hold them. Raises ValueError for other bytes."""
    locator = _parsed(SchemaLocator(), value)
    entries = (*locator.index, locator.info)
    return len(locator.index), sorted({entry.position.ledgerId for entry in entries})


def _parsed(message: _AnyMessage, value: bytes) -> _AnyMessage:
    try:
        message.ParseFromString(value)
    except DecodeError as error:
        raise ValueError(f"{message.DESCRIPTOR.name} cannot be parsed: {error}") from error
    # Parsing alone accepts bytes without the required fields, as a compressed value may look.
    if not message.IsInitialized():
        raise ValueError(f"{message.DESCRIPTOR.name} lacks a required field")
    return message
