"""Published messages arrive unchanged: order, batches, compression, partitions, chunks, properties and keys."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable

import pulsar
import pytest

from tests.interop.support import (
    RECEIVE_MS,
    Admin,
    nothing_comes,
    numbered,
    publish,
    receive,
)
from tests.vectors.broker_process import BrokerProcess

Earliest = pulsar.InitialPosition.Earliest


def test_a_thousand_unbatched_messages_come_in_order(client: pulsar.Client, topic: str) -> None:
    bodies = numbered(1000)
    consumer = client.subscribe(topic, "s")
    ids = publish(client.create_producer(topic), bodies)
    assert receive(consumer, 1000) == bodies
    assert len({(one.ledger_id(), one.entry_id()) for one in ids}) == 1000
    assert nothing_comes(consumer)


@pytest.mark.parametrize("compression", list(pulsar.CompressionType.__members__))
def test_a_thousand_batched_messages_come_in_order(
    client: pulsar.Client, topic: str, compression: str
) -> None:
    bodies = numbered(1000)
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_max_publish_delay_ms=60_000,
        batching_max_messages=100,
        compression_type=pulsar.CompressionType.__members__[compression],
    )
    ids = publish(producer, bodies)
    assert len({(one.ledger_id(), one.entry_id()) for one in ids}) == 10
    consumer = client.subscribe(topic, "s", initial_position=Earliest)
    assert receive(consumer, 1000) == bodies
    assert nothing_comes(consumer)


def test_a_partitioned_topic_keeps_each_key_in_one_partition_and_in_order(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    admin.create_partitioned(topic, 4)
    assert len(client.get_topic_partitions(topic)) == 4
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    for number in range(200):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 20}")
    producer.flush()
    partitions: dict[str, set[int]] = defaultdict(set)
    numbers: dict[str, list[int]] = defaultdict(list)
    for _ in range(200):
        message = consumer.receive(RECEIVE_MS)
        consumer.acknowledge(message)
        partitions[message.partition_key()].add(message.message_id().partition())
        numbers[message.partition_key()].append(int(message.data()))
    assert all(len(used) == 1 for used in partitions.values())
    assert {used for only in partitions.values() for used in only} == {0, 1, 2, 3}
    assert all(numbers[f"key-{key}"] == list(range(key, 200, 20)) for key in range(20))


def test_a_message_router_decides_the_partition(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.create_partitioned(topic, 3)
    producer = client.create_producer(
        topic, message_router=lambda message, count: len(message.data()) % count
    )
    consumer = client.subscribe(topic, "s")
    for length in (1, 2, 3, 4):
        producer.send(b"x" * length)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(4)]
    assert {len(one.data()): one.message_id().partition() for one in messages} == {1: 1, 2: 2, 3: 0, 4: 1}
    assert all(one.topic_name().endswith(f"-partition-{one.message_id().partition()}") for one in messages)


@pytest.mark.parametrize("batched", [False, True])
def test_properties_times_and_keys_pass_through(client: pulsar.Client, topic: str, batched: bool) -> None:
    producer = client.create_producer(
        topic, producer_name="named", batching_enabled=batched, properties={"of": "producer"}
    )
    consumer = client.subscribe(topic, "s", properties={"of": "consumer"})
    properties = {"a": "1", "umlaut": "\u00fc", "": "empty key"}
    producer.send(
        b"body", properties=properties, partition_key="key", ordering_key="order", event_timestamp=123456789
    )
    message = consumer.receive(RECEIVE_MS)
    assert message.data() == b"body"
    assert message.properties() == properties
    assert (message.partition_key(), message.ordering_key()) == ("key", "order")
    assert message.event_timestamp() == 123456789
    assert message.producer_name() == "named"
    assert message.publish_timestamp() > 0
    assert message.redelivery_count() == 0


def test_an_empty_body_is_not_a_missing_one(client: pulsar.Client, topic: str) -> None:
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    producer.send(b"")
    producer.send(None)
    assert [consumer.receive(RECEIVE_MS).has_null_value() for _ in range(2)] == [False, True]


def test_ten_megabytes_travel_in_chunks(client: pulsar.Client, admin: Admin, topic: str) -> None:
    body = os.urandom(10 * 1024 * 1024)
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, chunking_enabled=True)
    producer.send(body)
    producer.send(b"after")
    message = consumer.receive(RECEIVE_MS)
    assert message.data() == body
    consumer.acknowledge(message)
    assert receive(consumer, 1) == [b"after"]
    assert admin.stats(topic)["msgInCounter"] == 4, "three chunks and one message"


def test_a_message_above_the_limit_is_refused_and_the_producer_lives(
    client: pulsar.Client, topic: str
) -> None:
    producer, consumer = client.create_producer(topic), client.subscribe(topic, "s")
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(bytes(6 * 1024 * 1024))
    producer.send(b"small")
    assert receive(consumer, 1) == [b"small"]


def test_two_clients_find_the_topic_over_the_http_address(
    broker: BrokerProcess, connected: Callable[[str], pulsar.Client], admin: Admin, topic: str
) -> None:
    """Lookup and partitions over REST, messages over the binary port that the answer names."""
    admin.create_partitioned(topic, 2)
    sender, receiver = (connected(broker.addresses.admin) for _ in range(2))
    consumer = receiver.subscribe(topic, "s")
    publish(sender.create_producer(topic), numbered(100))
    assert sorted(receive(consumer, 100)) == sorted(numbered(100))


def test_a_non_persistent_topic_keeps_nothing(client: pulsar.Client, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    producer = client.create_producer(name)
    producer.send(b"nobody listens")
    first, second = client.subscribe(name, "a"), client.subscribe(name, "b")
    publish(producer, numbered(100))
    assert receive(first, 100) == numbered(100)
    assert receive(second, 100) == numbered(100)
    first.close()
    assert nothing_comes(client.subscribe(name, "a", initial_position=Earliest))


def test_a_non_persistent_shared_subscription_deals_messages_out(client: pulsar.Client, topic: str) -> None:
    name = f"non-persistent://public/default/{topic}"
    consumers = [client.subscribe(name, "s", pulsar.ConsumerType.Shared) for _ in range(2)]
    publish(client.create_producer(name), numbered(100))
    shares = [receive(consumer, 50) for consumer in consumers]
    assert sorted(shares[0] + shares[1]) == sorted(numbered(100))


def test_an_unknown_namespace_is_named_as_the_reason(client: pulsar.Client) -> None:
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer("nobody/nowhere/topic")
