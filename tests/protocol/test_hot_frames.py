"""SEND_RECEIPT and MESSAGE, written by hand, equal the general codec."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from protocol import pulsar_api_pb2 as api
from protocol.frame import command_frame
from protocol.hot_frames import MessageWriter, ReceiptWriter, SharedRun
from protocol.varint import varint

U64 = 2**64 - 1
uint64 = st.one_of(st.integers(0, 200), st.integers(2**14 - 2, 2**14 + 2), st.integers(0, U64))
position = st.one_of(st.integers(-1, 300), st.integers(0, 2**62))


@dataclass
class Entry:
    ledger_id: int
    entry_id: int
    header: bytes = b""
    body: bytes | memoryview = b"\x0e\x01abcdmetadata and payload"


entries = st.builds(
    Entry, st.integers(0, 3) | st.integers(0, 2**62), st.integers(0, 300) | st.integers(0, 2**62)
)


@given(st.integers(0, U64))
def test_varint_equals_protobufs_encoding(number: int) -> None:
    assert (
        b"\x10" + varint(number)
        == api.CommandCloseProducer(request_id=number, producer_id=0).SerializePartialToString()[2:]
    )


@given(uint64, st.lists(st.tuples(uint64, uint64, position, position), max_size=5))
def test_receipt_equals_the_general_codec(
    producer_id: int, receipts: list[tuple[int, int, int, int]]
) -> None:
    writer = ReceiptWriter(producer_id)
    for sequence_id, highest, ledger_id, entry_id in receipts:
        command = api.BaseCommand(type=api.BaseCommand.SEND_RECEIPT)
        command.send_receipt.producer_id = producer_id
        command.send_receipt.sequence_id = sequence_id
        command.send_receipt.highest_sequence_id = highest
        command.send_receipt.message_id.ledgerId = ledger_id & U64
        command.send_receipt.message_id.entryId = entry_id & U64
        assert writer.write(sequence_id, highest, ledger_id, entry_id) == command_frame(command)


def expected(
    entry: Entry, consumer_id: int, partition: int, epoch: int | None, count: int, ack_set: tuple[int, ...]
) -> bytes:
    command = api.BaseCommand(type=api.BaseCommand.MESSAGE)
    message = command.message
    message.consumer_id = consumer_id
    message.message_id.ledgerId = entry.ledger_id
    message.message_id.entryId = entry.entry_id
    message.message_id.partition = partition
    if count:
        message.redelivery_count = count
    message.ack_set.extend(ack_set)
    if epoch is not None:
        message.consumer_epoch = epoch
    body = command.SerializeToString()
    return struct.pack(">II", 4 + len(body) + len(entry.body), len(body)) + body + entry.body


words = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(tuple)


@given(
    uint64,
    st.integers(-1, 300),
    st.none() | uint64,
    st.lists(entries, max_size=6),
    st.integers(0, 300),
    words,
)
def test_message_equals_the_general_codec(
    consumer_id: int,
    partition: int,
    epoch: int | None,
    entries: list[Entry],
    count: int,
    ack_set: tuple[int, ...],
) -> None:
    writer = MessageWriter(consumer_id, partition=partition, epoch=epoch)
    out: list[bytes | memoryview] = []
    size = writer.write(entries, out)
    frames = [expected(entry, consumer_id, partition, epoch, 0, ()) for entry in entries]
    assert b"".join(out) == b"".join(frames)
    assert size == len(b"".join(frames))
    for entry in entries:
        out = []
        size = writer.write_one(entry, count, ack_set, out)
        frame = expected(entry, consumer_id, partition, epoch, count, ack_set)
        assert (b"".join(out), size) == (frame, len(frame))


@given(
    st.lists(st.tuples(uint64, st.integers(-1, 300), st.none() | uint64), min_size=1, max_size=6),
    st.lists(entries, min_size=1, max_size=6),
)
def test_frames_of_a_shared_run_equal_those_of_a_writer_alone(
    consumers: list[tuple[int, int, int | None]], entries: list[Entry]
) -> None:
    shared = SharedRun()
    # Twice each: the first writer of a run notes it, the next one makes the pieces, and later ones use them.
    for consumer_id, partition, epoch in consumers * 2:
        writer = MessageWriter(consumer_id, partition=partition, epoch=epoch, shared=shared)
        out: list[bytes | memoryview] = []
        size = writer.write(entries, out)
        frames = b"".join([expected(entry, consumer_id, partition, epoch, 0, ()) for entry in entries])
        assert (b"".join(out), size) == (frames, len(frames))


def test_a_run_is_shared_only_while_it_has_the_same_entries() -> None:
    shared = SharedRun()
    first, second, other = Entry(1, 1), Entry(1, 2), Entry(1, 2, body=b"another one at this position")
    for run in ([first, second], [first, second], [first, other], [first], [first, second, other]):
        for consumer_id in (1, 2, 3):
            out: list[bytes | memoryview] = []
            MessageWriter(consumer_id, shared=shared).write(run, out)
            frames = [expected(entry, consumer_id, -1, None, 0, ()) for entry in run]
            assert b"".join(out) == b"".join(frames)


def test_large_bodies_are_not_copied_into_shared_frames() -> None:
    shared = SharedRun()
    large = Entry(1, 1, body=b"x" * (64 << 10))
    for _ in range(3):
        out: list[bytes | memoryview] = []
        MessageWriter(1, shared=shared).write([large], out)
        assert out[1] is large.body


def test_renewed_epoch_is_on_all_later_messages() -> None:
    writer = MessageWriter(1, epoch=1)
    entry = Entry(7, 8)
    for epoch in (1, 2):
        if epoch == 2:
            writer.renew_epoch(2)
        out: list[bytes | memoryview] = []
        writer.write([entry], out)
        assert b"".join(out) == expected(entry, 1, -1, epoch, 0, ())


def test_writer_shows_entry_metadata_and_strips_checksums_as_configured() -> None:
    entry = Entry(1, 2, header=b"\x0e\x02\0\0\0\2\x10\5")
    for expose, strip, behind in [
        (False, False, bytes(entry.body)),
        (True, False, entry.header + bytes(entry.body)),
        (False, True, bytes(entry.body)[6:]),
    ]:
        out: list[bytes | memoryview] = []
        size = MessageWriter(1, expose_entry_metadata=expose, strip_checksum=strip).write([entry], out)
        data = b"".join(out)
        total, command = struct.unpack_from(">II", data)
        assert size == len(data) == total + 4
        assert data[8 + command :] == behind
    plain = Entry(1, 2, body=b"\0\0\0\0payload without a checksum")
    out = []
    MessageWriter(1, strip_checksum=True).write([plain], out)
    assert bytes(out[1]) == plain.body
