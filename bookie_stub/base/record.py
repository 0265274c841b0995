"""Records: the framing that journal and entry logs share.

The journal's special records are here too.

```
record    int32 size   `size` bytes                                                     big-endian
entry     ledger  entry  lastAddConfirmed  length  digest  payload                      the bytes of a plain record
          int64   int64  int64             int64
special   ledger  id < 0                                                                the bytes of a special record
          int64   int64       [int32 size, body]
```

The law of this file: an entry is framed once, when it arrives. The same memory, size field included, stands in the
write cache, is written to the journal, and is appended to an entry log; nothing on that way encodes it again.
A special record has a negative id in the place of the entry id, as at BookKeeper (`Journal.java`). Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct

Record = bytes | memoryview
"""An entry, or several of them, each with its int32 size in front."""

LENGTH = struct.Struct(">i")
"""The size field of a record; the four bytes of the field itself are not counted."""
KEY = struct.Struct(">qq")
"""(ledger, entry): the first 16 bytes of an entry, and the key of the location index."""
LENGTH_BYTES = LENGTH.size
"""Bytes of a record's size field."""
ENTRY_BYTES_MIN = 24
"""Bytes of ledger, entry and LAC: BookKeeper refuses shorter entries (EBADREQ), and so do we."""
_LAC = struct.Struct(">q")
EXPLICIT_LAC_BYTES_MIN = KEY.size
"""Bytes of ledger and LAC in the body of a WRITE_LAC; the writer's digest of 0 to 20 bytes follows."""
RECORD_KEY = slice(LENGTH_BYTES, LENGTH_BYTES + KEY.size)
"""The place of the key in a record."""

MASTER_KEY_ID = -0x1000
"""Special id: the ledger's master key follows."""
FENCE_ID = -0x2000
"""Special id: the ledger is fenced."""
FORCE_ID = -0x4000
"""Special id: BookKeeper's force marker. It begins a journal file on a disk without space; a replay passes over it."""
EXPLICIT_LAC_ID = -0x8000
"""Special id: the body of a WRITE_LAC follows."""
DELETE_ID = -0x20000
"""Special id, ours: the ledger was deleted. BookKeeper's replay skips unknown special records with a warning."""

MASTER_KEY_BYTES = 20
"""A master key is a SHA-1 of the ledger's password."""
UNSET_KEY = bytes(MASTER_KEY_BYTES)
"""The stored key of a ledger whose key is unknown; the first key presented replaces it."""


def frame(entry: bytes) -> bytes:
    """Returns the record of one entry."""
    return LENGTH.pack(len(entry)) + entry


# The special records carry no digest of their own: BookKeeper's replay reads exactly these bytes.
def master_key_record(ledger_id: int, master_key: bytes) -> bytes:
    """Returns the special record that carries a ledger's master key."""
    return frame(KEY.pack(ledger_id, MASTER_KEY_ID) + LENGTH.pack(len(master_key)) + master_key)


def fence_record(ledger_id: int) -> bytes:
    """Returns the special record that fences a ledger."""
    return frame(KEY.pack(ledger_id, FENCE_ID))


def explicit_lac_record(ledger_id: int, body: bytes) -> bytes:
    """Returns the special record that carries the body of a WRITE_LAC."""
    return frame(KEY.pack(ledger_id, EXPLICIT_LAC_ID) + LENGTH.pack(len(body)) + body)


def delete_record(ledger_id: int) -> bytes:
    """Returns the special record that says that a ledger was deleted."""
    return frame(KEY.pack(ledger_id, DELETE_ID))


def force_record() -> bytes:
    """Returns a special record without a meaning."""
    return frame(KEY.pack(0, FORCE_ID))


def lac_of(entry: bytes, start: int = 0) -> int:
    """Returns the last add confirmed (LAC) in the entry at `start`.

    It is what the writer knew when it sent the entry, so it is lower than the entry's own id.
    """
    lac: int = _LAC.unpack_from(entry, start + KEY.size)[0]
    return lac


def explicit_lac_of(body: bytes) -> int:
    """Returns the LAC in the body of a WRITE_LAC. It is -1 for a body that is too short for one."""
    # The body is (ledger, LAC, digest), so the LAC stands where an entry has its id.
    return int(KEY.unpack_from(body)[1]) if len(body) >= EXPLICIT_LAC_BYTES_MIN else -1


def special_body(record: bytes) -> bytes:
    """Returns the body of a special record (master key, explicit LAC).

    ValueError when the record is shorter than its body's size field says.
    """
    start = LENGTH_BYTES + KEY.size
    if len(record) < start + LENGTH_BYTES:
        raise ValueError(f"special record of {len(record)} bytes has no body")
    (size,) = LENGTH.unpack_from(record, start)
    body = record[start + LENGTH_BYTES : start + LENGTH_BYTES + size]
    if size < 0 or len(body) != size:
        raise ValueError(f"special record has {len(body)} of {size} bytes of its body")
    return body
