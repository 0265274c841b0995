"""Settings with an effect on clients: the same steps on a broker with the setting and on one without it.

Rule of this file: keys that do not influence each other share a broker, and each test fails on a broker without its
setting.
"""

from __future__ import annotations

import contextlib
import time
import urllib.error
from collections.abc import Callable, Mapping
from typing import Final

import pulsar
import pytest

from tests.interop.support import RECEIVE_MS, SILENCE_MS, Admin, connect, numbered, publish, receive
from tests.support.raw_client import RawConnection
from tests.vectors.broker_process import BrokerProcess

Earliest = pulsar.InitialPosition.Earliest
Type = pulsar.ConsumerType
BrokerWith = Callable[[Mapping[str, str]], BrokerProcess]
ClientOf = Callable[[Mapping[str, str]], pulsar.Client]

DEFAULTS: Final[dict[str, str]] = {}
LIMITED: Final = {
    "maxUnackedMessagesPerConsumer": "7",
    "maxProducersPerTopic": "2",
    "maxConsumersPerTopic": "3",
    "maxConsumersPerSubscription": "2",
    "maxSubscriptionsPerTopic": "2",
}
CHANGED: Final = {
    "brokerDeduplicationEnabled": "true",
    "acknowledgmentAtBatchIndexLevelEnabled": "false",
    "subscriptionRedeliveryTrackerEnabled": "false",
    "activeConsumerFailoverDelayTimeMillis": "0",
    "activeConsumerFailoverConsistentHashing": "true",
    "subscriptionKeySharedUseConsistentHashing": "false",
    "maxUnackedMessagesPerSubscription": "9",
}
PARTITIONED: Final = {
    "allowAutoTopicCreationType": "partitioned",
    "defaultNumPartitions": "3",
    "maxNumPartitionsPerPartitionedTopic": "4",
    "subscriptionKeySharedConsistentHashingReplicaPoints": "1",
}
BY_HAND: Final = {"allowAutoTopicCreation": "false", "allowAutoSubscriptionCreation": "false"}
TAKEOVERS_MAX: Final = 30
POLL_MS: Final = 20
"""How long one of several consumers is asked before the next one is."""
READ_BATCH: Final = 100
"""Default of dispatcherMaxReadBatchSize: what one read may bring beyond a limit that was not yet reached."""


@pytest.fixture
def client_of(broker_with: BrokerWith, connected: Callable[[str], pulsar.Client]) -> ClientOf:
    return lambda settings: connected(broker_with(settings).addresses.pulsar)


def _admin(broker: BrokerProcess) -> Admin:
    return Admin.of(broker)


def _outcomes(attempt: Callable[[int], object], count: int) -> list[str]:
    """ "ok" or the name of the client's error, attempt by attempt; what was opened stays open."""
    outcomes: list[str] = []
    kept: list[object] = []
    for number in range(count):
        try:
            kept.append(attempt(number))
            outcomes.append("ok")
        except pulsar.PulsarException as error:
            outcomes.append(type(error).__name__)
    return outcomes


def _drain(consumer: pulsar.Consumer, at_least: int) -> list[pulsar.Message]:
    """Returns `at_least` messages and those that come before a silence, not acknowledged."""
    messages = [consumer.receive(RECEIVE_MS) for _ in range(at_least)]
    with contextlib.suppress(pulsar.Timeout):
        while True:
            messages.append(consumer.receive(SILENCE_MS))
    return messages


def _unbatched(client: pulsar.Client, topic: str, **options: object) -> pulsar.Producer:
    return client.create_producer(topic, batching_enabled=False, **options)


# How many there may be


def test_producers_of_a_topic_are_limited(client_of: ClientOf, topic: str) -> None:
    limited, free = client_of(LIMITED), client_of(DEFAULTS)
    assert _outcomes(lambda _: limited.create_producer(topic), 3) == ["ok", "ok", "ProducerBusy"]
    assert _outcomes(lambda _: free.create_producer(topic), 3) == ["ok"] * 3


def test_subscriptions_of_a_topic_are_limited(client_of: ClientOf, topic: str) -> None:
    limited, free = client_of(LIMITED), client_of(DEFAULTS)
    assert _outcomes(lambda n: limited.subscribe(topic, f"s{n}"), 3) == ["ok", "ok", "NotAllowedError"]
    assert _outcomes(lambda n: free.subscribe(topic, f"s{n}"), 3) == ["ok"] * 3


