"""Access modes of producers, and the sequence id from which a producer goes on."""

from __future__ import annotations

import threading

import pulsar
import pytest

from tests.interop.support import Admin, nothing_comes, numbered, publish, receive, wait_until

SETTINGS = {"brokerDeduplicationEnabled": "true"}
Mode = pulsar.ProducerAccessMode


def test_an_exclusive_producer_keeps_others_out(
    client: pulsar.Client, other_client: pulsar.Client, topic: str
) -> None:
    holder = client.create_producer(topic, access_mode=Mode.Exclusive)
    with pytest.raises(pulsar.ProducerFenced):
        other_client.create_producer(topic, access_mode=Mode.Exclusive)
    with pytest.raises(pulsar.ProducerBusy):
        other_client.create_producer(topic)
    holder.send(b"still here")
    holder.close()
    other_client.create_producer(topic, access_mode=Mode.Exclusive).send(b"now me")


def test_a_waiting_producer_gets_in_when_the_holder_leaves(
    client: pulsar.Client, other_client: pulsar.Client, admin: Admin, topic: str
) -> None:
    holder = client.create_producer(topic, access_mode=Mode.Exclusive)
    heirs: list[pulsar.Producer] = []
    waiting = threading.Thread(
        target=lambda: heirs.append(other_client.create_producer(topic, access_mode=Mode.WaitForExclusive))
    )
    waiting.start()
    wait_until(lambda: admin.stats(topic)["waitingPublishers"] == 1, "one producer waits")
    assert not heirs
    holder.send(b"first")
    holder.close()
    waiting.join()
    heirs[0].send(b"second")


def test_fencing_takes_the_topic_over_for_good(
    client: pulsar.Client, other_client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    fenced = client.create_producer(topic, "fenced", access_mode=Mode.Exclusive)
    fenced.send(b"before")
    holder = other_client.create_producer(topic, "holder", access_mode=Mode.ExclusiveWithFencing)
    with pytest.raises(pulsar.PulsarException):
        fenced.send(b"too late")
    holder.send(b"after")
    assert receive(consumer, 2) == [b"before", b"after"]
    assert nothing_comes(consumer)


def test_a_producer_name_is_taken_once(
    client: pulsar.Client, other_client: pulsar.Client, topic: str
) -> None:
    first = client.create_producer(topic, "name")
    with pytest.raises(pulsar.ProducerBusy):
        other_client.create_producer(topic, "name")
    first.close()
    assert other_client.create_producer(topic, "name").producer_name() == "name"


def test_given_names_differ(client: pulsar.Client, topic: str) -> None:
    names = {client.create_producer(topic).producer_name() for _ in range(5)}
    assert len(names) == 5


def test_the_initial_sequence_id_is_the_base(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, initial_sequence_id=100)
    assert producer.last_sequence_id() == 100
    publish(producer, numbered(5))
    assert producer.last_sequence_id() == 105


@pytest.mark.parametrize("batched", [False, True])
def test_a_sequence_id_is_stored_once(client: pulsar.Client, topic: str, batched: bool) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic, "p", batching_enabled=batched)
    for number in (0, 1, 2, 1, 2, 3):
        producer.send(b"message %d" % number, sequence_id=number)
    assert receive(consumer, 4) == numbered(4)
    producer.close()
    again = client.create_producer(topic, "p", batching_enabled=batched)
    assert again.last_sequence_id() == 3
    again.send(b"message 3", sequence_id=3)
    again.send(b"message 4")
    assert receive(consumer, 1) == numbered(1, first=4)
    client.create_producer(topic, "q").send(b"message 0", sequence_id=0)
    assert receive(consumer, 1) == numbered(1), "another producer has ids of its own"
    assert nothing_comes(consumer)


def test_deduplication_is_switched_by_the_namespace(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.put("namespaces/public/doubles")
    admin.post("namespaces/public/doubles/deduplication", False)
    name = f"public/doubles/{topic}"
    consumer, producer = client.subscribe(name, "s"), client.create_producer(name, "p")
    for _ in range(2):
        producer.send(b"twice", sequence_id=7)
    assert receive(consumer, 2) == [b"twice"] * 2
