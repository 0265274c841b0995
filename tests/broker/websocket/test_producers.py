"""Producers on WebSockets: the recorded forms of answers, errors, batches, partitions, limits."""

from __future__ import annotations

import base64
import json

import pytest
from aiohttp import ClientSession, WSMsgType

from broker.compose.broker_service import BrokerService
from broker.service.topics.persistent_topic import PersistentTopic
from broker.websocket.producing import java_string_hash
from foundation.model.topic_name import parse_topic_name
from protocol.pulsar_api_pb2 import MessageIdData
from tests.broker.websocket.conftest import Connect, Socket, a_broker, b64, until

PRODUCER = "/ws/v2/producer/persistent/public/default/t"
READER = "/ws/v2/reader/persistent/public/default/t?messageId=earliest"


async def test_answer_has_the_recorded_form(connect: Connect) -> None:
    producer = await connect(PRODUCER)
    await producer.send({"payload": b64("hello")})
    # Recorded of Pulsar 4.2.4: {"result":"ok","messageId":"CAMQADAA","errorCode":0,"schemaVersion":0}
    text = (await producer.inner.receive()).data
    sent = MessageIdData.FromString(base64.b64decode(json.loads(text)["messageId"]))
    assert (
        text
        == f'{{"result":"ok","messageId":"{json.loads(text)["messageId"]}","errorCode":0,"schemaVersion":0}}'
    )
    assert (sent.entryId, sent.HasField("partition"), sent.HasField("batch_index"), sent.batch_size) == (
        0,
        False,
        False,
        0,
    )
    answer = await producer.ask({"payload": b64("hello"), "context": "7"})
    assert list(answer) == ["result", "messageId", "context", "errorCode", "schemaVersion"]
    assert answer["context"] == "7"


async def test_message_has_the_recorded_form(connect: Connect) -> None:
    producer, reader = await connect(PRODUCER), await connect(READER)
    sent = {
        "payload": b64("hello"),
        "key": "k",
        "properties": {"a": "b", "n": 1},
        "eventTime": "2026-01-02T03:04:05.678Z",
    }
    answer = await producer.ask(sent)
    message = await reader.next()
    assert list(message) == [
        "messageId",
        "payload",
        "properties",
        "publishTime",
        "redeliveryCount",
        "eventTime",
        "key",
    ]
    assert message["messageId"] == answer["messageId"]
    assert (message["payload"], message["key"]) == (sent["payload"], "k")
    assert message["properties"] == {"a": "b", "n": "1"}
    assert message["eventTime"] == sent["eventTime"]
    assert message["redeliveryCount"] == 0


@pytest.mark.parametrize(
    ("text", "result", "context"),
    [
        ("nojson", "send-error:3", None),
        ("[]", "send-error:3", None),
        ('""', "send-error:3", None),
        ('{"payload":"aGVsbG8=","sequenceId":"x"}', "send-error:3", None),
        ('{"payload":"aGVsbG8=","properties":[1]}', "send-error:3", None),
        ('{"payload":"aGVsbG8=","properties":{"a":{}}}', "send-error:3", None),
        ('{"payload":"aGVsbG8=","key":"\\ud800"}', "send-error:3", None),
        ('{"payload":"aGVsbG8=","properties":{"\\ud800":"x"}}', "send-error:3", None),
        ('{"payload":"aGVsbG8=","properties":{"a":{}},"context":"c"}', "send-error:3", "c"),
        ('{"payload":"aGVsbG8=","key":[],"context":"c"}', "send-error:3", "c"),
        ('{"payload":[],"context":"c"}', "send-error:3", "c"),
        ('{"payload":"aGVsbG8=","eventTime":{},"context":"c"}', "send-error:3", "c"),
        ('{"payload":"aGVsbG8=","deliverAt":' + "9" * 30 + "}", "send-error:3", None),
        ("[" * 50_000, "send-error:3", None),
        ('{"a":' * 5000, "send-error:3", None),
        ("null", "send-error:7", None),
        ("{}", "send-error:7", None),
        ('{"payload":"***","context":"c"}', "send-error:7", "c"),
        ('{"payload":null,"context":"c"}', "send-error:7", "c"),
        ('{"payload":"aGVsbG8=","eventTime":"x","context":"c"}', "send-error:7", "c"),
        ('{"payload":"aGVsbG8=","eventTime":"2026-01-02T03:04:05.678"}', "send-error:7", None),
    ],
)
async def test_broken_text_gets_the_recorded_number_and_the_session_goes_on(
    connect: Connect, text: str, result: str, context: str | None
) -> None:
    producer = await connect(PRODUCER)
    answer = await producer.ask(text)
    assert answer["result"] == result
    assert answer["errorMsg"]
    assert answer.get("context") == context
    assert (answer["errorCode"], answer["schemaVersion"]) == (0, 0)
    assert [one["result"] for one in await producer.publish("next")] == ["ok"]


