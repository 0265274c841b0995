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

"ackedPages": {"5": ["eJxjY…", …]} in the place of "acked" where that would be long: texts per ledger. Each is base64 of
zlib of up to 4096 pages: first their numbers as unsigned integers of 32 bits, then their bits, 32 bytes each, all
little-endian. Bit n of page p set = entry 256 p + n acknowledged. A million ranges take 0.02 to 3.8 MB so.

These texts and paths are a file format: existing stores have them, so they never change.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import quote, unquote

from broker.managed_ledger.ledger_list import LedgerInfo
from foundation.model.errors import MetadataError
from foundation.model.position import Position

READABLE_PAGES_MAX = 64
"""Pages of acknowledged entries up to which they are stored as text that a person can read."""
_PAGE_BITS = 8
_PAGE_BYTES = 32
_PAGES_PER_TEXT = 4096
"""Pages that are packed by one call, which holds the interpreter: about a millisecond."""
NO_NUMBERS: Mapping[str, int] = MappingProxyType({})
"""A cursor's `properties` without any."""
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})
"""The same for texts: of a cursor, a producer, a consumer. One object, because nearly all of them have none."""
ROOT = "/managed-ledgers"
"""Pulsar's path, below which its tools look for managed ledgers."""


@dataclass(slots=True)
class ManagedLedgerInfo:
    """The stored state of a managed ledger."""

    ledgers: list[LedgerInfo] = field(default_factory=list)
    """In order, the current one last."""
    properties: dict[str, str] = field(default_factory=dict)
    """`index` and `brokerTimestamp` of the last entry (PIP-70), and the topic's own."""
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
    """(ledger, first entry, bits) as `RangeSet.lowest_pages` yields them: a page of 256 entries each, in order."""
    batches: list[tuple[Position, int]] = field(default_factory=list)
    """Partly acknowledged batches with one bit per message, set = not acknowledged."""
    cursor_properties: Mapping[str, str] = field(default_factory=dict)
    """Text that the subscription keeps, whatever its position (Pulsar's subscription properties)."""
    left_out: int = 0
    """Acknowledged entries that the limits left out; not stored."""
    batches_left_out: int = 0
    """Batches acknowledged in part that the limits left out; not stored."""


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
    if len(info.acked) > READABLE_PAGES_MAX:
        value["ackedPages"] = _packed(info.acked)
    elif info.acked:
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
            dict(found["properties"]) if found.get("properties") else NO_NUMBERS,
            [
                (int(ledger_id), int(first), int(bits, 16))
                for ledger_id, pages in found.get("acked", {}).items()
                for first, bits in pages.items()
            ]
            + list(_unpacked(found.get("ackedPages", {}))),
            [(Position(ledger, entry), int(bits, 16)) for ledger, entry, bits in found.get("batches", [])],
            dict(found["cursorProperties"]) if found.get("cursorProperties") else NO_PROPERTIES,
        )
    except (ValueError, KeyError, TypeError, AttributeError, zlib.error, struct.error) as error:
        raise MetadataError(f"a cursor's metadata cannot be read: {error!r}") from error


def _packed(acked: list[tuple[int, int, int]]) -> dict[int, list[str]]:
    """Return the value of "ackedPages"."""
    texts: dict[int, list[str]] = {}
    by_ledger: dict[int, list[tuple[int, int]]] = {}
    for ledger_id, first, bits in acked:
        by_ledger.setdefault(ledger_id, []).append((first >> _PAGE_BITS, bits))
    for ledger_id, pages in by_ledger.items():
        for start in range(0, len(pages), _PAGES_PER_TEXT):
            some = pages[start : start + _PAGES_PER_TEXT]
            numbers = struct.pack(f"<{len(some)}I", *[number for number, _ in some])
            content = b"".join([bits.to_bytes(_PAGE_BYTES, "little") for _, bits in some])
            # Level 1: higher ones take several times as long for a few percent.
            text = base64.b64encode(zlib.compress(numbers + content, 1)).decode()
            texts.setdefault(ledger_id, []).append(text)
    return texts


def _unpacked(texts: dict[str, list[str]]) -> Iterator[tuple[int, int, int]]:
    """Yield (ledger, first entry, bits) of the value of "ackedPages"."""
    for ledger_id, packed in texts.items():
        for text in packed:
            content = zlib.decompress(base64.b64decode(text, validate=True))
            count = len(content) // (4 + _PAGE_BYTES)
            # Also refuses a text that was cut off.
            numbers = struct.unpack(f"<{count}I{count * _PAGE_BYTES}x", content)
            for place, number in enumerate(numbers):
                at = 4 * count + _PAGE_BYTES * place
                bits = int.from_bytes(content[at : at + _PAGE_BYTES], "little")
                yield int(ledger_id), number << _PAGE_BITS, bits


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
