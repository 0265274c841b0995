"""Entries cut column by column say what protobuf's own reader says, for any messages; nonsense is refused."""

from __future__ import annotations

import contextlib
import random
import struct
from typing import Any

import pytest
from crc32c import crc32c

from protocol.pulsar_api_pb2 import NONE

np = pytest.importorskip("numpy", reason="needs the extra spark")
pytest.importorskip("pyarrow", reason="needs the extra spark")


from protocol.pulsar_api_pb2 import (  # noqa: E402
    BaseCommand,
    BrokerEntryMetadata,
    CompressionType,
    MessageMetadata,
    SingleMessageMetadata,
)
from pyspark_pulsar.cutting.compression import pack  # noqa: E402
from pyspark_pulsar.cutting.decryption import Decryption  # noqa: E402
from pyspark_pulsar.cutting.entry_table import EntryField, cut_entries  # noqa: E402
from pyspark_pulsar.cutting.message_table import MessageField, cut_messages  # noqa: E402
from pyspark_pulsar.cutting.messages import Messages  # noqa: E402
from pyspark_pulsar.errors import MalformedEntry  # noqa: E402


def frame(number: int, metadata: MessageMetadata, payload: bytes, *, exposed: bool = False) -> bytes:
    """A MESSAGE as a broker sends it."""
    command = BaseCommand(type=BaseCommand.MESSAGE)
    command.message.consumer_id = number % 3
    command.message.message_id.ledgerId = number // 10
    command.message.message_id.entryId = number
    command.message.message_id.partition = -1
    packed = command.SerializeToString()
    head = metadata.SerializePartialToString()
    covered = struct.pack(">I", len(head)) + head + payload
    body = b"\x0e\x01" + struct.pack(">I", crc32c(covered)) + covered
    if exposed:
        block = BrokerEntryMetadata(broker_timestamp=number, index=number).SerializeToString()
        body = b"\x0e\x02" + struct.pack(">I", len(block)) + block + body
    return struct.pack(">II", 4 + len(packed) + len(body), len(packed)) + packed + body


def received(frames: list[bytes]) -> Messages:
    starts = [sum(len(one) for one in frames[:number]) for number in range(len(frames))]
    return Messages(bytearray(b"".join(frames) + bytes(16)), starts)


def batch_of(rows: list[tuple[SingleMessageMetadata, bytes]]) -> bytes:
    parts = []
    for metadata, body in rows:
        metadata.payload_size = len(body)
        packed = metadata.SerializeToString()
        parts.append(struct.pack(">I", len(packed)) + packed + body)
    return b"".join(parts)


def random_rows(chance: random.Random) -> list[tuple[SingleMessageMetadata, bytes]]:
    alike = chance.random() < 0.5
    rows = []
    for number in range(chance.choice((1, 3, 8, 40, 200))):
        metadata = SingleMessageMetadata()
        if chance.random() < 0.3 or alike:
            metadata.partition_key = "k" * (5 if alike else chance.randint(0, 200))
        if not alike and chance.random() < 0.3:
            for pair in range(chance.randint(0, 3)):
                metadata.properties.add(key=f"p{pair}", value="v" * chance.randint(0, 200))
        if chance.random() < 0.5:
            metadata.sequence_id = chance.choice((number, 2**40 + number))
        if not alike and chance.random() < 0.2:
            metadata.event_time = chance.getrandbits(40)
        if not alike and chance.random() < 0.1:
            metadata.null_value = True
        rows.append((metadata, chance.randbytes(100 if alike else chance.randint(0, 300))))
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_cutting_equals_protobuf_for_random_entries(seed: int) -> None:
    chance = random.Random(seed)
    frames, expected = [], []
    for number in range(chance.randint(1, 30)):
        metadata = MessageMetadata(
            producer_name=f"p{number}", sequence_id=number, publish_time=2**41 + number
        )
        if chance.random() < 0.6:
            rows = random_rows(chance)
            metadata.num_messages_in_batch = len(rows)
            payload = batch_of(rows)
            bodies = [(body, row.partition_key, row.event_time, row.null_value) for row, body in rows]
        else:
            payload = chance.randbytes(chance.randint(0, 500))
            metadata.partition_key = "alone"
            bodies = [(payload, "alone", 0, False)]
        codec = chance.choice([*CompressionType.values(), NONE, NONE, NONE])
        if codec != NONE:
            metadata.compression = codec
            metadata.uncompressed_size = len(payload)
            payload = bytes(pack(codec, payload))
        frames.append(frame(number, metadata, payload, exposed=chance.random() < 0.2))
        expected += [(number, index, *body) for index, body in enumerate(bodies)]

    messages = received(frames)
    entries = cut_entries(messages)
    assert entries.entry_ids.tolist() == list(range(len(frames)))
    assert entries.consumer_ids.tolist() == [number % 3 for number in range(len(frames))]
    found = []
    for table in cut_messages(entries, np.arange(len(frames)), messages.buffer):
        data, keys = table.spans(entries, MessageField.KEY, EntryField.PARTITION_KEY)
        times = table.numbers(entries, MessageField.EVENT_TIME, EntryField.EVENT_TIME)
        nulls = table.numbers(entries, MessageField.NULL_VALUE, EntryField.NULL_VALUE)
        for row in range(len(table)):
            key = bytes(data[keys.starts[row] : keys.starts[row] + keys.lengths[row]]).decode()
            body = bytes(table.data[table.starts[row] : table.ends[row]])
            index = max(0, int(table.batch_indexes[row]))
            found.append((int(table.entry_rows[row]), index, body, key, int(times[row]), bool(nulls[row])))
    assert sorted(found) == expected