@pytest.mark.parametrize(
    "text",
    ['{"payload":"abc"}', '{"payload":"aGVsbG8=","unknown":1}', '{"payload":"aGVsbG8=","key":5,"context":7}'],
)
async def test_unusual_text_is_accepted_as_recorded(connect: Connect, text: str) -> None:
    assert (await (await connect(PRODUCER)).ask(text))["result"] == "ok"


async def test_binary_text_is_ignored(connect: Connect) -> None:
    producer = await connect(PRODUCER)
    await producer.inner.send_bytes(b"abc")
    assert [one["result"] for one in await producer.publish("next")] == ["ok"]


async def test_batch_is_one_entry_with_recorded_ids(connect: Connect, broker: BrokerService) -> None:
    producer = await connect(
        PRODUCER
        + "?batchingEnabled=true&batchingMaxPublishDelay=60000&batchingMaxMessages=3&compressionType=LZ4"
    )
    for number in range(3):
        await producer.send({"payload": b64(f"m{number}"), "context": str(number), "key": "k"})
    answers = [await producer.next() for _ in range(3)]
    ids = [MessageIdData.FromString(base64.b64decode(answer["messageId"])) for answer in answers]
    assert [answer["context"] for answer in answers] == ["0", "1", "2"]
    assert [(one.entryId, one.batch_index, one.batch_size) for one in ids] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
    ]
    topic = broker.registry.topics["persistent://public/default/t"]
    assert (topic.entries_in, topic.messages_in) == (1, 3)
    reader = await connect(READER)
    messages = [await reader.next() for _ in range(3)]
    got = [MessageIdData.FromString(base64.b64decode(one["messageId"])) for one in messages]
    assert [(one.entryId, one.batch_index, one.batch_size) for one in got] == [
        (0, 0, 3),
        (0, 1, 3),
        (0, 2, 3),
    ]
    assert [base64.b64decode(one["payload"]) for one in messages] == [b"m0", b"m1", b"m2"]


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
async def test_compressed_message_is_read_as_it_was(connect: Connect, codec: str) -> None:
    producer, reader = await connect(f"{PRODUCER}?compressionType={codec}"), await connect(READER)
    await producer.publish("x" * 5000)
    assert await reader.payloads(1) == ["x" * 5000]


