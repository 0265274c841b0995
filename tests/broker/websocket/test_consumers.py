"""Consumers and readers on WebSockets: windows, acknowledgements, redelivery, dead letters, several topics."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from aiohttp import ClientSession

from broker.compose.broker_service import BrokerService
from broker.service.producer import Producer
from broker.service.subscriptions.subscription import Subscription
from broker.service.topics.persistent_topic import PersistentTopic
from broker.websocket.bodies import Sender, batch_body, single_body
from broker.websocket.json_forms import SendRequest, read_send
from foundation.model.topic_name import parse_topic_name
from protocol.frame import message_body
from protocol.pulsar_api_pb2 import MessageIdData, MessageMetadata
from tests.broker.websocket.conftest import Connect, Socket, a_broker, b64, until
from tests.fakes.ports import FakeProducerPort
from tests.fakes.sends import send

TOPIC = "persistent/public/default/t"
PRODUCER = f"/ws/v2/producer/{TOPIC}"
CONSUMER = f"/ws/v2/consumer/{TOPIC}/s"
READER = f"/ws/v2/reader/{TOPIC}"


def topic_of(broker: BrokerService, name: str = "t") -> PersistentTopic:
    topic = broker.registry.topics[f"persistent://public/default/{name}"]
    assert isinstance(topic, PersistentTopic)
    return topic


def subscription_of(broker: BrokerService, name: str = "t") -> Subscription:
    return topic_of(broker, name).subscriptions["s"]


async def test_acknowledged_messages_do_not_come_again(connect: Connect, broker: BrokerService) -> None:
    consumer, producer = await connect(CONSUMER), await connect(PRODUCER)
    await producer.publish(*"abc")
    assert await consumer.payloads(2) == ["a", "b"]
    subscription = subscription_of(broker)
    await until(lambda: subscription.cursor.backlog == 1)
    await consumer.inner.close()
    await until(lambda: not subscription.consumers)
    assert await (await connect(CONSUMER)).payloads(1) == ["c"]


async def test_window_is_the_receiver_queue_less_the_unacknowledged(connect: Connect) -> None:
    consumer, producer = await connect(CONSUMER + "?receiverQueueSize=2"), await connect(PRODUCER)
    await producer.publish(*"abcd")
    first = [await consumer.next() for _ in range(2)]
    await consumer.says_nothing()
    await consumer.send({"messageId": first[0]["messageId"]})
    assert await consumer.payloads(2) == ["c", "d"]


async def test_window_holds_within_a_batch(connect: Connect) -> None:
    consumer = await connect(CONSUMER + "?receiverQueueSize=1")
    producer = await connect(
        PRODUCER + "?batchingEnabled=true&batchingMaxPublishDelay=60000&batchingMaxMessages=3"
    )
    for one in "abc":
        await producer.send({"payload": b64(one)})
    message = await consumer.next()
    await consumer.says_nothing()
    await consumer.send({"messageId": message["messageId"]})
    assert await consumer.payloads(2) == ["b", "c"]


async def test_batch_is_acknowledged_with_its_last_message(connect: Connect, broker: BrokerService) -> None:
    consumer = await connect(CONSUMER)
    producer = await connect(
        PRODUCER + "?batchingEnabled=true&batchingMaxPublishDelay=60000&batchingMaxMessages=3"
    )
    for one in "abc":
        await producer.send({"payload": b64(one)})
    messages = [await consumer.next() for _ in range(3)]
    for message in (messages[2], messages[0]):
        await consumer.send({"messageId": message["messageId"]})
    await consumer.says_nothing()
    cursor = subscription_of(broker).cursor
    assert cursor.backlog > 0
    await consumer.send({"messageId": messages[1]["messageId"]})
    await until(lambda: cursor.backlog == 0)


async def test_pull_mode_sends_what_is_permitted(connect: Connect) -> None:
    consumer = await connect(CONSUMER + "?pullMode=true&subscriptionType=Shared")
    producer = await connect(PRODUCER)
    await producer.publish(*"abc")
    await consumer.says_nothing()
    await consumer.send({"type": "permit", "permitMessages": 2})
    assert await consumer.payloads(2) == ["a", "b"]
    await consumer.says_nothing()
    await consumer.send({"type": "permit", "permitMessages": 2})
    assert await consumer.payloads(1) == ["c"]


@pytest.mark.parametrize("kind", ["Shared", "Exclusive", "Failover", "Key_Shared"])
async def test_negatively_acknowledged_message_comes_again(connect: Connect, kind: str) -> None:
    path = f"{CONSUMER}?subscriptionType={kind}&negativeAckRedeliveryDelay=100&receiverQueueSize=1"
    consumer, producer = await connect(path), await connect(PRODUCER)
    await producer.publish("a")
    message = await consumer.next()
    await consumer.send({"type": "negativeAcknowledge", "messageId": message["messageId"]})
    again = await consumer.next()
    assert (again["messageId"], again["payload"]) == (message["messageId"], message["payload"])
    if kind in ("Shared", "Key_Shared"):
        assert (message["redeliveryCount"], again["redeliveryCount"]) == (0, 1)
    await consumer.send({"messageId": again["messageId"]})
    await producer.publish("b")
    assert await consumer.payloads(1) == ["b"]


@pytest.mark.parametrize("kind", ["Shared", "Exclusive"])
async def test_message_that_is_not_acknowledged_in_time_comes_again(connect: Connect, kind: str) -> None:
    path = f"{CONSUMER}?subscriptionType={kind}&ackTimeoutMillis=1000"
    consumer, producer = await connect(path), await connect(PRODUCER)
    await producer.publish(*"ab")
    first = [await consumer.next() for _ in range(2)]
    await consumer.send({"messageId": first[0]["messageId"]})
    again = await consumer.next()
    assert again["messageId"] == first[1]["messageId"]


async def test_message_sent_too_often_goes_to_the_dead_letter_topic(
    connect: Connect, broker: BrokerService
) -> None:
    path = f"{CONSUMER}?subscriptionType=Shared&maxRedeliverCount=1&negativeAckRedeliveryDelay=50"
    consumer, producer = await connect(path), await connect(PRODUCER)
    dead = await connect("/ws/v2/reader/persistent/public/default/t-s-DLQ?messageId=earliest")
    await producer.publish("a", key="k", properties={"mine": "1"})
    for count in range(2):
        message = await consumer.next()
        assert message["redeliveryCount"] == count
        await consumer.send({"type": "negativeAcknowledge", "messageId": message["messageId"]})
    letter = await dead.next()
    assert (letter["payload"], letter["key"]) == (b64("a"), "k")
    assert (
        letter["properties"].items()
        >= {
            "mine": "1",
            "REAL_TOPIC": "persistent://public/default/t",
            "REAL_SUBSCRIPTION": "s",
        }.items()
    )
    cursor = subscription_of(broker).cursor
    await until(lambda: cursor.backlog == 0)


async def test_named_dead_letter_topic_is_used(connect: Connect) -> None:
    path = (
        f"{CONSUMER}?subscriptionType=Shared&maxRedeliverCount=1&negativeAckRedeliveryDelay=50"
        "&deadLetterTopic=persistent://public/default/dead"
    )
    consumer, producer = await connect(path), await connect(PRODUCER)
    dead = await connect("/ws/v2/reader/persistent/public/default/dead?messageId=earliest")
    await producer.publish("a")
    for _ in range(2):
        message = await consumer.next()
        await consumer.send({"type": "negativeAcknowledge", "messageId": message["messageId"]})
    assert await dead.payloads(1) == ["a"]


async def test_reader_starts_where_it_is_told(connect: Connect) -> None:
    producer = await connect(PRODUCER)
    answers = await producer.publish(*"abc")
    assert await (await connect(READER + "?messageId=earliest")).payloads(3) == ["a", "b", "c"]
    middle = await connect(READER, params={"messageId": answers[0]["messageId"]})
    assert await middle.payloads(2) == ["b", "c"]
    latest = await connect(READER)
    await producer.publish("d")
    assert await latest.payloads(1) == ["d"]


async def test_reader_starts_in_the_middle_of_a_batch(connect: Connect) -> None:
    producer = await connect(
        PRODUCER + "?batchingEnabled=true&batchingMaxPublishDelay=60000&batchingMaxMessages=3"
    )
    for one in "abc":
        await producer.send({"payload": b64(one)})
    answers = [await producer.next() for _ in range(3)]
    reader = await connect(READER, params={"messageId": answers[0]["messageId"]})
    assert await reader.payloads(2) == ["b", "c"]


async def test_every_text_of_a_reader_makes_room_for_one_message(
    connect: Connect, broker: BrokerService
) -> None:
    producer = await connect(PRODUCER)
    await producer.publish(*"abc")
    reader = await connect(READER + "?messageId=earliest&receiverQueueSize=1")
    first = await reader.next()
    # Recorded of Pulsar 4.2.4: any text counts.
    await reader.send("nojson")
    assert (await reader.next())["messageId"] != first["messageId"]
    assert await reader.ask({"type": "isEndOfTopic"}) == {"endOfTopic": False}


async def test_end_of_topic_is_told_when_asked(connect: Connect, http: ClientSession) -> None:
    consumer, producer = await connect(CONSUMER), await connect(PRODUCER)
    await producer.publish("a")
    headers = {"Content-Type": "application/json"}
    async with http.post(f"/admin/v2/{TOPIC}/terminate", headers=headers) as answer:
        assert answer.status == 200
    message = await consumer.next()
    assert await consumer.ask({"type": "isEndOfTopic"}) == {"endOfTopic": False}
    await consumer.send({"messageId": message["messageId"]})
    while await consumer.ask({"type": "isEndOfTopic"}) == {"endOfTopic": False}:  # noqa: ASYNC110 - the API has no event for it
        await asyncio.sleep(0.01)


async def test_unsubscribe_deletes_the_subscription_and_keeps_the_session(
    connect: Connect, broker: BrokerService
) -> None:
    consumer = await connect(CONSUMER)
    await consumer.send({"type": "unsubscribe"})
    topic = topic_of(broker)
    await until(lambda: "s" not in topic.subscriptions)
    assert not consumer.inner.closed


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("nojson", "no JSON"),
        ("{}", "messageId is missing"),
        ("[]", "object is expected"),
        ('{"messageId":"***"}', "no message id"),
        ('{"messageId":"abc"}', "no message id"),
        ('{"type":"ping"}', "unknown type"),
        ('{"type":5}', "unknown type"),
        ('{"type":"permit"}', "permitMessages"),
        ('{"type":"permit","permitMessages":-1}', "permitMessages"),
        ('{"type":"negativeAcknowledge"}', "messageId is missing"),
    ],
)
async def test_broken_command_ends_the_session_with_the_recorded_code(
    connect: Connect, text: str, reason: str
) -> None:
    consumer = await connect(CONSUMER)
    await consumer.send(text)
    code, told = await consumer.closed()
    assert code == 1011
    assert reason in told


async def test_unknown_message_ids_harm_nothing(connect: Connect, broker: BrokerService) -> None:
    consumer, producer = await connect(CONSUMER), await connect(PRODUCER)
    await producer.publish("a")
    for numbers in ((0, 0, 7, 8), (2**64 - 1, 2**64 - 1, -1, 0), (999, 999, -1, 0), (0, 0, 5, 2**31 - 1)):
        ledger, entry, index, size = numbers
        sent = MessageIdData(ledgerId=ledger, entryId=entry, batch_index=index, batch_size=size)
        await consumer.send({"messageId": base64.b64encode(sent.SerializeToString()).decode()})
    assert await consumer.payloads(1) == ["a"]
    await producer.publish("b")
    assert await consumer.payloads(1) == ["b"]
    await until(lambda: subscription_of(broker).cursor.backlog == 0)


async def test_acknowledgement_of_a_former_session_counts(connect: Connect, broker: BrokerService) -> None:
    consumer, producer = await connect(CONSUMER), await connect(PRODUCER)
    await producer.publish("a")
    message = await consumer.next()
    await consumer.inner.close()
    subscription = subscription_of(broker)
    await until(lambda: not subscription.consumers)
    again = await connect(CONSUMER + "?pullMode=true")
    await again.send({"messageId": message["messageId"]})
    await until(lambda: subscription.cursor.backlog == 0)


async def test_several_topics_come_over_one_socket(connect: Connect, broker: BrokerService) -> None:
    names = ["persistent://public/default/t", "persistent://public/default/u"]
    consumer = await connect("/ws/v3/consumer/s", params={"topics": ",".join(names)})
    for topic, payload in (("t", "a"), ("u", "b")):
        producer = await connect(f"/ws/v2/producer/persistent/public/default/{topic}")
        await producer.publish(payload)
    assert sorted(await consumer.payloads(2)) == ["a", "b"]
    for topic in "tu":
        cursor = subscription_of(broker, topic).cursor
        await until(lambda cursor=cursor: cursor.backlog == 0)  # type: ignore[misc]


async def test_topics_of_a_pattern_come_over_one_socket(connect: Connect, broker: BrokerService) -> None:
    await broker.partitioned.create(parse_topic_name("persistent://public/default/x1"), 2)
    await broker.registry.get(parse_topic_name("persistent://public/default/x2"), create=True)
    await broker.registry.get(parse_topic_name("persistent://public/default/y"), create=True)
    consumer = await connect("/ws/v3/consumer/s", params={"topicsPattern": "persistent://public/default/x.*"})
    for topic in ("x1", "x2", "y"):
        await (await connect(f"/ws/v2/producer/persistent/public/default/{topic}")).publish(topic)
    assert sorted(await consumer.payloads(2)) == ["x1", "x2"]


async def test_non_persistent_topic_is_served(connect: Connect) -> None:
    path = "non-persistent/public/default/n"
    consumer = await connect(f"/ws/v2/consumer/{path}/s?receiverQueueSize=1")
    producer = await connect(f"/ws/v2/producer/{path}")
    for payload in "abc":
        await producer.publish(payload)
        assert await consumer.payloads(1) == [payload]


async def test_unload_closes_the_sessions_with_a_remedy(connect: Connect, http: ClientSession) -> None:
    consumer, producer = await connect(CONSUMER), await connect(PRODUCER)
    headers = {"Content-Type": "application/json"}
    async with http.put(f"/admin/v2/{TOPIC}/unload", headers=headers) as answer:
        assert answer.status == 204
    for socket in (consumer, producer):
        code, reason = await socket.closed()
        assert code == 1012
        assert "connect again" in reason


async def publish_raw(broker: BrokerService, *bodies: bytes) -> None:
    """Publishes bodies that no WebSocket would send."""
    topic = await broker.registry.get(parse_topic_name("persistent://public/default/t"), create=True)
    port = FakeProducerPort()
    producer = Producer(topic, port, producer_id=0, name="raw")
    await topic.add_producer(producer)
    for number, body in enumerate(bodies):
        send(producer, number, body)
    await until(lambda: len(port.receipts) == len(bodies))


def encrypted_body() -> bytes:
    metadata = MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1, encryption_param=b"p")
    metadata.encryption_keys.add(key="k", value=b"v")
    return message_body(metadata, b"secret")


async def test_encrypted_message_is_sent_as_it_is_where_asked_for(
    connect: Connect, broker: BrokerService
) -> None:
    await publish_raw(broker, encrypted_body())
    reader = await connect(READER + "?messageId=earliest&cryptoFailureAction=CONSUME")
    message = await reader.next()
    assert message["payload"] == b64("secret")
    context = message["encryptionContext"]
    assert context["keys"] == {"k": {"keyValue": b64("v"), "metadata": {}}}
    assert (context["param"], context["batchSize"]) == (b64("p"), None)


@pytest.mark.parametrize(("action", "backlog"), [("FAIL", 1), ("DISCARD", 0)])
async def test_encrypted_message_is_withheld_or_discarded(
    connect: Connect, broker: BrokerService, action: str, backlog: int
) -> None:
    plain = single_body(Sender("raw", 0), 1, 1, read_send(json.dumps({"payload": b64("plain")}), 0))
    await publish_raw(broker, encrypted_body(), plain)
    consumer = await connect(f"{CONSUMER}?subscriptionInitialPosition=Earliest&cryptoFailureAction={action}")
    assert await consumer.payloads(1) == ["plain"]
    cursor = subscription_of(broker).cursor
    await until(lambda: cursor.backlog == backlog)


async def test_large_message_is_put_together_and_acknowledged_as_a_whole(
    connect: Connect, broker: BrokerService
) -> None:
    def part(number: int) -> bytes:
        metadata = MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1, uuid="u")
        metadata.chunk_id, metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = number, 3, 6
        metadata.uncompressed_size = 6
        return message_body(metadata, (b"ab", b"cd", b"ef")[number])

    await publish_raw(broker, *map(part, range(3)))
    consumer = await connect(CONSUMER + "?subscriptionInitialPosition=Earliest&receiverQueueSize=1")
    assert await consumer.payloads(1) == ["abcdef"]
    cursor = subscription_of(broker).cursor
    await until(lambda: cursor.backlog == 0)


async def test_unreadable_entry_is_logged_and_passed_over(
    connect: Connect, broker: BrokerService, caplog: pytest.LogCaptureFixture
) -> None:
    requests = [SendRequest(payload=b"a"), SendRequest(payload=b"b")]
    torn = batch_body(Sender("raw", 0), 0, 1, requests)
    metadata = MessageMetadata(producer_name="raw", sequence_id=0, publish_time=1, num_messages_in_batch=5)
    await publish_raw(broker, message_body(metadata, b"\xff\xff\xff\xffx"), torn)
    consumer = await connect(CONSUMER + "?subscriptionInitialPosition=Earliest")
    assert await consumer.payloads(2) == ["a", "b"]
    assert "could not read" in caplog.text


async def test_slow_consumer_costs_a_bounded_amount_of_memory() -> None:
    """A client that reads nothing gets no more than the kernel's buffers and a bounded queue hold."""
    async with (
        a_broker() as broker,
        ClientSession(base_url=broker.addresses.admin_url) as http,
    ):
        producer = Socket(await http.ws_connect(PRODUCER))
        slow = await http.ws_connect(CONSUMER + "?receiverQueueSize=1000")
        payload = b64("x" * 100_000)
        count = 400
        for _ in range(count):
            await producer.send({"payload": payload})
            await producer.next()
        subscription = subscription_of(broker)
        (consumer,) = subscription.consumers
        # 40 MB are stored; the client's own library and the kernel have taken some MB, the rest stays in the log.
        assert consumer.messages_out < count
        before = consumer.messages_out
        got = 0
        while got < count:
            message = await slow.receive_json(timeout=60)
            await slow.send_json({"messageId": message["messageId"]})
            got += 1
        assert before < consumer.messages_out == count
        await until(lambda: subscription.cursor.backlog == 0)
        await slow.close()
