"""Readers, table views, seeks, and the questions after the last message."""

from __future__ import annotations

import time

import pulsar
import pytest

from tests.interop.support import (
    RECEIVE_MS,
    Admin,
    nothing_comes,
    numbered,
    publish,
    read,
    receive,
    wait_until,
)

Earliest, Latest = pulsar.MessageId.earliest, pulsar.MessageId.latest
Type = pulsar.ConsumerType


def test_a_reader_from_the_start_and_one_from_the_end(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    publish(producer, numbered(10))
    whole, tail = client.create_reader(topic, Earliest), client.create_reader(topic, Latest)
    publish(producer, numbered(5, first=10))
    assert read(whole, 15) == numbered(15)
    assert read(tail, 5) == numbered(5, first=10)
    assert nothing_comes(whole)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("inclusive", [False, True])
def test_a_reader_from_a_message(client: pulsar.Client, topic: str, batched: bool, inclusive: bool) -> None:
    producer = client.create_producer(topic, batching_enabled=batched, batching_max_messages=4)
    publish(producer, numbered(20))
    from_start = client.create_reader(topic, Earliest)
    sixth = [from_start.read_next(RECEIVE_MS) for _ in range(6)][-1]
    start = pulsar.MessageId.deserialize(sixth.message_id().serialize())
    reader = client.create_reader(topic, start, start_message_id_inclusive=inclusive)
    first = 5 if inclusive else 6
    assert read(reader, 20 - first) == numbered(20 - first, first=first)


def test_a_reader_leaves_no_subscription(client: pulsar.Client, admin: Admin, topic: str) -> None:
    publish(client.create_producer(topic), numbered(3))
    reader = client.create_reader(topic, Earliest, reader_name="r")
    assert read(reader, 3) == numbered(3)
    reader.close()
    wait_until(lambda: admin.stats(topic)["subscriptions"] == {}, "no subscription")


def test_has_message_available(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    reader = client.create_reader(topic, Earliest)
    assert not reader.has_message_available()
    publish(producer, numbered(3))
    for number in range(3):
        assert reader.has_message_available()
        assert read(reader, 1) == numbered(1, first=number)
    assert not reader.has_message_available()
    at_end = client.create_reader(topic, Latest)
    assert not at_end.has_message_available()
    publish(producer, numbered(1))
    assert at_end.has_message_available()


@pytest.mark.parametrize("batched", [False, True])
def test_the_last_message_id(client: pulsar.Client, topic: str, batched: bool) -> None:
    """Also when it is asked for again, and when there are newer ones by then."""
    consumer = client.subscribe(topic, "s")
    assert consumer.get_last_message_id().entry_id() == -1
    producer = client.create_producer(
        topic, batching_enabled=batched, batching_max_messages=5, batching_max_publish_delay_ms=60_000
    )
    for _ in range(2):
        publish(producer, numbered(10))
        last = [consumer.receive(RECEIVE_MS) for _ in range(10)][-1].message_id()
        for _ in range(2):
            found = consumer.get_last_message_id()
            assert (found.ledger_id(), found.entry_id(), found.batch_index()) == (
                last.ledger_id(),
                last.entry_id(),
                4 if batched else -1,
            )


@pytest.mark.parametrize("kind", [Type.Exclusive, Type.Failover, Type.Shared, Type.KeyShared])
def test_seek_by_id_and_to_both_ends(client: pulsar.Client, topic: str, kind: pulsar.ConsumerType) -> None:
    consumer = client.subscribe(topic, "s", kind, start_message_id_inclusive=True)
    producer = client.create_producer(topic)
    ids = publish(producer, numbered(50))
    assert receive(consumer, 50) == numbered(50)
    consumer.seek(ids[20])
    assert receive(consumer, 30) == numbered(30, first=20)
    consumer.seek(Earliest)
    assert receive(consumer, 50) == numbered(50)
    consumer.seek(Latest)
    assert nothing_comes(consumer)
    publish(producer, numbered(1, first=50))
    assert receive(consumer, 1) == numbered(1, first=50)


def test_seek_without_the_message_itself(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    ids = publish(client.create_producer(topic), numbered(10))
    assert receive(consumer, 10) == numbered(10)
    consumer.seek(ids[4])
    assert receive(consumer, 5) == numbered(5, first=5)


def test_seek_by_time(client: pulsar.Client, topic: str) -> None:
    """Times are whole milliseconds, so a millisecond in which nothing was published stands between the halves."""
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    publish(producer, numbered(10))
    middle = now_ms() + 1
    wait_until(lambda: now_ms() > middle, "the clock moves on")
    publish(producer, numbered(6, first=10))
    assert receive(consumer, 16) == numbered(16)
    consumer.seek(middle)
    assert receive(consumer, 6) == numbered(6, first=10)
    consumer.seek(middle - 3_600_000)
    assert receive(consumer, 16) == numbered(16)
    consumer.seek(middle + 3_600_000)
    assert nothing_comes(consumer)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_a_reader_seeks(client: pulsar.Client, topic: str) -> None:
    ids = publish(client.create_producer(topic), numbered(20))
    reader = client.create_reader(topic, Earliest)
    assert read(reader, 20) == numbered(20)
    reader.seek(ids[9])
    assert read(reader, 10) == numbered(10, first=10)
    reader.seek(Earliest)
    assert reader.has_message_available()
    assert read(reader, 20) == numbered(20)


def test_a_table_view_follows_the_newest_value_of_each_key(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    for number in range(100):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 10}")
    producer.flush()
    view = client.create_table_view(topic)
    assert [int(view.get(f"key-{key}")) for key in range(10)] == list(range(90, 100))
    producer.send(b"new", partition_key="key-3")
    wait_until(lambda: view.get("key-3") == b"new", "the table view follows")
    view.close()
