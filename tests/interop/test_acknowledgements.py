"""Acknowledged messages stay acknowledged; messages without an acknowledgement come again."""

from __future__ import annotations

import pulsar
import pytest

from tests.interop.support import (
    RECEIVE_MS,
    Admin,
    nothing_comes,
    numbered,
    publish,
    receive,
    wait_until,
)

SETTINGS = {"acknowledgmentAtBatchIndexLevelEnabled": "true"}
Earliest = pulsar.InitialPosition.Earliest
Type = pulsar.ConsumerType


def _batch(client: pulsar.Client, topic: str, count: int) -> None:
    """`count` messages in one entry."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=count, batching_max_publish_delay_ms=60_000
    )
    ids = publish(producer, numbered(count))
    assert len({one.entry_id() for one in ids}) == 1


def _backlog_is(admin: Admin, topic: str, count: int) -> None:
    wait_until(
        lambda: admin.subscription(topic, "s").get("msgBacklog") == count, f"backlog of {count} entries"
    )


def test_cumulative_ack_settles_everything_before(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client.create_producer(topic), numbered(100))
    messages = [consumer.receive(RECEIVE_MS) for _ in range(100)]
    consumer.acknowledge_cumulative(messages[59])
    _backlog_is(admin, topic, 40)
    consumer.close()
    assert receive(client.subscribe(topic, "s"), 40) == numbered(40, first=60)


def test_cumulative_ack_inside_a_batch(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    _batch(client, topic, 10)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(10)]
    consumer.acknowledge_cumulative(messages[3])
    consumer.close()
    again = client.subscribe(topic, "s", batch_index_ack_enabled=True)
    assert receive(again, 6) == numbered(6, first=4)
    assert nothing_comes(again)


def test_single_acks_leave_holes(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    publish(client.create_producer(topic), numbered(100))
    messages = [consumer.receive(RECEIVE_MS) for _ in range(100)]
    for message in messages[1::2]:
        consumer.acknowledge(message)
    _backlog_is(admin, topic, 50)
    consumer.close()
    again = client.subscribe(topic, "s")
    assert receive(again, 50) == numbered(100)[::2]
    assert nothing_comes(again)


@pytest.mark.parametrize("kind", [Type.Exclusive, Type.Shared, Type.KeyShared])
def test_an_ack_inside_a_batch_leaves_only_the_rest(
    client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", kind, batch_index_ack_enabled=True)
    _batch(client, topic, 10)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(10)]
    for message in messages[::2]:
        consumer.acknowledge(message)
    consumer.close()
    again = client.subscribe(topic, "s", kind, batch_index_ack_enabled=True)
    assert receive(again, 5) == numbered(10)[1::2]
    assert nothing_comes(again)


def test_a_nack_inside_a_batch_brings_back_only_the_rest(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(
        topic, "s", Type.Shared, batch_index_ack_enabled=True, negative_ack_redelivery_delay_ms=100
    )
    _batch(client, topic, 10)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(10)]
    for message in messages[:7]:
        consumer.acknowledge(message)
    # One of the three: the client asks for the whole entry, and for two messages it may ask twice.
    consumer.negative_acknowledge(messages[8])
    assert receive(consumer, 3) == numbered(3, first=7)
    assert nothing_comes(consumer)


def test_a_nack_counts_redeliveries_and_spares_the_others(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared, negative_ack_redelivery_delay_ms=100)
    publish(client.create_producer(topic), numbered(10))
    for _ in range(10):
        message = consumer.receive(RECEIVE_MS)
        if message.data() == b"message 4":
            consumer.negative_acknowledge(message)
        else:
            consumer.acknowledge(message)
    for count in (1, 2, 3):
        message = consumer.receive(RECEIVE_MS)
        assert (message.data(), message.redelivery_count()) == (b"message 4", count)
        consumer.negative_acknowledge(message)
    consumer.acknowledge(consumer.receive(RECEIVE_MS))
    assert nothing_comes(consumer)


def test_a_nack_on_an_exclusive_subscription_starts_over(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", negative_ack_redelivery_delay_ms=100)
    publish(client.create_producer(topic), numbered(10))
    assert receive(consumer, 4) == numbered(4)
    messages = [consumer.receive(RECEIVE_MS) for _ in range(6)]
    consumer.negative_acknowledge(messages[3])
    assert receive(consumer, 6) == numbered(6, first=4)


def test_message_comes_again_when_it_is_not_acknowledged_in_time(client: pulsar.Client, topic: str) -> None:
    """Ten seconds are the least that the client allows."""
    consumer = client.subscribe(topic, "s", Type.Shared, unacked_messages_timeout_ms=10_000)
    publish(client.create_producer(topic), numbered(3))
    assert receive(consumer, 1) == numbered(1)
    receive(consumer, 2, acknowledge=False)
    messages = [consumer.receive(3 * RECEIVE_MS) for _ in range(2)]
    assert sorted(message.data() for message in messages) == numbered(2, first=1)
    assert {message.redelivery_count() for message in messages} == {1}
    for message in messages:
        consumer.acknowledge(message)


def test_redeliver_brings_back_all_that_is_not_acknowledged(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared)
    publish(client.create_producer(topic), numbered(20))
    assert receive(consumer, 5) == numbered(5)
    receive(consumer, 15, acknowledge=False)
    consumer.redeliver_unacknowledged_messages()
    assert sorted(receive(consumer, 15)) == sorted(numbered(15, first=5))
    assert nothing_comes(consumer)


def test_a_message_that_keeps_failing_goes_to_the_dead_letter_topic(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    dead_topic = f"{topic}-dead"
    consumer = client.subscribe(
        topic,
        "s",
        Type.Shared,
        negative_ack_redelivery_delay_ms=100,
        dead_letter_policy=pulsar.ConsumerDeadLetterPolicy(2, dead_topic, "kept"),
    )
    client.create_producer(topic).send(b"poison", properties={"a": "b"}, partition_key="key")
    for count in range(3):
        message = consumer.receive(RECEIVE_MS)
        assert message.redelivery_count() == count
        consumer.negative_acknowledge(message)
    wait_until(lambda: admin.subscription(topic, "s").get("msgBacklog") == 0, "the message left the topic")
    dead = client.subscribe(dead_topic, "kept").receive(RECEIVE_MS)
    assert (dead.data(), dead.partition_key(), dead.properties()["a"]) == (b"poison", "key", "b")
    assert nothing_comes(consumer)


def test_each_subscription_has_its_own_position(client: pulsar.Client, topic: str) -> None:
    first, second = client.subscribe(topic, "first"), client.subscribe(topic, "second")
    publish(client.create_producer(topic), numbered(20))
    assert receive(first, 20) == numbered(20)
    assert receive(second, 10) == numbered(10)
    second.close()
    assert receive(client.subscribe(topic, "second"), 10) == numbered(10, first=10)
    assert nothing_comes(first)