def one_entry(payload: bytes, **fields: Any) -> tuple[Any, bytearray]:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1, **fields)
    messages = received([frame(1, metadata, payload)])
    return cut_entries(messages), messages.buffer


def cut_all(entries: Any, buffer: bytearray) -> None:
    list(cut_messages(entries, np.arange(len(entries)), buffer))


def test_cutting_refuses_an_entry_when_a_bit_is_flipped() -> None:
    messages = received(
        [frame(1, MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"payload")]
    )
    messages.buffer[-20] ^= 1
    with pytest.raises(MalformedEntry, match="entry 0:1 arrived with a wrong checksum"):
        cut_entries(messages)


@pytest.mark.parametrize(
    ("payload", "count", "sentence"),
    [
        (b"", 3, "a batch of 3 messages in 0 bytes"),
        (b"\xff\xff\xff\xff" + bytes(40), 2, "reaches past the end of its batch"),
        (struct.pack(">I", 2) + b"\x18\x7f" + bytes(20), 2, "reaches past the end of its batch"),
        (struct.pack(">I", 2) + b"\x20\x01" + bytes(20), 2, "does not say how long it is"),
    ],
)
def test_cutting_refuses_impossible_batches(payload: bytes, count: int, sentence: str) -> None:
    entries, buffer = one_entry(payload, num_messages_in_batch=count)
    with pytest.raises(MalformedEntry, match=sentence):
        cut_all(entries, buffer)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_cutting_refuses_payloads_that_do_not_decompress(codec: int) -> None:
    entries, buffer = one_entry(
        b"nonsense", compression=CompressionType.ValueType(codec), uncompressed_size=100
    )
    with pytest.raises(MalformedEntry, match="unpack"):
        cut_all(entries, buffer)


def test_entry_that_no_key_opens_is_refused_by_its_position() -> None:
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=1)
    metadata.encryption_keys.add(key="k", value=b"v")
    messages = received([frame(7, metadata, b"secret")])
    entries = cut_entries(messages)
    decryption = Decryption({}, discard=False)
    assert decryption.decrypt(messages, entries) is messages
    with pytest.raises(MalformedEntry, match="entry 0:7 is encrypted, and decryptionKeys has none"):
        decryption.readable(messages, entries, np.arange(1))


@pytest.mark.parametrize("seed", range(30))
def test_cutting_only_raises_malformed_entry_when_bytes_are_damaged(seed: int) -> None:
    """With checksums made right again, so that what is behind them is reached."""
    chance = random.Random(seed)
    rows = random_rows(chance)
    metadata = MessageMetadata(
        producer_name="p", sequence_id=1, publish_time=1, num_messages_in_batch=len(rows)
    )
    payload = bytearray(batch_of(rows))
    for _ in range(chance.randint(1, 5)):
        payload[chance.randrange(len(payload))] = chance.getrandbits(8)
    messages = received([frame(1, metadata, bytes(payload))])
    with contextlib.suppress(MalformedEntry):
        cut_all(cut_entries(messages), messages.buffer)