@pytest.mark.parametrize("hashing", ["JavaStringHash", "Murmur3_32Hash"])
async def test_partitions_are_chosen_by_key_else_in_turns(
    connect: Connect, broker: BrokerService, hashing: str
) -> None:
    name = parse_topic_name("persistent://public/default/p")
    await broker.partitioned.create(name, 4)
    path = f"/ws/v2/producer/persistent/public/default/p?hashingScheme={hashing}"
    producer = await connect(path + "&messageRoutingMode=RoundRobinPartition")

    def partitions(answers: list[dict[str, str]]) -> list[int]:
        return [MessageIdData.FromString(base64.b64decode(one["messageId"])).partition for one in answers]

    assert set(partitions(await producer.publish(*"abcd"))) == {0, 1, 2, 3}
    assert len(set(partitions(await producer.publish(*"abcd", key="k")))) == 1
    single = await connect(path)
    assert len(set(partitions(await single.publish(*"abcdefgh")))) == 1
    consumer = await connect(
        "/ws/v2/consumer/persistent/public/default/p/s?subscriptionInitialPosition=Earliest"
    )
    assert sorted(await consumer.payloads(16)) == sorted([*"abcd", *"abcd", *"abcdefgh"])
    for index in range(4):
        topic = broker.registry.topics[str(name.with_partition(index))]
        assert isinstance(topic, PersistentTopic)
        cursor = topic.subscriptions["s"].cursor
        await until(lambda cursor=cursor: cursor.backlog == 0)  # type: ignore[misc]


def test_java_string_hash_is_javas() -> None:
    # "hello".hashCode() in Java, and one that is negative there.
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("polygenelubricants") == (-2147483648 & 0x7FFFFFFF)


async def test_message_above_the_limit_is_refused_and_text_above_it_ends_the_session() -> None:
    async with (
        a_broker("maxMessageSize=2000", "webSocketMaxTextFrameSize=10000") as broker,
        ClientSession(base_url=broker.addresses.admin_url) as http,
    ):
        producer = Socket(await http.ws_connect(PRODUCER))
        answer = await producer.ask({"payload": b64("x" * 3000), "context": "c"})
        assert (answer["result"], answer["context"]) == ("send-error:8", "c")
        assert "maxMessageSize=2000" in answer["errorMsg"]
        await producer.send({"payload": "A" * 10_000})
        assert (await producer.closed())[0] == 1009


async def test_delayed_message_waits_on_a_shared_subscription(connect: Connect) -> None:
    consumer = await connect("/ws/v2/consumer/persistent/public/default/t/s?subscriptionType=Shared")
    producer = await connect(PRODUCER)
    await producer.publish("later", deliverAfterMs=1500)
    await producer.publish("now")
    assert await consumer.payloads(2) == ["now", "later"]


async def test_sequence_ids_go_on_where_the_client_says(connect: Connect, broker: BrokerService) -> None:
    await broker.namespaces.set_policy("public/default", "deduplicationEnabled", True)
    producer = await connect(PRODUCER + "?producerName=p&initialSequenceId=41")
    await producer.publish("a")
    topic = broker.registry.topics["persistent://public/default/t"]
    assert topic.last_sequence_id("p") == 42
    await producer.inner.close()
    await until(lambda: not topic.access.producers)
    again = await connect(PRODUCER + "?producerName=p")
    assert [one["result"] for one in await again.publish("b")] == ["ok"]
    assert topic.last_sequence_id("p") == 43


async def test_closing_publishes_the_batch_that_waits(connect: Connect, broker: BrokerService) -> None:
    producer = await connect(PRODUCER + "?batchingEnabled=true&batchingMaxPublishDelay=60000")
    await producer.send({"payload": b64("a")})
    await producer.inner.close()
    reader = await connect(READER)
    assert await reader.payloads(1) == ["a"]
    await until(lambda: broker.net.publish_buffer.used_bytes == 0)


async def test_terminated_topic_closes_the_producer_and_refuses_the_next(
    connect: Connect, http: ClientSession
) -> None:
    producer = await connect(PRODUCER)
    await producer.publish("a")
    path = "/admin/v2/persistent/public/default/t/terminate"
    async with http.post(path, headers={"Content-Type": "application/json"}) as answer:
        assert answer.status == 200
    await producer.send({"payload": b64("b")})
    message = await producer.inner.receive()
    while message.type is WSMsgType.TEXT:
        assert json.loads(message.data)["result"] == "send-error:8"
        message = await producer.inner.receive()
    assert producer.inner.close_code in (1012, 1006) or message.data == 1012
