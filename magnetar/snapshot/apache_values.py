"""The values that Apache Pulsar keeps of logs, cursors and schemas: protocol buffers, read field by field.

    log      ledgers 1 (id 1, entries 2, size 3, closed 4), terminated 2
    cursor   its ledger 1, mark-delete ledger 2 and entry 3, acked ranges 4 (above 1, up to 2), properties 5 (name 1,
             value 2)
    schema   newest 1 and all 2, each with a position 2 (ledger 1, entry 2)

While a cursor is open its acks are in its ledger and not here; then the ranges are unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from protocol.varint import read_varint

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
NO_LEDGER = -1
COMPACTED = "CompactedTopicLedger"
"""The property of the compaction's cursor that names the compacted ledger."""

Fields = dict[int, list[int | bytes]]


class ApacheLedger(NamedTuple):
    ledger_id: int
    entries: int
    size_bytes: int
    closed_ms: int
    """0 = open."""


class ApacheCursor(NamedTuple):
    cursor_ledger: int
    mark_ledger: int
    mark_entry: int
    acked: list[tuple[int, int, int]]
    """(ledger, behind this entry, up to and with this one)"""
    compacted_ledger: int | None


def log_ledgers(value: bytes) -> list[ApacheLedger]:
    """ValueError or IndexError where it is no such message."""
    return [
        ApacheLedger(_number(item, 1), _number(item, 2, 0), _number(item, 3, 0), _number(item, 4, 0))
        for item in _messages(fields(value), 1)
    ]


def cursor(value: bytes) -> ApacheCursor:
    found = fields(value)
    acked = []
    for item in _messages(found, 4):
        low, high = _messages(item, 1)[0], _messages(item, 2)[0]
        acked.append(
            (
                _number(high, 1),
                _number(low, 2) if _number(low, 1) == _number(high, 1) else -1,
                _number(high, 2),
            )
        )
    compacted = [_number(item, 2) for item in _messages(found, 5) if item.get(1) == [COMPACTED.encode()]]
    return ApacheCursor(
        _number(found, 1),
        _number(found, 2, -1),
        _number(found, 3, -1),
        acked,
        compacted[0] if compacted else None,
    )


def schema_ledgers(value: bytes) -> tuple[int, list[int]]:
    """How many versions there are, and the ledgers that hold them."""
    found = fields(value)
    index = _messages(found, 2)
    entries = index + _messages(found, 1)
    return len(index), sorted({_number(_messages(entry, 2)[0], 1) for entry in entries})


def fields(value: bytes) -> Fields:
    found: Fields = {}
    for number, content in _walk(value):
        found.setdefault(number, []).append(content)
    return found


def _walk(value: bytes) -> Iterator[tuple[int, int | bytes]]:
    offset = 0
    while offset < len(value):
        tag, offset = read_varint(value, offset)
        kind = tag & 7
        if kind == _VARINT:
            number, offset = read_varint(value, offset)
            yield tag >> 3, number - 2**64 if number >> 63 else number
            continue
        if kind == _BYTES:
            size, offset = read_varint(value, offset)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"field {tag >> 3} has wire type {kind}")
        if offset + size > len(value):
            raise ValueError(f"field {tag >> 3} is cut off")
        yield tag >> 3, value[offset : offset + size]
        offset += size


def _messages(found: Fields, number: int) -> list[Fields]:
    return [fields(item) for item in found.get(number, ()) if isinstance(item, bytes)]


def _number(found: Fields, number: int, default: int | None = None) -> int:
    content = found.get(number, [default])[0]
    if not isinstance(content, int):
        raise ValueError(f"field {number} is missing")
    return content
