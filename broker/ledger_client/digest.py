"""The digest that guards an entry from the broker that wrote it to the broker that reads it.

Stored entry: int64 ledger, int64 entry, int64 last add confirmed, int64 length (payload bytes of the ledger
up to and including this entry), uint32 CRC32C of those 32 bytes and the payload, payload.
"""

from __future__ import annotations

import hashlib
import struct

from crc32c import crc32c

from broker.errors import PersistenceError
from broker.ledger_client.ledger_client import EntryParts
from broker.model.entry import Buffer

HEADER = struct.Struct(">qqqq")
_CRC = struct.Struct(">I")
OVERHEAD_BYTES = HEADER.size + _CRC.size


def master_key(password: bytes) -> bytes:
    """The 20 bytes that every add and fence of a ledger must present."""
    return hashlib.sha1(b"ledger" + password).digest()


EMPTY_PASSWORD_KEY = master_key(b"")


def seal(ledger_id: int, entry_id: int, lac: int, length: int, header: bytes, body: Buffer) -> EntryParts:
    """Number the payload (`header` + `body`) and put the digest in front of it, without joining anything."""
    head = HEADER.pack(ledger_id, entry_id, lac, length)
    return (head + _CRC.pack(crc32c(body, crc32c(head + header))), header, body)


def check(ledger_id: int, entry_id: int, stored: bytes) -> memoryview:
    """The payload of a stored entry. PersistenceError names the entry whose bytes are not what was written."""
    view = memoryview(stored)
    if len(stored) < OVERHEAD_BYTES:
        raise PersistenceError(f"entry {ledger_id}:{entry_id} has only {len(stored)} bytes")
    if _CRC.unpack_from(stored, HEADER.size)[0] != crc32c(view[OVERHEAD_BYTES:], crc32c(view[: HEADER.size])):
        raise PersistenceError(f"entry {ledger_id}:{entry_id}: digest does not match its bytes")
    if HEADER.unpack_from(stored)[:2] != (ledger_id, entry_id):
        raise PersistenceError(f"asked for entry {ledger_id}:{entry_id}, got another one")
    return view[OVERHEAD_BYTES:]


def last_add_confirmed(stored: bytes) -> int:
    lac: int = HEADER.unpack_from(stored)[2]
    return lac


def ledger_length(stored: bytes) -> int:
    """Payload bytes of the ledger up to and including this entry."""
    length: int = HEADER.unpack_from(stored)[3]
    return length
