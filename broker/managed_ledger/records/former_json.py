"""Reads lists and cursors as versions up to 0.2.0 stored them: as JSON. The next write of each stores Pulsar's record.

Managed ledger:
    {"ledgers": [{"id": 5, "entries": 50000, "size": 51200000, "closed": 1700000000000}, {"id": 9}],
     "properties": {"index": "49999"}, "terminated": [9, 12], "deleting": [3], "delayed": [7], "beside": [8],
     "created": 1690000000000, "deleted": true}
A ledger without "closed" (ms since 1970) was open when this was written. All but "ledgers" may be left out.

Cursor:
    {"markDelete": [5, 17], "properties": {"x": 1}, "acked": {"5": {"0": "280000", "256": "f"}},
     "batches": [[5, 41, "6"]], "cursorProperties": {"team": "billing"}}
"acked": per ledger and first entry a number in hexadecimal, in which bit n set = entry first + n acknowledged. "batches":
partly acknowledged batches, the last part in hexadecimal too, one bit per message, set = not acknowledged yet.
"ackedPages": {"5": ["eJxjY…", …]} in the place of "acked": texts per ledger, each the base64 of one PackedPages.pages.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import CursorInfo, ManagedLedgerInfo
from broker.managed_ledger.records.packed_pages import unpack_pages
from broker.managed_ledger.records.pulsar_records import Page
from foundation.model.errors import MetadataError
from foundation.model.position import Position


def decode_ledger_list(value: bytes) -> ManagedLedgerInfo:
    """Returns the managed ledger of a value. Raises MetadataError."""
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


def decode_cursor(value: bytes) -> CursorInfo:
    """Returns the cursor of a value. Raises MetadataError."""
    try:
        found = json.loads(value)
        return CursorInfo(
            Position(*found["markDelete"]),
            dict(found.get("properties", {})),
            [
                (int(ledger_id), int(first), int(bits, 16))
                for ledger_id, pages in found.get("acked", {}).items()
                for first, bits in pages.items()
            ]
            + list(_unpacked(found.get("ackedPages", {}))),
            [(Position(ledger, entry), int(bits, 16)) for ledger, entry, bits in found.get("batches", [])],
            dict(found.get("cursorProperties", {})),
        )
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise MetadataError(f"a cursor's metadata cannot be read: {error!r}") from error


def _unpacked(texts: dict[str, list[str]]) -> Iterator[Page]:
    for ledger_id, packed in texts.items():
        for text in packed:
            yield from unpack_pages(int(ledger_id), base64.b64decode(text, validate=True))
