"""The layout of offloaded ledgers, against bytes that are laid out by hand from the constants of Apache's offloader."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest

from protocol import ledger_metadata
from protocol.ledger_metadata import LedgerMetadata, LedgerSegment, LedgerState
from protocol.offload.blocks import (
    BlockWriter,
    OffloadFormatError,
    data_key,
    decode_index,
    encode_index,
    entries_of,
    index_key,
    key_parts,
)
from protocol.varint import read_varint

UUID_1 = UUID("11111111-2222-3333-4444-555555555555")
PAYLOADS = [b"a" * 40, b"b" * 50, b"c" * 60, b"d" * 500, b"e"]


def metadata(payloads: list[bytes]) -> LedgerMetadata:
    return LedgerMetadata(
        segments=(LedgerSegment(("bookie:3181",)),),
        state=LedgerState.CLOSED,
        length=sum(map(len, payloads)),
        last_entry_id=len(payloads) - 1,
        password=b"secret",
        created_ms=7,
        custom={"pulsar/managed-ledger": b"a/b/persistent/c"},
    )


def written(
    payloads: list[bytes], block_bytes: int = 300, piece_bytes: int = 120
) -> tuple[bytes, BlockWriter]:
    writer = BlockWriter(metadata(payloads), block_bytes, piece_bytes)
    data = b"".join(writer.add([payload[:3], payload[3:]]) for payload in payloads)
    return data + writer.end(), writer


def block(size: int, first: int, entries: list[tuple[int, bytes]]) -> bytes:
    head = struct.pack(">IQQQ", 0xFBDBABCB, 128, size, first) + bytes(100)
    body = b"".join(struct.pack(">iq", len(data), entry) + data for entry, data in entries)
    padding = size - len(head) - len(body)
    return head + body + (bytes.fromhex("FEDCDEAD") * (padding // 4 + 1))[:padding]


def test_data_has_the_blocks_of_the_layout() -> None:
    data, _ = written(PAYLOADS)
    # 128 + 52 + 62 leave 58 bytes, too few for the third entry. The fourth is larger than a block, and the last block is
    # cut to its content.
    expected = (
        block(300, 0, [(0, PAYLOADS[0]), (1, PAYLOADS[1])])
        + block(300, 2, [(2, PAYLOADS[2])])
        + block(640, 3, [(3, PAYLOADS[3])])
        + block(141, 4, [(4, PAYLOADS[4])])
    )
    assert data == expected


def test_index_begins_with_the_bytes_of_the_layout() -> None:
    data, writer = written(PAYLOADS)
    value = encode_index(writer.index)
    magic, length, data_length, header, blocks, size = struct.unpack_from(">IIQQII", value)
    assert (magic, data_length, header, blocks) == (0xDE47DE47, len(data), 128, 4)
    stored = ledger_metadata.decode(
        ledger_metadata.VERSION_LINE
        + bytes((size & 0x7F | 0x80, size >> 7) if size > 127 else (size,))
        + value[32 : 32 + size]
    )
    assert read_varint(bytes((size & 0x7F | 0x80, size >> 7)), 0)[0] == size
    assert (stored.last_entry_id, stored.length, stored.password) == (4, metadata(PAYLOADS).length, b"")
    places = [struct.unpack_from(">QIQ", value, 32 + size + 20 * place) for place in range(4)]
    assert places == [(0, 1, 0), (2, 2, 300), (3, 3, 600), (4, 4, 1240)]
    # The length counts Apache's part alone, which is all that Apache reads.
    assert length == 32 + size + 20 * 4


def test_every_entry_is_found_by_the_index() -> None:
    data, writer = written(PAYLOADS)
    index = decode_index(encode_index(writer.index))
    assert index.pieces == writer.index.pieces
    for entry_id, payload in enumerate(PAYLOADS):
        piece = index.pieces[index.piece_of(entry_id)]
        found = dict(entries_of(data[piece.offset : piece.offset + piece.length], piece.first_entry))
        assert bytes(found[entry_id]) == payload


def test_index_of_apache_has_one_piece_for_each_block() -> None:
    data, writer = written(PAYLOADS)
    value = encode_index(writer.index)
    (length,) = struct.unpack_from(">I", value, 4)
    index = decode_index(value[:length])
    assert [(piece.first_entry, piece.crc) for piece in index.pieces] == [
        (0, None),
        (2, None),
        (3, None),
        (4, None),
    ]
    found = [
        (entry, bytes(stored))
        for piece in index.pieces
        for entry, stored in entries_of(data[piece.offset : piece.offset + piece.length], piece.first_entry)
    ]
    assert found == list(enumerate(PAYLOADS))


@pytest.mark.parametrize("place", [0, 5, 40, -30, -1])
def test_a_changed_byte_of_the_index_is_refused(place: int) -> None:
    value = bytearray(encode_index(written(PAYLOADS)[1].index))
    value[place] ^= 1
    with pytest.raises(OffloadFormatError):
        decode_index(bytes(value))


def test_entries_that_do_not_follow_one_another_are_refused() -> None:
    data, _ = written(PAYLOADS)
    with pytest.raises(OffloadFormatError, match="entry 7 was expected"):
        list(entries_of(data[128:252], 7))


def test_a_copy_of_fewer_entries_than_the_metadata_says_is_refused() -> None:
    writer = BlockWriter(metadata(PAYLOADS), 300, 120)
    writer.add([PAYLOADS[0]])
    with pytest.raises(OffloadFormatError, match="1 entries were read"):
        writer.end()


def test_keys_are_those_of_apache() -> None:
    assert data_key(UUID_1, 12) == "11111111-2222-3333-4444-555555555555-ledger-12"
    assert index_key(UUID_1, 12) == "11111111-2222-3333-4444-555555555555-ledger-12-index"
    assert key_parts(index_key(UUID_1, 12)) == key_parts(data_key(UUID_1, 12)) == (UUID_1, 12)
    assert key_parts("other") is None
    assert key_parts("x-ledger-1") is None
