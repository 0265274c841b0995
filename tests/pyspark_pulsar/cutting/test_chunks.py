"""Chunks of one message: those that are joined, and one that comes too late for its consumer."""

from __future__ import annotations

from protocol.pulsar_api_pb2 import MessageMetadata
from pyspark_pulsar.cutting.chunks import Chunks, Part, Parts
from pyspark_pulsar.cutting.entry_table import cut_entries
from tests.pyspark_pulsar.cutting.test_cutting import frame, received


def chunk(number: int) -> bytes:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, uuid="u", chunk_id=number)
    metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = 2, 2
    return frame(number, metadata, b"ab"[number : number + 1])


def whole(number: int) -> bytes:
    return frame(number, MessageMetadata(producer_name="p", sequence_id=2, publish_time=1), b"c")


def joined(frames: list[bytes], earlier: Parts | None) -> list[tuple[int, bytes]]:
    messages = received(frames)
    found = Chunks().join(messages, cut_entries(messages), lambda _row, _uuid: earlier)
    entries = cut_entries(found)
    ids, starts, ends = entries.entry_ids, entries.payload_starts, entries.payload_ends
    return [(int(ids[row]), bytes(found.buffer[starts[row] : ends[row]])) for row in range(len(entries))]


def test_last_chunk_gets_the_earlier_ones_of_a_look_back() -> None:
    assert joined([chunk(1), whole(4)], {0: Part(b"a", None)}) == [(1, b"ab"), (4, b"c")]


def test_last_chunk_of_a_closed_consumer_is_left_out() -> None:
    assert joined([chunk(1), whole(4)], None) == [(4, b"c")]
