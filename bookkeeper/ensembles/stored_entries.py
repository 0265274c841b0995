"""Stored entries to Entry objects: digest check and broker entry metadata in one pass.

This is the cost of a catch-up read per entry, so one loop does what `digest.check` and `broker_entry_metadata.split` do
one by one, and is tested against them. Bodies share the bytes of the stored entry. Ledgers with another digest than
CRC32C, which Pulsar's brokers do not write by default, take a plain loop.
"""

from __future__ import annotations

import struct

from bookkeeper.client.digest import DEFAULT_DIGEST, OVERHEAD_BYTES, Digest, check
from foundation.model.entry import Entry
from foundation.model.errors import EntryDamaged
from protocol import broker_entry_metadata
from protocol.broker_entry_metadata import MAGIC
from protocol.checksum import crc32c
from protocol.ledger_metadata import DigestType

_IDS_AND_CRC = struct.Struct(">qq16xI")
_BLOCK = struct.Struct(">2sI")
_DIGESTED_BYTES = 32
_BODY_AFTER_BLOCK = OVERHEAD_BYTES + _BLOCK.size


def decode_run(
    ledger_id: int, first: int, stored: list[bytes], into: list[Entry], digest: Digest = DEFAULT_DIGEST
) -> None:
    """Appends an Entry to `into` for each stored entry.

    The first one must have the entry id `first`.

    Raises EntryDamaged for the first one whose bytes are not as written; those before it have been appended. Their
    `messages` are 0 until a dispatcher reads them from the body.
    """
    if digest.type is not DigestType.CRC32C:
        _decode_one_by_one(ledger_id, first, stored, into, digest)
        return
    unpack, unpack_block = _IDS_AND_CRC.unpack_from, _BLOCK.unpack_from
    append = into.append
    for entry_id, whole in enumerate(stored, first):
        if len(whole) < _BODY_AFTER_BLOCK:  # Too short for a block: all of it is body.
            append(Entry(ledger_id, entry_id, b"", check(ledger_id, entry_id, whole), 0))
            continue
        found_ledger, found_entry, crc = unpack(whole)
        body = memoryview(whole)[OVERHEAD_BYTES:]
        if (
            crc32c(body, crc32c(whole[:_DIGESTED_BYTES])) != crc
            or found_entry != entry_id
            or found_ledger != ledger_id
        ):
            # `check` finds which of the three it was, and raises with the better text.
            check(ledger_id, entry_id, whole)
            raise EntryDamaged(f"entry {ledger_id}:{entry_id}: digest does not match its bytes")
        # Entries of brokers without broker entry metadata begin with the client's bytes, and those never with MAGIC.
        header = b""
        magic, size = unpack_block(body)
        if magic == MAGIC:
            end = _BODY_AFTER_BLOCK + size
            if end > len(whole):
                raise EntryDamaged(f"entry {ledger_id}:{entry_id}: its metadata block has {size} bytes")
            header = whole[OVERHEAD_BYTES:end]
            body = body[end - OVERHEAD_BYTES :]
        append(Entry(ledger_id, entry_id, header, body, 0))


def _decode_one_by_one(
    ledger_id: int, first: int, stored: list[bytes], into: list[Entry], digest: Digest
) -> None:
    for entry_id, whole in enumerate(stored, first):
        payload = digest.check(ledger_id, entry_id, whole)
        try:
            header, body = broker_entry_metadata.split(payload)
        except ValueError as error:
            raise EntryDamaged(f"entry {ledger_id}:{entry_id}: {error}") from error
        into.append(Entry(ledger_id, entry_id, header, body, 0))
