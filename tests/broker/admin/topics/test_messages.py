"""Requests that look at single messages: what they show, and that they change nothing."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from protocol.pulsar_api_pb2 import CompressionType, SingleMessageMetadata
from tests.broker.admin.publishing import metadata_of, publish, publish_plain
from tests.broker.admin.test_rest import PERSISTENT, TOPICS, call, persistent, refusal

NON_PERSISTENT = "/admin/v2/non-persistent/public/default"


async def shown(admin: ClientSession, path: str) -> tuple[bytes, dict[str, str]]:
    async with admin.get(path) as answer:
        body = await answer.read()
        assert answer.status == 200, body
        return body, _short(answer.headers)


def _short(headers: Mapping[str, str]) -> dict[str, str]:
    return {name[9:].lower(): value for name, value in headers.items() if name.startswith("X-Pulsar-")}


async def test_peek_counts_unacknowledged_messages(admin: ClientSession, broker: BrokerService) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 6)
    await call(admin, f"PUT {TOPICS}/t/subscription/s", "earliest")
    cursor = (await persistent(broker, "t")).subscriptions["s"].cursor
    ledger_id = cursor.context.last_confirmed.ledger_id
    cursor.acknowledge([(ledger_id, 0), (ledger_id, 2), (ledger_id, 3)])
    bodies = [(await shown(admin, f"{TOPICS}/t/subscription/s/position/{n}"))[0] for n in (1, 2, 3)]
    assert bodies == [b"m1", b"m4", b"m5"]
    assert await refusal(admin, f"GET {TOPICS}/t/subscription/s/position/4") == (404, "Message not found")
    assert (await refusal(admin, f"GET {TOPICS}/t/subscription/s/position/0"))[0] == 500
    assert (await call(admin, f"GET {TOPICS}/t/subscription/s/position/x"))[0] == 404


async def test_peek_neither_moves_nor_creates_a_subscription(
    admin: ClientSession, broker: BrokerService
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 3)
    await call(admin, f"PUT {TOPICS}/t/subscription/s", "earliest")
    topic = await persistent(broker, "t")
    cursor = topic.subscriptions["s"].cursor
    before = (cursor.read_position, cursor.mark_delete_position, topic.ledger.stats.entries_read)
    assert (await shown(admin, f"{TOPICS}/t/subscription/s/position/2"))[0] == b"m1"
    assert (await shown(admin, f"{TOPICS}/t/subscription/nope/position/3"))[0] == b"m2"
    assert before == (cursor.read_position, cursor.mark_delete_position, topic.ledger.stats.entries_read)
    assert list(topic.subscriptions) == ["s"]
    assert list(topic.ledger.cursors.by_name) == ["s"]


async def test_headers_show_the_metadata(admin: ClientSession, broker: BrokerService) -> None:
    metadata = metadata_of(7)
    metadata.properties.add(key="a\r\nX-Evil: 1", value="é")
    metadata.event_time = 1_700_000_000_250
    metadata.ordering_key = b"\x00\x01"
    metadata.schema_version = b"\x00" * 7 + b"\x03"
    metadata.replicated_from = "other\nX-Evil: 1"
    metadata.partition_key_b64_encoded = False
    await publish(broker, f"{PERSISTENT}/t", [(metadata, b"body")])
    body, headers = await shown(admin, f"{TOPICS}/t/examinemessage")
    ledger_id = (await persistent(broker, "t")).ledger.last_confirmed.ledger_id
    assert body == b"body"
    stamp = {name: headers.pop(name) for name in list(headers) if name.startswith("broker-entry")}
    assert set(stamp) <= {"broker-entry-metadata-timestamp", "broker-entry-metadata-index"}
    # Java's client reads headers as ISO 8859-1 and others as UTF-8: escapes are the same in both.
    assert headers["property"].isascii()
    assert json.loads(headers.pop("property")) == {"a\r\nX-Evil: 1": "é"}
    assert headers == {
        "message-id": f"{ledger_id}:0",
        "publish-time": "2023-11-14T22:13:27Z",
        "event-time": "2023-11-14T22:13:20.25Z",
        "is-encrypted": "false",
        "producer-name": "p",
        "sequence-id": "7",
        "replicated-from": "other?X-Evil: 1",
        "partition-key": "k7",
        "partition-key-b64-encoded": "false",
        "base64-ordering-key": base64.b64encode(b"\x00\x01").decode(),
        "base64-schema-version": base64.b64encode(b"\x00" * 7 + b"\x03").decode(),
        "txn-uncommitted": "false",
    }


async def test_compressed_batch_is_shown_unpacked_as_one_entry(
    admin: ClientSession, broker: BrokerService
) -> None:
    single = SingleMessageMetadata(payload_size=2, partition_key="k").SerializeToString()
    plain = (len(single).to_bytes(4, "big") + single + b"ab") * 3
    packed = zlib.compress(plain)
    metadata = metadata_of(0)
    metadata.num_messages_in_batch = 3
    metadata.compression = CompressionType.ZLIB
    metadata.uncompressed_size = len(plain)
    await publish(broker, f"{PERSISTENT}/t", [(metadata, packed)])
    body, headers = await shown(admin, f"{TOPICS}/t/examinemessage?initialPosition=earliest")
    assert body == plain
    assert (headers["num-batch-message"], headers["compression"]) == ("3", "ZLIB")
    # As Pulsar counts: the stored payload with ten bytes of the frame.
    assert headers["batch-size"] == str(len(packed) + 10)


async def test_encrypted_and_chunked_payloads_are_shown_as_stored(
    admin: ClientSession, broker: BrokerService
) -> None:
    encrypted = metadata_of(0)
    encrypted.encryption_keys.add(key="k", value=b"v")
    encrypted.compression = CompressionType.LZ4
    encrypted.uncompressed_size = 100
    chunk = metadata_of(1)
    chunk.uuid, chunk.chunk_id, chunk.num_chunks_from_msg, chunk.total_chunk_msg_size = "u", 0, 2, 200
    chunk.compression, chunk.uncompressed_size = CompressionType.ZSTD, 300
    broken = metadata_of(2)
    broken.compression, broken.uncompressed_size = CompressionType.SNAPPY, 300
    await publish(
        broker, f"{PERSISTENT}/t", [(encrypted, b"secret"), (chunk, b"part"), (broken, b"no snappy")]
    )
    body, headers = await shown(admin, f"{TOPICS}/t/examinemessage?initialPosition=earliest")
    assert (body, headers["is-encrypted"]) == (b"secret", "true")
    assert "base64-encryption-keys" in headers
    body, headers = await shown(
        admin, f"{TOPICS}/t/examinemessage?initialPosition=earliest&messagePosition=2"
    )
    assert body == b"part"
    assert (headers["chunk-id"], headers["num-chunks-from-msg"], headers["uuid"]) == ("0", "2", "u")
    assert (await refusal(admin, f"GET {TOPICS}/t/examinemessage"))[0] == 422


async def test_message_is_found_by_id_and_by_time(admin: ClientSession, broker: BrokerService) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 3)
    topic = await persistent(broker, "t")
    last = topic.ledger.last_confirmed
    assert (await shown(admin, f"{TOPICS}/t/ledger/{last.ledger_id}/entry/1"))[0] == b"m1"
    missing = await refusal(admin, f"GET {TOPICS}/t/ledger/{last.ledger_id + 100}/entry/1")
    assert missing == (404, "Message id not found")
    assert (await refusal(admin, f"GET {TOPICS}/t/ledger/{last.ledger_id}/entry/3"))[0] == 500
    assert (await refusal(admin, f"GET {TOPICS}/t/ledger/{last.ledger_id}/entry/-1"))[0] == 500


@pytest.mark.parametrize(("since_ms", "wanted"), [(0, -1), (1, 0), (10**15, 3)])
async def test_message_id_by_time_is_that_of_the_next_message(
    admin: ClientSession, broker: BrokerService, since_ms: int, wanted: int
) -> None:
    await publish_plain(broker, f"{PERSISTENT}/t", 3)
    topic = await persistent(broker, "t")
    status, found = await call(admin, f"GET {TOPICS}/t/messageid/{since_ms}")
    assert status == 200
    assert isinstance(found, dict)
    ledger_id = topic.ledger.last_confirmed.ledger_id if wanted >= 0 else -1
    # Behind the last entry stands the place of the next one.
    assert (found["ledgerId"], found["entryId"]) == (ledger_id, wanted)


async def test_partitioned_and_non_persistent_topics_are_refused(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 2)
    await call(admin, f"PUT {NON_PERSISTENT}/n")
    for path in (
        "subscription/s/position/1",
        "examinemessage",
        "messageid/0",
        "ledger/1/entry/1",
    ):
        assert (await refusal(admin, f"GET {TOPICS}/p/{path}"))[0] == 405
        assert (await refusal(admin, f"GET {NON_PERSISTENT}/n/{path}"))[0] == 405
        missing = await refusal(admin, f"GET {TOPICS}/missing/{path}")
        assert missing == (404, f"Topic {PERSISTENT}/missing not found")
    assert (await refusal(admin, f"GET {TOPICS.replace('public', 'nope')}/t/examinemessage"))[0] == 404


async def test_last_message_id_names_the_partition(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/p/partitions", 2)
    status, found = await call(admin, f"GET {TOPICS}/p-partition-1/lastMessageId")
    assert status == 200
    assert isinstance(found, dict)
    assert (found["entryId"], found["partitionIndex"]) == (-1, 1)


async def test_last_message_id_has_the_index_in_a_batch(admin: ClientSession, broker: BrokerService) -> None:
    """As Apache Pulsar 4.2.4 answered, also for a batch of one message."""
    for size in (1, 2):
        metadata = metadata_of(0)
        metadata.num_messages_in_batch = size
        await publish(broker, f"{PERSISTENT}/b{size}", [(metadata, b"\0" * 16)])
        status, found = await call(admin, f"GET {TOPICS}/b{size}/lastMessageId")
        assert isinstance(found, dict)
        assert found.pop("ledgerId") >= 0
        assert (status, found) == (
            200,
            {
                "entryId": 0,
                "partitionIndex": -1,
                "batchIndex": size - 1,
                "batchSize": 0,
                "outstandingAcksInSameBatch": 0,
                "originalBatchSize": 0,
            },
        )


async def test_examine_of_an_empty_topic_is_refused(admin: ClientSession) -> None:
    await call(admin, f"PUT {TOPICS}/t")
    assert await refusal(admin, f"GET {TOPICS}/t/examinemessage") == (
        412,
        "Could not examine messages due to the total message is zero",
    )


def test_time_outside_of_the_calendar_is_shown_as_a_number() -> None:
    from broker.admin.topics.message_answer import _time

    assert _time(2**62) == str(2**62)