def test_consumers_of_subscription_and_topic_are_limited(client_of: ClientOf, topic: str) -> None:
    """Two on one subscription; a third on the topic, but no fourth."""
    limited, free = client_of(LIMITED), client_of(DEFAULTS)
    expected = ["ok", "ok", "ConsumerBusy", "ok", "ConsumerBusy"]
    assert _outcomes(lambda n: limited.subscribe(topic, "ssstt"[n], Type.Shared), 5) == expected
    assert _outcomes(lambda n: free.subscribe(topic, "ssstt"[n], Type.Shared), 5) == ["ok"] * 5


async def test_connections_of_a_broker_are_limited(broker_with: BrokerWith) -> None:
    url = broker_with({"brokerMaxConnections": "1"}).addresses.pulsar
    first, second = await RawConnection.open(url), await RawConnection.open(url)
    await first.connect()
    with pytest.raises(AssertionError, match="Reached the maximum number of connections"):
        await second.connect()
    await first.close()
    await second.close()


def test_unacknowledged_messages_of_a_consumer_are_limited(client_of: ClientOf, topic: str) -> None:
    client = client_of(LIMITED)
    consumer = client.subscribe(topic, "s", Type.Shared)
    publish(_unbatched(client, topic), numbered(40))
    messages = _drain(consumer, 7)
    assert [message.data() for message in messages] == numbered(7)
    for message in messages:
        consumer.acknowledge(message)
    assert receive(consumer, 33) == numbered(33, first=7)


def test_unacknowledged_messages_of_a_subscription_are_limited(client_of: ClientOf, topic: str) -> None:
    """The limit stops the next read, not the one that exceeds it."""
    client = client_of(CHANGED)
    client.subscribe(topic, "s", Type.Shared).close()
    publish(_unbatched(client, topic), numbered(400))
    consumer = client.subscribe(topic, "s", Type.Shared)
    messages = _drain(consumer, 9)
    assert len(messages) <= READ_BATCH
    for message in messages:
        consumer.acknowledge(message)
    rest = 400 - len(messages)
    assert receive(consumer, rest) == numbered(rest, first=len(messages))


# What comes into being by itself


def test_topics_and_subscriptions_are_not_created_when_switched_off(
    broker_with: BrokerWith, topic: str
) -> None:
    broker = broker_with(BY_HAND)
    client, impatient = (
        connect(broker.addresses.pulsar, operation_timeout_seconds=seconds) for seconds in (60, 1)
    )
    with pytest.raises(pulsar.TopicNotFound):
        client.create_producer(topic)
    _admin(broker).put(f"persistent/public/default/{topic}")
    client.create_producer(topic).send(b"x")
    # The client tries again until its own time is over.
    with pytest.raises((pulsar.SubscriptionNotFound, pulsar.Timeout)):
        impatient.subscribe(topic, "s")
    impatient.close()
    _admin(broker).put(f"persistent/public/default/{topic}/subscription/s")
    client.subscribe(topic, "s").close()
    client.close()


def test_automatic_topic_has_partitions_when_so_set(
    broker_with: BrokerWith, client_of: ClientOf, topic: str
) -> None:
    client, plain = client_of(PARTITIONED), client_of(DEFAULTS)
    client.create_producer(topic)
    plain.create_producer(topic)
    name = f"persistent://public/default/{topic}"
    assert client.get_topic_partitions(topic) == [f"{name}-partition-{number}" for number in range(3)]
    assert plain.get_topic_partitions(topic) == [name]
    admin = _admin(broker_with(PARTITIONED))
    admin.create_partitioned(f"{topic}-four", 4)
    with pytest.raises(urllib.error.HTTPError):
        admin.create_partitioned(f"{topic}-five", 5)


# What is delivered, to whom, and when


@pytest.mark.parametrize(("settings", "stored"), [(DEFAULTS, [1, 2, 2, 1, 3]), (CHANGED, [1, 2, 3])])
def test_deduplication_decides_which_messages_are_stored(
    client_of: ClientOf, topic: str, settings: dict[str, str], stored: list[int]
) -> None:
    client = client_of(settings)
    consumer = client.subscribe(topic, "s")
    producer = _unbatched(client, topic, producer_name="always the same")
    for sequence_id in (1, 2, 2, 1, 3):
        producer.send(b"%d" % sequence_id, sequence_id=sequence_id)
    assert [int(message.data()) for message in _drain(consumer, len(stored))] == stored


@pytest.mark.parametrize(("settings", "again"), [(DEFAULTS, [2, 3, 4]), (CHANGED, [0, 1, 2, 3, 4])])
def test_acknowledgements_inside_a_batch_hold_when_enabled(
    client_of: ClientOf, topic: str, settings: dict[str, str], again: list[int]
) -> None:
    client = client_of(settings)
    consumer = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=60_000
    )
    publish(producer, numbered(5))
    messages = [consumer.receive(RECEIVE_MS) for _ in range(5)]
    consumer.acknowledge(messages[0])
    consumer.acknowledge(messages[1])
    consumer.close()
    successor = client.subscribe(topic, "s", Type.Shared, batch_index_ack_enabled=True)
    assert [message.data() for message in _drain(successor, len(again))] == [
        numbered(5)[number] for number in again
    ]


