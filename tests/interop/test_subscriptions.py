"""Dispatch to consumers: the four subscription types, takeover, order per key while consumers come and go, patterns."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import defaultdict

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

SETTINGS = {
    "activeConsumerFailoverDelayTimeMillis": "100",
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
}
Earliest = pulsar.InitialPosition.Earliest
Type = pulsar.ConsumerType
Regex = pulsar.RegexSubscriptionMode
OWN_TOPICS = pytest.mark.one_broker(
    "lists non-persistent topics, of which a broker knows its own, as Apache's"
)


def test_exclusive_admits_one_consumer(client: pulsar.Client, topic: str) -> None:
    first = client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s", Type.Shared)
    first.close()
    second = client.subscribe(topic, "s", Type.Shared)
    publish(client.create_producer(topic), numbered(1))
    assert receive(second, 1) == numbered(1), "with nobody connected the type may change"


def test_failover_hands_over_what_is_not_acknowledged(
    client: pulsar.Client, other_client: pulsar.Client, topic: str
) -> None:
    consumers = [
        one.subscribe(topic, "s", Type.Failover, consumer_name=name)
        for one, name in ((client, "a"), (other_client, "b"))
    ]
    publish(client.create_producer(topic), numbered(100))
    got = wait_until(lambda: _first_to_get_a_message(consumers), "one of them is active")
    assert got is not None
    active, first = got
    (passive,) = (one for one in consumers if one is not active)
    assert nothing_comes(passive)
    assert first.data() == b"message 0"
    active.acknowledge(first)
    assert receive(active, 59) == numbered(59, first=1)
    active.close()
    assert receive(passive, 40) == numbered(40, first=60)
    assert nothing_comes(passive)


def _first_to_get_a_message(
    consumers: list[pulsar.Consumer],
) -> tuple[pulsar.Consumer, pulsar.Message] | None:
    for consumer in consumers:
        with contextlib.suppress(pulsar.Timeout):
            return consumer, consumer.receive(100)
    return None


def test_failover_takes_over_from_a_client_that_vanishes(
    client: pulsar.Client, other_client: pulsar.Client, topic: str
) -> None:
    client.subscribe(topic, "s", Type.Failover)
    heir = other_client.subscribe(topic, "s", Type.Failover)
    publish(other_client.create_producer(topic), numbered(50))
    client.shutdown()
    assert receive(heir, 50) == numbered(50)


def test_failover_spreads_partitions_over_consumers(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.create_partitioned(topic, 4)
    consumers = [client.subscribe(topic, "s", Type.Failover, consumer_name=name) for name in "ab"]
    producer = client.create_producer(
        topic, message_router=lambda message, count: int(message.data()) % count
    )
    publish(producer, [b"%d" % number for number in range(40)])
    shares = [receive(consumer, 20) for consumer in consumers]
    assert [{int(body) % 4 for body in share} for share in shares] == [{0, 2}, {1, 3}]


def test_shared_deals_every_message_to_exactly_one(client: pulsar.Client, topic: str) -> None:
    consumers = [client.subscribe(topic, "s", Type.Shared, receiver_queue_size=10) for _ in range(3)]
    producer = client.create_producer(topic)
    got: list[list[bytes]] = [[] for _ in consumers]
    publish(producer, numbered(30))
    for share, consumer in zip(got, consumers, strict=True):
        share += receive(consumer, 10)
    assert all(len(share) == 10 for share in got)
    assert sorted(body for share in got for body in share) == sorted(numbered(30))


def test_shared_gives_what_a_leaver_held_to_the_others(client: pulsar.Client, topic: str) -> None:
    leaver = client.subscribe(topic, "s", Type.Shared)
    publish(client.create_producer(topic), numbered(100))
    assert receive(leaver, 30) == numbered(30)
    receive(leaver, 30, acknowledge=False)
    stayer = client.subscribe(topic, "s", Type.Shared)
    leaver.close()
    assert sorted(receive(stayer, 70)) == sorted(numbered(70, first=30))
    assert nothing_comes(stayer)


def test_dispatch_stops_at_the_permits(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "s", Type.Shared, receiver_queue_size=10)
    publish(client.create_producer(topic), numbered(50))
    wait_until(lambda: admin.subscription(topic, "s").get("unackedMessages") == 10, "10 messages are out")
    assert receive(consumer, 50) == numbered(50)


class Worker:
    """A consumer in a thread of its own, which notes what it gets before it acknowledges it."""

    def __init__(self, client: pulsar.Client, topic: str, name: str, log: list[tuple[str, str, int]]) -> None:
        self._consumer = client.subscribe(
            topic,
            "s",
            Type.KeyShared,
            consumer_name=name,
            receiver_queue_size=20,
            initial_position=Earliest,
            batch_index_ack_enabled=True,
        )
        self._name = name
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        while not self._stop.is_set():
            try:
                message = self._consumer.receive(50)
            except pulsar.Timeout:
                continue
            self._log.append((self._name, message.partition_key(), int(message.data())))
            self._consumer.acknowledge(message)

    def leave(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@pytest.mark.parametrize("batched", [False, True])
def test_key_shared_keeps_the_order_of_each_key_while_consumers_come_and_go(
    client: pulsar.Client, topic: str, batched: bool
) -> None:
    keys, per_phase = 40, 800
    log: list[tuple[str, str, int]] = []
    producer = client.create_producer(
        topic, batching_enabled=batched, batching_type=pulsar.BatchingType.KeyBased, block_if_queue_full=True
    )
    sent = 0

    def produce_and_let_half_be_consumed() -> None:
        nonlocal sent
        for number in range(sent, sent + per_phase):
            producer.send_async(b"%d" % number, None, partition_key=f"key-{number % keys}")
        producer.flush()
        sent += per_phase
        wait_until(lambda: len(log) >= sent - per_phase // 2, "half of the phase is consumed")

    workers = {name: Worker(client, topic, name, log) for name in ("a", "b")}
    produce_and_let_half_be_consumed()
    workers["c"] = Worker(client, topic, "c", log)
    produce_and_let_half_be_consumed()
    workers.pop("a").leave()
    produce_and_let_half_be_consumed()
    workers["d"] = Worker(client, topic, "d", log)
    workers.pop("b").leave()
    produce_and_let_half_be_consumed()
    wait_until(lambda: len(log) >= sent, "everything is consumed")
    for worker in workers.values():
        worker.leave()
    numbers: dict[str, list[int]] = defaultdict(list)
    for _, key, number in log:
        numbers[key].append(number)
    assert numbers == {f"key-{key}": list(range(key, sent, keys)) for key in range(keys)}
    assert len({name for name, _, _ in log}) == 4, "every consumer had its share"


def test_key_shared_sticky_ranges_divide_the_keys(client: pulsar.Client, topic: str) -> None:
    policies = [
        pulsar.ConsumerKeySharedPolicy(pulsar.KeySharedMode.Sticky, False, [hash_range])
        for hash_range in ((0, 32767), (32768, 65535))
    ]
    consumers = [client.subscribe(topic, "s", Type.KeyShared, key_shared_policy=one) for one in policies]
    producer = client.create_producer(topic)
    for number in range(200):
        producer.send_async(b"%d" % number, None, partition_key=f"key-{number % 50}")
    producer.flush()
    keys: list[set[str]] = [set(), set()]
    received = 0

    def all_received() -> bool:
        nonlocal received
        for share, consumer in zip(keys, consumers, strict=True):
            with contextlib.suppress(pulsar.Timeout):
                share.add(consumer.receive(20).partition_key())
                received += 1
        return received == 200

    wait_until(all_received, "all messages have come")
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 50
    with pytest.raises(pulsar.PulsarException):
        client.subscribe(topic, "s", Type.KeyShared, key_shared_policy=policies[0])


def test_unsubscribe_deletes_the_subscription(client: pulsar.Client, admin: Admin, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    publish(producer, numbered(10))
    assert admin.get(f"persistent/public/default/{topic}/subscriptions") == ["s"]
    consumer.unsubscribe()
    assert admin.get(f"persistent/public/default/{topic}/subscriptions") == []
    again = client.subscribe(topic, "s")
    assert nothing_comes(again)
    publish(producer, numbered(1))
    assert receive(again, 1) == numbered(1)


@pytest.mark.parametrize(
    "mode",
    [
        Regex.PersistentOnly,
        pytest.param(Regex.NonPersistentOnly, marks=OWN_TOPICS),
        pytest.param(Regex.AllTopics, marks=OWN_TOPICS),
    ],
    ids=lambda mode: str(mode.name),
)
def test_a_pattern_finds_topics_of_both_kinds(
    client: pulsar.Client, topic: str, mode: pulsar.RegexSubscriptionMode
) -> None:
    """Topics that come later are left to the other clients: this one looks for them once a minute, whatever it is told."""
    names = {
        Regex.PersistentOnly: [f"persistent://public/default/{topic}-{which}" for which in "pq"],
        Regex.NonPersistentOnly: [f"non-persistent://public/default/{topic}-n"],
    }
    every = [name for of_kind in names.values() for name in of_kind]
    producers = [client.create_producer(name) for name in every]
    pattern = re.compile(f"public/default/{topic}-.*")
    consumer = client.subscribe(pattern, "s", regex_subscription_mode=mode, initial_position=Earliest)
    for producer in producers:
        producer.send(b"now")
    expected = names.get(mode, every)
    assert _topics(consumer, len(expected)) == set(expected)
    assert nothing_comes(consumer)


def _topics(consumer: pulsar.Consumer, count: int) -> set[str]:
    messages = [consumer.receive(RECEIVE_MS) for _ in range(count)]
    for message in messages:
        consumer.acknowledge(message)
    return {message.topic_name() for message in messages}


def test_one_consumer_on_several_topics(client: pulsar.Client, topic: str) -> None:
    names = [f"{topic}-{which}" for which in "abc"]
    consumer = client.subscribe(names, "s")
    for name in names:
        publish(client.create_producer(name), numbered(10))
    assert sorted(receive(consumer, 30)) == sorted(numbered(10) * 3)
