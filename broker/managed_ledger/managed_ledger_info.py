"""The stored form of a managed ledger and of a cursor: JSON that a person can read, in the metadata store.

Managed ledger (Pulsar's ManagedLedgerInfo), under `/managed-ledgers/<name>`:
    {"ledgers": [{"id": 5, "entries": 50000, "size": 51200000, "closed": 1700000000000}, {"id": 9}],
     "properties": {"index": "49999"}, "terminated": [9, 12], "deleting": [3], "delayed": [7], "beside": [8],
     "created": 1690000000000, "deleted": true}
A ledger without "closed" (ms since 1970) was open when this was written: its end is in the bookie. "terminated",
"deleting" (ledgers whose removal was decided and may not be finished), "delayed" (ledgers that keep buckets of delayed
entries), "beside" (further ledgers that hold no part of the log: compacted ones) and "deleted" (the whole managed ledger)
are left out when they are empty or false, and "created" (ms since 1970) where an older version made the list.

Cursor (Pulsar's ManagedCursorInfo), under `/managed-ledgers/<name>/<percent-encoded cursor name>`:
    {"markDelete": [5, 17], "properties": {"x": 1}, "acked": {"5": {"0": "280000", "256": "f"}},
     "batches": [[5, 41, "6"]], "cursorProperties": {"team": "billing"}}
"acked": entries beyond the mark-delete position, per ledger and first entry a number in hexadecimal, in which
bit n set = entry first + n acknowledged (above: 19, 21, 256 to 259). "batches": partly acknowledged batches,
the last part in hexadecimal too, one bit per message, set = not acknowledged yet. "cursorProperties": text that the
subscription keeps beside its position, left out when there is none.

These texts and paths are a file format: existing stores have them, so they never change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.model.errors import MetadataError
from broker.model.position import Position

ROOT = "/managed-ledgers"
"""Pulsar's path, below which its tools look for managed ledgers."""


@dataclass(slots=True)
class ManagedLedgerInfo:
    """The stored state of a managed ledger."""

    ledgers: list[LedgerInfo] = field(default_factory=list)
    """In order, the current one last."""
    properties: dict[str, str] = field(default_factory=dict)
    """`index` (PIP-70) and the topic's own."""
    terminated: Position | None = None
    """The last entry, if no entry may follow."""
    deleting: list[int] = field(default_factory=list)
    """Ledgers that are out of the list and whose removal may not be finished."""
    delayed: list[int] = field(default_factory=list)
    """Ledgers that keep buckets of delayed entries; they have no messages."""
    deleted: bool = False
    """The managed ledger itself is being removed; an open finishes that first."""
    beside: list[int] = field(default_factory=list)
    """Ledgers that belong to it and hold no part of its log."""
    created_ms: int = 0
    """When it was made, ms since 1970; 0 = not known."""


@dataclass(slots=True)
class CursorInfo:
    """The stored state of a cursor."""

    mark_delete: Position
    """The last position up to which every entry is acknowledged."""
    properties: Mapping[str, int] = field(default_factory=dict)
    """Kept with the mark-delete position; deduplication keeps its sequence ids here."""
    acked: list[tuple[int, int, int]] = field(default_factory=list)
    """(ledger, first entry, bits) as `RangeSet.lowest_pages` yields them."""
    batches: list[tuple[Position, int]] = field(default_factory=list)
    """Partly acknowledged batches with one bit per message, set = not acknowledged."""
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    """Text that the subscription keeps, whatever its position (Pulsar's subscription properties)."""


def managed_ledger_key(name: str) -> str:
    """Return the metadata store's key of a managed ledger."""
    return f"{ROOT}/{name}"


def cursor_key(ledger_name: str, cursor_name: str) -> str:
    """Return the key of a cursor, below its managed ledger's key."""
    # A name may hold a slash, which would be one more level of keys.
    return f"{ROOT}/{ledger_name}/{quote(cursor_name, safe='')}"


def cursor_name_of(last_part: str) -> str:
    """Return the cursor's name from the last part of its key."""
    return unquote(last_part)


def encode_ledger_info(info: ManagedLedgerInfo) -> bytes:
    """Return the stored value of a managed ledger."""
    value: dict[str, object] = {"ledgers": [_ledger_value(ledger) for ledger in info.ledgers]}
    if info.properties:
        value["properties"] = info.properties
    if info.terminated is not None:
        value["terminated"] = info.terminated
    if info.deleting:
        value["deleting"] = info.deleting
    if info.delayed:
        value["delayed"] = info.delayed
    if info.beside:
        value["beside"] = info.beside
    if info.created_ms:
        value["created"] = info.created_ms
    if info.deleted:
        value["deleted"] = True
    return _dump(value)


def decode_ledger_info(value: bytes) -> ManagedLedgerInfo:
    """Parse the stored value of a managed ledger. Raises MetadataError."""
    try:
        found = json.loads(value)
        return ManagedLedgerInfo(
            [
                LedgerInfo(item["id"], item.get("entries", 0), item.get("size", 0), item.get("closed"))
                for item in found["ledgers"]
            ],
            dict(found.get("properties", {})),
            Position(*found["terminated"]) if "terminated" in found else None,
            list(found.get("deleting", [])),
            list(found.get("delayed", [])),
            found.get("deleted", False),
            list(found.get("beside", [])),
            found.get("created", 0),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"a managed ledger's metadata cannot be read: {error!r}") from error


def encode_cursor_info(info: CursorInfo) -> bytes:
    """Return the stored value of a cursor."""
    value: dict[str, object] = {"markDelete": info.mark_delete}
    if info.properties:
        value["properties"] = dict(info.properties)
    if info.acked:
        acked: dict[int, dict[int, str]] = {}
        for ledger_id, first, bits in info.acked:
            acked.setdefault(ledger_id, {})[first] = f"{bits:x}"
        # JSON turns the numbers into text: its keys are texts, and most parsers lose bits of integers above 2**53.
        value["acked"] = acked
    if info.batches:
        value["batches"] = [(*position, f"{bits:x}") for position, bits in info.batches]
    if info.cursor_properties:
        value["cursorProperties"] = dict(info.cursor_properties)
    return _dump(value)


def decode_cursor_info(value: bytes) -> CursorInfo:
    """Parse the stored value of a cursor. Raises MetadataError."""
    try:
        found = json.loads(value)
        return CursorInfo(
            Position(*found["markDelete"]),
            dict(found.get("properties", {})),
            [
                (int(ledger_id), int(first), int(bits, 16))
                for ledger_id, pages in found.get("acked", {}).items()
                for first, bits in pages.items()
            ],
            [(Position(ledger, entry), int(bits, 16)) for ledger, entry, bits in found.get("batches", [])],
            dict(found.get("cursorProperties", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"a cursor's metadata cannot be read: {error!r}") from error


def _ledger_value(ledger: LedgerInfo) -> dict[str, int]:
    # Counts of an open ledger would be out of date at once; a reader asks the bookie for its end.
    if ledger.closed_at_ms is None:
        return {"id": ledger.ledger_id}
    return {
        "id": ledger.ledger_id,
        "entries": ledger.entries,
        "size": ledger.size_bytes,
        "closed": ledger.closed_at_ms,
    }


def _dump(value: dict[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
