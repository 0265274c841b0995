"""Records of Pulsar's managed ledgers; those that Apache's broker wrote are replayed by `tests/test_cluster_vectors.py`."""

from __future__ import annotations

import random
from typing import Any

import pytest

from broker.managed_ledger.ledger_list import LedgerInfo
from broker.managed_ledger.managed_ledger_info import CursorInfo, ManagedLedgerInfo
from broker.managed_ledger.records.pulsar_records import (
    Compression,
    StoredCursor,
    StoredPosition,
    cursor_record,
    decode_cursor,
    decode_ledger_list,
    decode_position,
    encode_cursor,
    encode_ledger_list,
    encode_position,
)
from foundation.model.errors import MetadataError
from foundation.model.position import Position
from foundation.model.range_set import RangeSet
from protocol.managed_ledger_records_pb2 import ManagedCursorInfo, MessageRange, NestedPositionInfo
from protocol.managed_ledger_records_pb2 import ManagedLedgerInfo as LedgerListRecord
from protocol.pulsar_api_pb2 import CompressionType

LIST = ManagedLedgerInfo(
    [LedgerInfo(5, 50_000, 51_200_000, 1_700_000_000_000), LedgerInfo(9)],
    {"index": "49999"},
    Position(9, 12),
    deleting=[3, 4],
    delayed=[7],
    deleted=True,
    beside=[8],
    created_ms=1_690_000_000_000,
)
CURSOR = CursorInfo(
    Position(5, -1),
    {"x": -(1 << 63)},
    [(5, 0, 1 << 17 | 1 << 19), (5, 256, (1 << 256) - 1), (5, 512, 1), (9, 0, 1)],
    [(Position(5, 41), 6), (Position(5, 42), 1 << 63 | 1 << 64)],
    {"team": "billing"},
)


def test_list_is_read_as_it_was_written() -> None:
    assert decode_ledger_list(encode_ledger_list(LIST)) == LIST
    assert encode_ledger_list(ManagedLedgerInfo()) == b""
    assert decode_ledger_list(b"") == ManagedLedgerInfo()


def test_own_facts_of_a_list_have_names_with_one_prefix() -> None:
    record = LedgerListRecord.FromString(encode_ledger_list(LIST))
    assert {each.key for each in record.properties if each.key != "index"} == {
        f"magnetar.{name}" for name in ("deleting", "delayed", "beside", "created", "deleted")
    }


def test_cursor_is_read_as_it_was_written() -> None:
    stored = StoredCursor(CURSOR, 12, 1_700_000_000_000)
    assert decode_cursor(encode_cursor(stored)) == stored
    ranges = ManagedCursorInfo.FromString(encode_cursor(stored)).individualDeletedMessages
    assert [(each.lowerEndpoint.entryId, each.upperEndpoint.entryId) for each in ranges] == [
        (16, 17),
        (18, 19),
        (255, 512),
        (-1, 0),
    ]


def test_position_is_read_as_it_was_written() -> None:
    stored = StoredPosition(CURSOR)
    assert decode_position(encode_position(stored)) == stored
    assert decode_position(encode_position(stored, as_bits=False)) == stored


def test_entry_of_apache_has_no_texts() -> None:
    in_ledger = CursorInfo(CURSOR.mark_delete, CURSOR.properties, CURSOR.acked, CURSOR.batches)
    stored = StoredPosition(in_ledger, has_texts=False)
    assert decode_position(encode_position(stored)) == stored
    without = StoredPosition(in_ledger)
    assert decode_position(encode_position(without)).has_texts, "no text is not the same as not saying"


def test_as_many_ranges_as_asked_for_are_in_the_form_of_pulsar() -> None:
    acked = [(1, first, (1 << 256) // 3) for first in range(0, 2048, 256)]
    stored = StoredCursor(CursorInfo(Position(1, -1), acked=acked))
    record = cursor_record(encode_cursor(stored, ranges_max=300))
    assert (len(record.individualDeletedMessages), len(record.packedPages)) == (256, 1)
    record = cursor_record(encode_cursor(stored, ranges_max=1024))
    assert (len(record.individualDeletedMessages), len(record.packedPages)) == (1024, 0)


@pytest.mark.parametrize("seed", range(20))
def test_any_holes_are_read_as_they_were_written(seed: int) -> None:
    rng, holes = random.Random(seed), RangeSet()
    for _ in range(rng.randint(1, 200)):
        holes.add(rng.randint(1, 3), rng.randint(0, 2000))
    acked = list(holes.lowest_pages(1 << 30))
    info = CursorInfo(Position(1, -1), acked=acked)
    assert decode_cursor(encode_cursor(StoredCursor(info))).info.acked == acked
    for as_bits in (True, False):
        assert decode_position(encode_position(StoredPosition(info), as_bits=as_bits)).info.acked == acked


def test_range_that_begins_in_an_earlier_ledger_covers_the_beginning_of_its_own() -> None:
    record = ManagedCursorInfo(
        cursorsLedgerId=-1,
        individualDeletedMessages=[
            MessageRange(
                lowerEndpoint=NestedPositionInfo(ledgerId=5, entryId=9),
                upperEndpoint=NestedPositionInfo(ledgerId=6, entryId=2),
            )
        ],
    )
    assert decode_cursor(record.SerializeToString()).info.acked == [(6, 0, 0b111)]


@pytest.mark.parametrize(
    "kind", [CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD, CompressionType.SNAPPY]
)
def test_large_records_are_compressed_where_that_is_asked_for(kind: int) -> None:
    compression = Compression(kind, 1000)
    large = ManagedLedgerInfo([LedgerInfo(number, 5, 6, 7) for number in range(500)])
    written = encode_ledger_list(large, compression)
    assert written.startswith(b"\x47\x78")
    assert len(written) < len(encode_ledger_list(large)) / 2
    assert decode_ledger_list(written) == large
    assert not encode_ledger_list(LIST, compression).startswith(b"\x47\x78"), "it is small"
    holes = CursorInfo(Position(1, -1), acked=[(1, first, 0x5555) for first in range(0, 25600, 256)])
    assert encode_cursor(StoredCursor(holes), compression).startswith(b"\x47\x78")
    assert decode_cursor(encode_cursor(StoredCursor(holes), compression)).info == holes
    holes.cursor_properties = {"a": "b"}
    assert not encode_cursor(StoredCursor(holes), compression).startswith(b"\x47\x78"), (
        "Apache 4.2 could not read it"
    )


@pytest.mark.parametrize(
    ("read", "value", "text"),
    [
        (decode_ledger_list, b"[]", "ManagedLedgerInfo cannot be read"),
        (decode_cursor, b"", "a required field is missing"),
        (
            decode_cursor,
            b"\x47\x78\x00\x00\x00\x04\x08\x01\x10\x05\xff\xff",
            "compressed record cannot be read",
        ),
        (decode_ledger_list, b"\x47\x78\x00", "RecordMetadata cannot be read"),
        (decode_ledger_list, b"\x0a\x06\x08\x05\x2a\x02\x3a\x00", "ledger 5 .* was offloaded in segments"),
        (decode_ledger_list, b"\x1a\x17\x0a\x11magnetar.deleting\x12\x02xy", "properties cannot be read"),
        (
            decode_cursor,
            b"\x08\x01\x22\x13\x0a\x04\x08\x05\x10\x00\x12\x0b\x08\x05\x10" + b"\xff" * 7 + b"\x7f",
            "is damaged",
        ),
    ],
)
def test_records_that_cannot_be_read_are_refused(read: Any, value: bytes, text: str) -> None:
    with pytest.raises(MetadataError, match=text):
        read(value)