@pytest.mark.parametrize(("settings", "count"), [(DEFAULTS, 1), (CHANGED, 0)])
def test_redeliveries_are_counted_when_enabled(
    client_of: ClientOf, topic: str, settings: dict[str, str], count: int
) -> None:
    client = client_of(settings)
    consumer = client.subscribe(topic, "s", Type.Shared, negative_ack_redelivery_delay_ms=100)
    _unbatched(client, topic).send(b"x")
    consumer.negative_acknowledge(consumer.receive(RECEIVE_MS))
    assert consumer.receive(RECEIVE_MS).redelivery_count() == count


def test_failover_waits_for_its_delay(client_of: ClientOf, topic: str) -> None:
    """The default is one second, which the last consumer has for its acknowledgements to arrive."""
    assert _takeover_s(client_of(DEFAULTS), topic) >= 0.9
    # A busy machine makes single ones slow; a broker that waited would make each one slow.
    takeovers = (_takeover_s(client_of(CHANGED), f"{topic}-{number}") for number in range(TAKEOVERS_MAX))
    assert any(seconds < 0.9 for seconds in takeovers)


def _takeover_s(client: pulsar.Client, topic: str) -> float:
    """Seconds until the next consumer has the message that the active one left behind."""
    producer = _unbatched(client, topic)
    consumers = [client.subscribe(topic, "s", Type.Failover, consumer_name=name) for name in "ab"]
    producer.send(b"first")
    active = consumers[0] if _received_by(consumers, 1)[0] else consumers[1]
    (successor,) = (one for one in consumers if one is not active)
    producer.send(b"second")
    begun = time.monotonic()
    active.close()
    successor.receive(RECEIVE_MS)
    ended = time.monotonic()
    successor.close()
    return ended - begun


def _received_by(consumers: list[pulsar.Consumer], count: int) -> list[list[pulsar.Message]]:
    """Returns the messages of each consumer, acknowledged, when `count` have come in all."""
    received: list[list[pulsar.Message]] = [[] for _ in consumers]
    deadline = time.monotonic() + RECEIVE_MS / 1000
    while sum(map(len, received)) < count and time.monotonic() < deadline:
        for consumer, messages in zip(consumers, received, strict=True):
            with contextlib.suppress(pulsar.Timeout):
                messages.append(consumer.receive(POLL_MS))
                consumer.acknowledge(messages[-1])
    assert sum(map(len, received)) == count
    return received


def _partitions_of(client: pulsar.Client, admin: Admin, topic: str) -> list[set[str]]:
    """Which partitions of eight each of two failover consumers serves."""
    admin.create_partitioned(topic, 8)
    consumers = [client.subscribe(topic, "s", Type.Failover, consumer_name=name) for name in "ab"]
    publish(client.create_producer(topic, batching_enabled=False), numbered(64))
    return [{message.topic_name()[-1] for message in messages} for messages in _received_by(consumers, 64)]


def test_failover_consumers_share_partitions_in_turn_or_by_hash(
    broker_with: BrokerWith, client_of: ClientOf
) -> None:
    """The hash is of the topic's name, so the name is a fixed one."""
    by_settings = [
        _partitions_of(client_of(settings), _admin(broker_with(settings)), "failover-by-hash")
        for settings in (DEFAULTS, CHANGED)
    ]
    assert by_settings[0] == [set("0246"), set("1357")]
    assert by_settings[1] != by_settings[0]
    assert by_settings[1][0] | by_settings[1][1] == set("01234567")


def _keys_of(client: pulsar.Client, topic: str) -> set[str]:
    """Those of 40 keys that the first of two consumers is given."""
    consumers = [client.subscribe(topic, "s", Type.KeyShared, consumer_name=name) for name in "ab"]
    producer = _unbatched(client, topic)
    for number in range(40):
        producer.send(b"x", partition_key=str(number))
    keys = [{message.partition_key() for message in messages} for messages in _received_by(consumers, 40)]
    assert not keys[0] & keys[1]
    assert len(keys[0] | keys[1]) == 40
    return keys[0]


def test_keys_are_shared_by_ring_or_by_ranges(client_of: ClientOf, topic: str) -> None:
    ring, ranges = _keys_of(client_of(DEFAULTS), topic), _keys_of(client_of(CHANGED), topic)
    coarse_ring = _keys_of(client_of(PARTITIONED), topic)
    assert ring != ranges
    assert ring != coarse_ring
    assert ranges != coarse_ring
