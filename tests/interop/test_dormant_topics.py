"""Dormant topics as official clients, administrators and metrics see them: topics like any other."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pulsar
import pytest

from tests.interop.support import Admin, Json, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {
    "dormantTopicsAfterSeconds": "1",
    "brokerDeleteInactiveTopicsFrequencySeconds": "1",
    "brokerDeleteInactiveTopicsMaxInactiveDurationSeconds": "600",
    "backlogQuotaCheckIntervalInSeconds": "1",
    "preciseTimeBasedBacklogQuotaCheck": "true",
}
Connect = Callable[[str], pulsar.Client]


def full(topic: str) -> str:
    return f"persistent://public/default/{topic}"


def row_of(admin: Admin, topic: str) -> dict[str, Json]:
    """The row of a topic in the console's list of its broker; {} without one."""
    for page in admin.get_everywhere(f"magnetar/console/topics?search={topic}"):
        assert isinstance(page, dict)
        rows = page["topics"]
        assert isinstance(rows, list)
        for row in rows:
            if isinstance(row, dict) and row["topic"] == full(topic):
                return row
    return {}


def wait_until_dormant(admin: Admin, topic: str) -> None:
    wait_until(lambda: row_of(admin, topic).get("dormant") is True, f"{topic} to fall asleep")


@pytest.fixture
def client(broker: BrokerProcess, connected: Connect) -> pulsar.Client:
    return connected(broker.addresses.pulsar)


def test_dormant_topic_is_shown_everywhere_and_wakes_for_its_clients(
    admin: Admin, client: pulsar.Client
) -> None:
    topic, consumer = "shown", client.subscribe("shown", "s", pulsar.ConsumerType.Shared)
    producer = client.create_producer(topic, batching_enabled=False)
    publish(producer, numbered(20))
    held = [consumer.receive(10_000) for _ in range(10)]
    for message in held[::2]:
        consumer.acknowledge(message)
    wait_until(lambda: admin.subscription(topic, "s")["msgBacklog"] == 15, "the acknowledgements")
    producer.close()
    consumer.close()
    wait_until_dormant(admin, topic)

    labels = {"topic": full(topic)}
    assert admin.metric("pulsar_msg_backlog", **labels) == 15
    assert admin.metric("pulsar_subscriptions_count", **labels) == 1
    assert admin.metric("pulsar_subscription_back_log", subscription="s", **labels) == 15
    assert admin.metric("pulsar_storage_size", **labels) > 0
    assert (row_of(admin, topic)["backlog"], row_of(admin, topic)["subscriptions"]) == (15, 1)
    names = admin.get("persistent/public/default")
    assert isinstance(names, list)
    assert full(topic) in names
    assert row_of(admin, topic)["dormant"] is True, "nothing of this has opened it"

    assert admin.stats(topic)["backlogSize"] != 0
    assert "dormant" not in row_of(admin, topic), "a request that needs it opens it"
    wait_until_dormant(admin, topic)
    publish(client.create_producer(topic, batching_enabled=False), [b"later"])
    again = client.subscribe(topic, "s", pulsar.ConsumerType.Shared)
    acked = {message.data() for message in held[::2]}
    assert receive(again, 16) == [body for body in numbered(20) if body not in acked] + [b"later"]


def test_connected_clients_keep_their_topic_open(admin: Admin, client: pulsar.Client) -> None:
    producer = client.create_producer("kept-by-producer")
    client.subscribe("kept-by-consumer", "s")
    client.subscribe("idle", "s").close()
    wait_until_dormant(admin, "idle")
    for topic in ("kept-by-producer", "kept-by-consumer"):
        assert "dormant" not in row_of(admin, topic)
    producer.close()


def test_delayed_message_comes_at_its_time(admin: Admin, client: pulsar.Client) -> None:
    client.subscribe("delayed", "s", pulsar.ConsumerType.Shared).close()
    producer = client.create_producer("delayed", batching_enabled=False)
    producer.send(b"late", deliver_after=timedelta(seconds=6))
    producer.send(b"soon")
    producer.close()
    wait_until_dormant(admin, "delayed")
    consumer = client.subscribe("delayed", "s", pulsar.ConsumerType.Shared)
    assert receive(consumer, 2) == [b"soon", b"late"]


def test_message_of_a_dormant_topic_is_dead_lettered_to_a_dormant_topic(
    admin: Admin, client: pulsar.Client
) -> None:
    letters = "failing-s-DLQ"
    policy = pulsar.ConsumerDeadLetterPolicy(2, dead_letter_topic=full(letters))

    def subscribe() -> pulsar.Consumer:
        return client.subscribe(
            "failing",
            "s",
            pulsar.ConsumerType.Shared,
            negative_ack_redelivery_delay_ms=100,
            dead_letter_policy=policy,
        )

    client.subscribe(letters, "letters").close()
    subscribe().close()
    producer = client.create_producer("failing", batching_enabled=False)
    publish(producer, [b"refused"])
    producer.close()
    wait_until_dormant(admin, "failing")
    wait_until_dormant(admin, letters)
    consumer = subscribe()
    counts = []
    for _ in range(3):
        message = consumer.receive(30_000)
        counts.append(message.redelivery_count())
        consumer.negative_acknowledge(message)
    assert counts == [0, 1, 2]
    wait_until(lambda: row_of(admin, letters).get("backlog") == 1, "the dead letter")
    wait_until(lambda: row_of(admin, "failing").get("backlog") == 0, "the acknowledgement of the message")
    consumer.close()
    wait_until_dormant(admin, "failing")
    assert receive(client.subscribe(letters, "letters"), 1) == [b"refused"]


def test_quota_evicts_from_a_dormant_topic(admin: Admin, client: pulsar.Client) -> None:
    client.subscribe("evicted", "s").close()
    producer = client.create_producer("evicted", batching_enabled=False)
    publish(producer, numbered(10))
    producer.close()
    wait_until_dormant(admin, "evicted")
    quota: dict[str, Json] = {"limitTime": 2, "policy": "consumer_backlog_eviction"}
    admin.post("persistent/public/default/evicted/backlogQuota?backlogQuotaType=message_age", quota)
    wait_until(lambda: row_of(admin, "evicted")["backlog"] == 0, "the eviction")


def test_unused_dormant_topic_is_deleted(admin: Admin, client: pulsar.Client) -> None:
    consumer = client.subscribe("unused", "s")
    consumer.unsubscribe()
    wait_until_dormant(admin, "unused")
    body: dict[str, Json] = {
        "inactiveTopicDeleteMode": "delete_when_no_subscriptions",
        "maxInactiveDurationSeconds": 3,
        "deleteWhileInactive": True,
    }
    admin.post("persistent/public/default/unused/inactiveTopicPolicies", body)
    wait_until(lambda: not row_of(admin, "unused"), "the deletion")
    names = admin.get("persistent/public/default")
    assert isinstance(names, list)
    assert full("unused") not in names


def test_messages_survive_a_kill_of_a_broker_with_dormant_topics(
    admin: Admin, broker: BrokerProcess, connected: Connect
) -> None:
    client = connected(broker.addresses.pulsar)
    client.subscribe("killed", "s").close()
    producer = client.create_producer("killed", batching_enabled=False)
    publish(producer, numbered(30))
    producer.close()
    wait_until_dormant(admin, "killed")
    broker.kill()
    broker.start()
    again = connected(broker.addresses.pulsar)
    assert receive(again.subscribe("killed", "s"), 30) == numbered(30)
