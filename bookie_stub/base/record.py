"""Records: the framing that journal and entry log share, and BookKeeper's special journal records.

A record is a big-endian int32 length and that many bytes; of an entry these are (ledger, entry, LAC, length,
digest, payload) as received. The same memory, length included, stands in the write cache and goes to the journal and
to the entry log. Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct

Record = bytes | memoryview
"""An entry with its int32 length in front."""

LENGTH = struct.Struct(">i")
KEY = struct.Struct(">qq")
"""(ledger, entry): the first 16 bytes of an entry, and the key of the location index."""
LENGTH_BYTES = LENGTH.size
ENTRY_BYTES_MIN = 24
"""Ledger, entry and LAC: what BookKeeper insists on."""
_LAC = struct.Struct(">q")
EXPLICIT_LAC_BYTES_MIN = KEY.size
"""Ledger and LAC; a digest of the writer's follows."""
RECORD_KEY = slice(LENGTH_BYTES, LENGTH_BYTES + KEY.size)

MASTER_KEY_ID = -0x1000
FENCE_ID = -0x2000
FORCE_ID = -0x4000
EXPLICIT_LAC_ID = -0x8000
DELETE_ID = -0x20000
"""Ours: the ledger was deleted. BookKeeper skips special records that it does not know with a warning."""

MASTER_KEY_BYTES = 20
UNSET_KEY = bytes(MASTER_KEY_BYTES)
"""A stored key of zeros counts as not yet known and is replaced by the first key presented."""


def frame(entry: bytes) -> bytes:
    """The record of a whole entry."""
    return LENGTH.pack(len(entry)) + entry


def master_key_record(ledger_id: int, master_key: bytes) -> bytes:
    return frame(KEY.pack(ledger_id, MASTER_KEY_ID) + LENGTH.pack(len(master_key)) + master_key)


def fence_record(ledger_id: int) -> bytes:
    return frame(KEY.pack(ledger_id, FENCE_ID))


def explicit_lac_record(ledger_id: int, body: bytes) -> bytes:
    return frame(KEY.pack(ledger_id, EXPLICIT_LAC_ID) + LENGTH.pack(len(body)) + body)


def delete_record(ledger_id: int) -> bytes:
    return frame(KEY.pack(ledger_id, DELETE_ID))


def lac_of(entry: bytes, start: int = 0) -> int:
    """What the entry's writer knew as confirmed when it sent the entry, which begins at `start`."""
    lac: int = _LAC.unpack_from(entry, start + KEY.size)[0]
    return lac


def explicit_lac_of(body: bytes) -> int:
    """-1 for a body that is too short to say."""
    return int(KEY.unpack_from(body)[1]) if len(body) >= EXPLICIT_LAC_BYTES_MIN else -1


def special_body(record: bytes) -> bytes:
    """The length-prefixed bytes of a master key or explicit LAC record. ValueError when they are cut."""
    start = LENGTH_BYTES + KEY.size
    if len(record) < start + LENGTH_BYTES:
        raise ValueError("special record without a body")
    (size,) = LENGTH.unpack_from(record, start)
    body = record[start + LENGTH_BYTES : start + LENGTH_BYTES + size]
    if size < 0 or len(body) != size:
        raise ValueError("special record with a cut body")
    return body
