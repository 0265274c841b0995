"""What the metadata store keeps of a log and of a cursor, as JSON that a person can read.

Log, under `/managed-ledgers/<name>`:
    {"ledgers": [{"id": 5, "entries": 50000, "size": 51200000, "closed": 1700000000000}, {"id": 9}],
     "properties": {"index": "49999"}, "terminated": [9, 12], "deleting": [3], "deleted": true}
A ledger without "closed" (ms since 1970) was open when this was written: its end is in the bookie. "terminated",
"deleting" (ledgers whose removal was decided and may not have been finished) and "deleted" (the whole log)
are there only when they say something.

Cursor, under `/managed-ledgers/<name>/<percent-encoded cursor name>`:
    {"markDelete": [5, 17], "properties": {"x": 1}, "acked": {"5": {"0": "280000", "256": "f"}},
     "batches": [[5, 41, "6"]]}
"acked": entries beyond the mark-delete position, per ledger and first entry a number in hexadecimal, in which
bit n set = entry first + n acknowledged (above: 19, 21, 256 to 259). "batches": partly acknowledged batches,
the last part in hexadecimal too, one bit per message, set = not acknowledged yet.
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


@dataclass(slots=True)
class LogInfo:
    ledgers: list[LedgerInfo] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    terminated: Position | None = None
    deleting: list[int] = field(default_factory=list)
    deleted: bool = False


@dataclass(slots=True)
class CursorSnapshot:
    mark_delete: Position
    properties: Mapping[str, int] = field(default_factory=dict)
    acked: list[tuple[int, int, int]] = field(default_factory=list)
    """(ledger, first entry, bits) as `RangeSet.lowest_pages` yields them."""
    batches: list[tuple[Position, int]] = field(default_factory=list)


def log_key(name: str) -> str:
    return f"{ROOT}/{name}"


def cursor_key(log_name: str, cursor_name: str) -> str:
    return f"{ROOT}/{log_name}/{quote(cursor_name, safe='')}"


def cursor_name_of(last_part: str) -> str:
    return unquote(last_part)


def encode_log(info: LogInfo) -> bytes:
    value: dict[str, object] = {"ledgers": [_ledger_value(ledger) for ledger in info.ledgers]}
    if info.properties:
        value["properties"] = info.properties
    if info.terminated is not None:
        value["terminated"] = info.terminated
    if info.deleting:
        value["deleting"] = info.deleting
    if info.deleted:
        value["deleted"] = True
    return _dump(value)


def decode_log(value: bytes) -> LogInfo:
    """Raises MetadataError when the value is not what `encode_log` writes."""
    try:
        found = json.loads(value)
        return LogInfo(
            [
                LedgerInfo(item["id"], item.get("entries", 0), item.get("size", 0), item.get("closed"))
                for item in found["ledgers"]
            ],
            dict(found.get("properties", {})),
            Position(*found["terminated"]) if "terminated" in found else None,
            list(found.get("deleting", [])),
            found.get("deleted", False),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"a log's metadata cannot be read: {error!r}") from error


def encode_cursor(snapshot: CursorSnapshot) -> bytes:
    value: dict[str, object] = {"markDelete": snapshot.mark_delete}
    if snapshot.properties:
        value["properties"] = dict(snapshot.properties)
    if snapshot.acked:
        acked: dict[int, dict[int, str]] = {}
        for ledger_id, first, bits in snapshot.acked:
            acked.setdefault(ledger_id, {})[first] = f"{bits:x}"
        value["acked"] = acked
    if snapshot.batches:
        value["batches"] = [(*position, f"{bits:x}") for position, bits in snapshot.batches]
    return _dump(value)


def decode_cursor(value: bytes) -> CursorSnapshot:
    """Raises MetadataError when the value is not what `encode_cursor` writes."""
    try:
        found = json.loads(value)
        return CursorSnapshot(
            Position(*found["markDelete"]),
            dict(found.get("properties", {})),
            [
                (int(ledger_id), int(first), int(bits, 16))
                for ledger_id, pages in found.get("acked", {}).items()
                for first, bits in pages.items()
            ],
            [(Position(ledger, entry), int(bits, 16)) for ledger, entry, bits in found.get("batches", [])],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MetadataError(f"a cursor's metadata cannot be read: {error!r}") from error


def _ledger_value(ledger: LedgerInfo) -> dict[str, int]:
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
