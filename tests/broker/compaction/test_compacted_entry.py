"""The format of an entry in a compacted ledger."""

from __future__ import annotations

import pytest

from broker.compaction.compacted_entry import decode, encode_head
from foundation.model.entry import Entry
from foundation.model.errors import PersistenceError
from foundation.model.position import Position
from protocol.pulsar_api_pb2 import MessageIdData

HEADER = b"\x0e\x02\0\0\0\x02\x08\x01"


@pytest.mark.parametrize("header", [b"", HEADER])
def test_entry_keeps_position_header_and_body(header: bytes) -> None:
    stored = encode_head(Position(7, 9), 2, header, 4) + b"body"
    found = decode(Entry(100, 0, b"", stored, 0))
    assert (found.position, found.header, bytes(found.body)) == ((7, 9), header, b"body")


def test_layout_is_that_of_pulsar() -> None:
    packed = MessageIdData(ledgerId=7, entryId=9, partition=-1).SerializeToString()
    assert encode_head(Position(7, 9), -1, b"", 4) == b"\0\0\0" + bytes([len(packed)]) + packed + b"\0\0\0\4"


@pytest.mark.parametrize(
    "stored", [b"", b"\0\0\0\x09", b"\0\0\0\x01\xff\0\0\0\0", encode_head(Position(1, 1), -1, b"", 9)]
)
def test_other_bytes_are_refused(stored: bytes) -> None:
    with pytest.raises(PersistenceError, match="100:3"):
        decode(Entry(100, 3, b"", stored, 0))
