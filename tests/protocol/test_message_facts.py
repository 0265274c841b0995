"""Message metadata, checksum and broker entry metadata, as read from an entry."""

from __future__ import annotations

import base64

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from protocol.broker_entry_metadata import EntryStamp, decode, split
from protocol.errors import ProtocolError
from protocol.frame import message_body, metadata_span
from protocol.message_metadata import NO_KEY, read_facts
from protocol.pulsar_api_pb2 import MessageMetadata
from protocol.sent_body import Judgement, judge_body
from tests.fakes.messages import message


def judged(body: bytearray, start: int = 0) -> Judgement:
    return judge_body(body, start, memoryview(body)[start:])


def without_checksum(metadata: bytes) -> bytes:
    return len(metadata).to_bytes(4, "big") + metadata


@given(st.binary(max_size=50), st.integers(0, 400))
def test_checksum_finds_every_changed_bit(payload: bytes, place: int) -> None:
    body = bytearray(message(payload))
    assert judged(body) != Judgement.CORRUPT
    body[2 + place % (len(body) - 2)] ^= 1 << place % 8
    assert judged(body) == Judgement.CORRUPT
    assert judged(body[6:]) != Judgement.CORRUPT, "a message without one is taken as it is"


@given(st.integers(0, 9))
def test_body_cut_short_within_its_head_is_corrupt_when_it_has_a_checksum(length: int) -> None:
    expected = Judgement.CORRUPT if length >= 6 else Judgement.PLAIN
    assert judged(bytearray(message(b"x"))[:length]) == expected


def test_facts_tell_batches_chunks_and_sequence_ids() -> None:
    facts = read_facts(message(batch=3, sequence_id=5))
    assert (facts.batched, facts.messages, facts.sequence_id, facts.highest_sequence_id) == (True, 3, 5, 5)
    facts = read_facts(message(chunk=(2, 3)))
    assert (facts.batched, facts.messages, facts.chunk, facts.chunks) == (False, 1, 2, 3)


def test_key_is_the_ordering_key_else_the_partition_key_else_none() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=0, publish_time=1)
    assert read_facts(without_checksum(metadata.SerializeToString())).key == NO_KEY
    metadata.partition_key = base64.b64encode(b"\xff\0").decode()
    metadata.partition_key_b64_encoded = True
    assert read_facts(without_checksum(metadata.SerializeToString())).key == b"\xff\0"
    metadata.partition_key = "abc"
    assert read_facts(without_checksum(metadata.SerializeToString())).key == b"abc", "not base64 after all"
    metadata.ordering_key = b"o"
    assert read_facts(without_checksum(metadata.SerializeToString())).key == b"o"


def test_facts_are_read_when_text_is_not_utf8() -> None:
    packed = b"\x0a\x02p\xff\x10\x00\x18\x01\x32\x01\xfe"
    facts = read_facts(without_checksum(packed))
    assert facts.key == b"\xfe"
    assert facts.producer_name == "p\ufffd"


@pytest.mark.parametrize("body", [b"", b"\0\0", b"\0\0\0\5abc", b"\0\0\0\1\xff", b"\x0e\x01\0\0\0\0\0"])
def test_read_facts_refuses_bytes_that_are_no_message(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_facts(body)


def test_metadata_span_ends_where_the_payload_begins() -> None:
    body = message(b"payload")
    start, end = metadata_span(body)
    assert MessageMetadata.FromString(body[start:end]).producer_name == "p"
    assert body[end:] == b"payload"


@pytest.mark.parametrize(("timestamp", "index"), [(False, False), (True, False), (False, True), (True, True)])
def test_stamp_carries_the_time_and_the_message_index(timestamp: bool, index: bool) -> None:
    now = iter([1000, 1000, 1005, 1006])
    stamp = EntryStamp(timestamp=timestamp, index=index, now_ms=lambda: next(now))
    body = message(b"x")
    for messages, at_ms, last in [(1, 1000, 0), (3, 1000, 3), (1, 1005, 4)]:
        (block,) = stamp.stamp(messages, 1)
        read, rest = split(memoryview(block + body))
        assert (read, bytes(rest)) == (block, body)
        found = decode(block)
        assert found.broker_timestamp_ms == (at_ms if timestamp else None)
        assert found.index == (last if index else None)
    stamp.rollback(1)
    assert decode(stamp.stamp(2, 1)[0]).index == (5 if index else None)


def test_split_refuses_a_block_longer_than_the_entry() -> None:
    with pytest.raises(ValueError, match="of 10"):
        split(memoryview(b"\x0e\x02\0\0\0\x0fabcd"))


@given(
    st.sampled_from([0, 1, 2**31, 2**63 - 1, -1]),
    st.booleans(),
    st.binary(max_size=300),
    st.dictionaries(st.text(max_size=5), st.text(max_size=60), max_size=6),
)
def test_message_with_a_delivery_time_is_never_taken_for_one_without(
    deliver_at_ms: int, checksum: bool, payload: bytes, properties: dict[str, str]
) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    metadata.deliver_at_time = deliver_at_ms
    body = message_body(metadata, payload)
    if not checksum:
        body = body[6:]
    # In the midst of other bytes, as in a receive buffer.
    buffer = bytearray(b"before" + body + b"behind")
    judged = judge_body(buffer, 6, memoryview(buffer)[6:-6])
    # The bytes of the other field's tag may stand in a text.
    assert judged in (Judgement.MAY_BE_DELAYED, Judgement.MAY_NAME_TRANSACTION)


@given(
    st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    st.booleans(),
    st.sampled_from([b"\xb8\x01", b"\xb8\x81\x00", b"\xb8\x81\x80\x80\x00"]),
    st.dictionaries(st.text(max_size=5), st.text(max_size=60), max_size=6),
)
def test_message_that_names_a_transaction_is_always_told_apart(
    most: int, checksum: bool, tag: bytes, properties: dict[str, str]
) -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1)
    for key, value in properties.items():
        metadata.properties.add(key=key, value=value)
    number = MessageMetadata(txnid_most_bits=most).SerializePartialToString()[2:]
    packed = metadata.SerializeToString() + tag + number
    assert MessageMetadata.FromString(packed).txnid_most_bits == most
    body = without_checksum(packed)
    if checksum:
        body = b"\x0e\x01" + crc32c(body).to_bytes(4, "big") + body
    assert judged(bytearray(b"before" + body), 6) == Judgement.MAY_NAME_TRANSACTION


def test_message_without_a_delivery_time_is_told_apart() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=7, publish_time=1_700_000_000_000)
    # The payload has the bytes of the field; only the metadata counts.
    body = message_body(metadata, b"\x98\x01" * 20)
    assert judged(bytearray(body)) == Judgement.PLAIN
    assert judged(bytearray(body[6:])) == Judgement.PLAIN


@given(st.binary(max_size=40))
def test_any_bytes_are_judged(body: bytes) -> None:
    assert judged(bytearray(body)) in Judgement
