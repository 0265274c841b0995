"""Delayed messages with the official Python client, over restarts and kill -9."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pulsar
import pytest

from protocol.pulsar_api_pb2 import MessageMetadata, NotAllowedError
from tests.interop.support import (
    RECEIVE_MS,
    Admin,
    Json,
    nothing_comes,
    numbered,
    publish,
    receive,
    wait_until,
)
from tests.support.ports import free_port
from tests.support.raw_client import RawConnection, build_command, payload_frame
from tests.vectors.broker_process import BrokerProcess

TICK_MS = 100
SETTINGS = {
    "delayedDeliveryTickTimeMillis": str(TICK_MS),
    "isDelayedDeliveryDeliverAtTimeStrict": "true",
    "delayedDeliveryMinIndexCountPerBucket": "50",
    "delayedDeliveryMaxIndexesPerBucketSnapshotSegment": "20",
    "managedLedgerDefaultMarkDeleteRateLimit": "0",
}
YEAR_9999_MS = 253_402_300_799_000
DAY = timedelta(days=1)
Type = pulsar.ConsumerType
Earliest = pulsar.InitialPosition.Earliest


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def arrivals(consumer: pulsar.Consumer, count: int) -> list[tuple[bytes, int]]:
    """The next messages, each with the time at which it came."""
    found = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_MS)
        found.append((message.data(), now_ms()))
        consumer.acknowledge(message)
    return found


@pytest.mark.parametrize("kind", [Type.Shared, Type.KeyShared])
def test_message_is_not_delivered_before_its_time(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", kind)
    producer = client.create_producer(topic)
    # From one moment, and without a wait for each receipt: a slow disk must not change the order of the times.
    begun = now_ms()
    due: dict[bytes, int] = {}
    for number, delay_ms in enumerate([3000, 0, 1400, 2200]):
        body = b"%d" % number
        due[body] = begun + delay_ms
        # `deliver_at` is exact to the millisecond; `deliver_after` counts from the client's send.
        producer.send_async(
            body, lambda *_: None, partition_key="k", deliver_at=due[body] if delay_ms else None
        )
    came = arrivals(consumer, 4)
    assert [body for body, _ in came] == [b"1", b"2", b"3", b"0"]
    assert all(at >= due[body] for body, at in came if body != b"1")


def test_deliver_after_waits_and_other_types_do_not(client: pulsar.Client, topic: str) -> None:
    shared = client.subscribe(topic, "shared", Type.Shared)
    others = [client.subscribe(topic, kind.name, kind) for kind in (Type.Exclusive, Type.Failover)]
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    sent_at = now_ms()
    client.create_producer(topic).send(b"x", deliver_after=timedelta(seconds=1))
    for other in others:
        assert receive(other, 1) == [b"x"]
    assert reader.read_next(RECEIVE_MS).data() == b"x"
    [(_, came_at)] = arrivals(shared, 1)
    assert came_at >= sent_at + 1000


def test_times_in_the_past_come_at_once_and_year_9999_waits(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    producer = client.create_producer(topic)
    for at_ms in (1, now_ms() - 60_000, YEAR_9999_MS, 2**63 - 1):
        producer.send(b"%d" % at_ms, deliver_at=at_ms)
    producer.send(b"last")
    assert len(receive(consumer, 3)) == 3
    assert nothing_comes(consumer)
    names = ("msgDelayed", "msgBacklog", "msgBacklogNoDelayed")
    wait_until(
        lambda: [admin.subscription(topic, "s")[name] for name in names] == [2, 2, 0],
        "three are acknowledged and two wait",
    )
    assert admin.metric("pulsar_subscription_delayed", topic=f"persistent://public/default/{topic}") == 2
    assert admin.metric("pulsar_delayed_message_index_size_bytes") > 0


def test_permits_are_left_for_messages_that_are_due(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared, receiver_queue_size=1)
    producer = client.create_producer(topic, batching_enabled=False)
    publish(producer, numbered(300), deliver_after=DAY)
    publish(producer, numbered(20))
    assert sorted(receive(consumer, 20)) == sorted(numbered(20))


def test_negative_acknowledgement_brings_a_delayed_message_back(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared, negative_ack_redelivery_delay_ms=200)
    client.create_producer(topic).send(b"x", deliver_after=timedelta(milliseconds=300))
    message = consumer.receive(RECEIVE_MS)
    assert message.redelivery_count() == 0
    consumer.negative_acknowledge(message)
    assert consumer.receive(RECEIVE_MS).redelivery_count() == 1


def test_seek_brings_back_what_is_due_and_holds_the_rest(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    producer = client.create_producer(topic)
    producer.send(b"later", deliver_after=DAY)
    producer.send(b"soon", deliver_after=timedelta(milliseconds=300))
    assert receive(consumer, 1) == [b"soon"]
    consumer.seek(pulsar.MessageId.earliest)
    assert receive(consumer, 1) == [b"soon"]
    assert nothing_comes(consumer)


def test_skip_all_forgets_delayed_messages(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    publish(client.create_producer(topic, batching_enabled=False), numbered(120), deliver_after=DAY)
    wait_until(lambda: admin.subscription(topic, "s")["msgDelayed"] == 120, "120 delayed messages")
    admin.post(f"persistent/public/default/{topic}/subscription/s/skip_all")
    assert admin.subscription(topic, "s")["msgDelayed"] == 0
    assert nothing_comes(consumer)


def test_policy_of_a_topic_acts_on_connected_clients(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    producer = client.create_producer(topic)
    producer.send(b"waits", deliver_after=DAY)
    assert nothing_comes(consumer)
    off: Json = {"active": False, "tickTime": 100, "maxDeliveryDelayInMillis": 0}
    admin.post(f"persistent/public/default/{topic}/delayedDelivery", off)
    producer.send(b"at once", deliver_after=DAY)
    assert receive(consumer, 1) == [b"at once"]
    admin.delete(f"persistent/public/default/{topic}/delayedDelivery")
    producer.send(b"waits again", deliver_after=DAY)
    assert nothing_comes(consumer)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {**SETTINGS, "brokerServicePort": str(free_port()), "bindAddress": "127.0.0.1"}
    with BrokerProcess(tmp_path, settings) as running:
        yield running


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_delayed_messages_survive_a_restart_of_the_broker(
    own_broker: BrokerProcess, connected: Callable[[str], pulsar.Client], topic: str, how: str
) -> None:
    client = connected(own_broker.addresses.pulsar)
    consumer = client.subscribe(topic, "s", Type.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    publish(producer, numbered(120), deliver_after=DAY)
    publish(producer, [b"now"])
    due_ms = now_ms() + 4000
    publish(producer, [b"soon"], deliver_at=due_ms)
    assert receive(consumer, 1) == [b"now"]
    wait_until(lambda: Admin.of(own_broker).subscription(topic, "s")["msgDelayed"] == 121, "all waiting")
    client.close()
    if how == "kill":
        own_broker.kill()
    else:
        assert own_broker.stop() == 0
    own_broker.start()
    client = connected(own_broker.addresses.pulsar)
    consumer = client.subscribe(topic, "s", Type.Shared)
    [(body, came_at)] = arrivals(consumer, 1)
    if how == "kill" and body == b"now":
        # Its acknowledgement was not stored yet when the broker was killed; no client waits for that by default.
        [(body, came_at)] = arrivals(consumer, 1)
    assert body == b"soon"
    assert came_at >= due_ms
    admin = Admin.of(own_broker)
    assert admin.subscription(topic, "s")["msgDelayed"] == 120
    # 100 of the messages were in buckets, so the restart did not read these.
    name = f"persistent://public/default/{topic}"
    assert 0 < admin.metric("pulsar_ml_cache_x_topic_misses_total", topic=name) <= 40
    consumer.unsubscribe()


async def test_delay_above_the_limit_is_refused(tmp_path: Path) -> None:
    """On the wire: clients of C++ send the refused message again for ever, to Apache's brokers too."""
    with BrokerProcess(tmp_path, {"delayedDeliveryMaxDelayInMillis": "5000"}, memory=True) as broker:
        connection = await RawConnection.open(Admin.of(broker).owner("t"))
        await connection.connect()
        connection.send("PRODUCER", topic="t", producer_id=0, request_id=1)
        await connection.receive("PRODUCER_SUCCESS")
        answers = []
        for number, delay_ms in enumerate([5000, 5001, YEAR_9999_MS, 0]):
            send = build_command("SEND", {"producer_id": 0, "sequence_id": number})
            metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=now_ms())
            if delay_ms:
                metadata.deliver_at_time = metadata.publish_time + delay_ms
            connection.send_bytes(payload_frame(send, metadata, b"x"))
            answers.append(await connection.receive("SEND_RECEIPT", "SEND_ERROR"))
        await connection.close()
        assert [answer.type_name for answer in answers] == [
            "SEND_RECEIPT",
            "SEND_ERROR",
            "SEND_ERROR",
            "SEND_RECEIPT",
        ]
        assert {answer.command.send_error.error for answer in answers[1:3]} == {NotAllowedError}
        assert Admin.of(broker).stats("t")["msgInCounter"] == 2
