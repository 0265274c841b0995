"""The digest that guards an entry from the broker that wrote it to the broker that reads it.

Stored entry: int64 ledger, int64 entry, int64 last add confirmed, int64 length (payload bytes of the ledger
up to and including this entry), digest of those 32 bytes and the payload, payload. The digest is by default a CRC32C of
4 bytes; ledgers may have a CRC32 (8 bytes), an HMAC-SHA1 under the ledger's password (20 bytes, "MAC") or none. Bookies
never look at it.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from zlib import crc32

from crc32c import crc32c

from broker.ledger_client.ledger_client import EntryParts
from broker.model.entry import Buffer
from broker.model.errors import PersistenceError
from protocol.ledger_metadata import DigestType

HEADER = struct.Struct(">qqqq")
_CRC = struct.Struct(">I")
_LONG_CRC = struct.Struct(">Q")
OVERHEAD_BYTES = HEADER.size + _CRC.size
"""Of an entry with CRC32C."""

Seal = Callable[[int, int, int, int, bytes, Buffer], EntryParts]
"""(ledger, entry, last add confirmed, length, header, body)"""
Check = Callable[[int, int, bytes], memoryview]
"""(ledger, entry, stored entry) -> payload"""


def master_key(password: bytes) -> bytes:
    """The 20 bytes that every add and fence of a ledger must present."""
    return hashlib.sha1(b"ledger" + password).digest()


EMPTY_PASSWORD_KEY = master_key(b"")


def seal(ledger_id: int, entry_id: int, lac: int, length: int, header: bytes, body: Buffer) -> EntryParts:
    """Number the payload (`header` + `body`) and put a CRC32C in front of it, without joining anything."""
    head = HEADER.pack(ledger_id, entry_id, lac, length)
    return (head + _CRC.pack(crc32c(body, crc32c(head + header))), header, body)


def check(ledger_id: int, entry_id: int, stored: bytes) -> memoryview:
    """The payload of a stored entry with CRC32C. PersistenceError names the entry whose bytes are not what was
    written."""
    view = memoryview(stored)
    if len(stored) < OVERHEAD_BYTES:
        raise _too_short(ledger_id, entry_id, stored)
    if _CRC.unpack_from(stored, HEADER.size)[0] != crc32c(view[OVERHEAD_BYTES:], crc32c(view[: HEADER.size])):
        raise _mismatch(ledger_id, entry_id)
    _check_ids(ledger_id, entry_id, stored)
    return view[OVERHEAD_BYTES:]


@dataclass(frozen=True, slots=True)
class Digest:
    """How the entries of a ledger are sealed and checked, and the key that its bookies ask for."""

    type: DigestType
    overhead_bytes: int
    """From the start of a stored entry to its payload."""
    master_key: bytes
    seal: Seal
    check: Check


@cache
def digest_of(kind: DigestType, password: bytes = b"") -> Digest:
    if kind is DigestType.CRC32C:
        return Digest(kind, OVERHEAD_BYTES, master_key(password), seal, check)
    make = _makers(password)[kind]
    overhead = HEADER.size + len(make(b"", b"", b""))

    def seal_with(
        ledger_id: int, entry_id: int, lac: int, length: int, header: bytes, body: Buffer
    ) -> EntryParts:
        head = HEADER.pack(ledger_id, entry_id, lac, length)
        return (head + make(head, header, body), header, body)

    def check_with(ledger_id: int, entry_id: int, stored: bytes) -> memoryview:
        if len(stored) < overhead:
            raise _too_short(ledger_id, entry_id, stored)
        payload = memoryview(stored)[overhead:]
        if not hmac.compare_digest(stored[HEADER.size : overhead], make(stored[: HEADER.size], b"", payload)):
            raise _mismatch(ledger_id, entry_id)
        _check_ids(ledger_id, entry_id, stored)
        return payload

    return Digest(kind, overhead, master_key(password), seal_with, check_with)


DEFAULT_DIGEST = digest_of(DigestType.CRC32C)


def _makers(password: bytes) -> dict[DigestType, Callable[[bytes, bytes, Buffer], bytes]]:
    mac_key = hashlib.sha1(b"mac" + password).digest()

    def mac(head: bytes, header: bytes, body: Buffer) -> bytes:
        code = hmac.new(mac_key, head, hashlib.sha1)
        code.update(header)
        code.update(body)
        return code.digest()

    return {
        DigestType.CRC32: lambda head, header, body: _LONG_CRC.pack(crc32(body, crc32(head + header))),
        DigestType.HMAC: mac,
        DigestType.DUMMY: lambda head, header, body: b"",
    }


def _check_ids(ledger_id: int, entry_id: int, stored: bytes) -> None:
    if HEADER.unpack_from(stored)[:2] != (ledger_id, entry_id):
        raise PersistenceError(f"asked for entry {ledger_id}:{entry_id}, got another one")


def _too_short(ledger_id: int, entry_id: int, stored: bytes) -> PersistenceError:
    return PersistenceError(f"entry {ledger_id}:{entry_id} has only {len(stored)} bytes")


def _mismatch(ledger_id: int, entry_id: int) -> PersistenceError:
    return PersistenceError(f"entry {ledger_id}:{entry_id}: digest does not match its bytes")


def entry_id_of(stored: bytes) -> int:
    """Raises PersistenceError for bytes that are no entry."""
    if len(stored) < HEADER.size:
        raise PersistenceError(f"a stored entry has only {len(stored)} bytes")
    entry_id: int = HEADER.unpack_from(stored)[1]
    return entry_id


def last_add_confirmed(stored: bytes) -> int:
    lac: int = HEADER.unpack_from(stored)[2]
    return lac


def ledger_length(stored: bytes) -> int:
    """Payload bytes of the ledger up to and including this entry."""
    length: int = HEADER.unpack_from(stored)[3]
    return length
