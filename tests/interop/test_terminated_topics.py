"""The C++ client behind the Python one at the end of a topic, and messages that non-persistent topics drop."""

from __future__ import annotations

import time
from typing import Final

import pulsar
import pytest

from tests.interop.support import Admin, numbered, publish, receive, wait_until
from tests.vectors.broker_process import BrokerProcess

SETTINGS = {"statsUpdateFrequencyInSecs": "1", "activeConsumerFailoverDelayTimeMillis": "0"}
Type = pulsar.ConsumerType
WATCHED_S: Final = 2.0
RECONNECTS_PER_S_MAX: Final = 10
"""Times per second that a client may subscribe; one or two with the broker's delay, hundreds without it."""


@pytest.mark.parametrize("kind", [Type.Exclusive, Type.Shared, Type.Failover, Type.KeyShared])
def test_client_goes_on_after_the_end_of_a_topic_without_spinning(
    broker: BrokerProcess, admin: Admin, client: pulsar.Client, topic: str, kind: pulsar.ConsumerType
) -> None:
    consumer = client.subscribe(topic, "s", kind)
    ending = client.create_producer(topic)
    publish(ending, numbered(10))
    assert sorted(receive(consumer, 10)) == sorted(numbered(10))
    began = time.monotonic()
    admin.post(f"persistent/public/default/{topic}/terminate")
    time.sleep(WATCHED_S)
    # The client subscribes again after each REACHED_END_OF_TOPIC, and the broker logs each consumer.
    joined = broker.logged(f"/{topic} s", "+ ")
    assert len(joined) <= RECONNECTS_PER_S_MAX * (time.monotonic() - began)
    with pytest.raises(pulsar.PulsarException):
        ending.send(b"after the end")
    other = client.subscribe(f"{topic}-other", "s", kind)
    publish(client.create_producer(f"{topic}-other"), numbered(100))
    assert sorted(receive(other, 100)) == sorted(numbered(100))
    consumer.close()


def test_dropped_messages_of_a_non_persistent_topic_are_counted(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    name = f"non-persistent://public/default/{topic}"
    slow = client.subscribe(name, "slow", receiver_queue_size=1)
    fast = client.subscribe(name, "fast", receiver_queue_size=100_000)
    producer = client.create_producer(name)

    def rate(subscription: str) -> object:
        # The rate is of the last second, so each look has new messages to count.
        publish(producer, numbered(5))
        return admin.subscription(name, subscription)["msgDropRate"]

    wait_until(lambda: rate("slow"), "statistics show drops")
    wait_until(
        lambda: rate("slow") and admin.metric("pulsar_subscription_msg_drop_rate", subscription="slow"),
        "metrics show drops",
    )
    assert admin.subscription(name, "fast")["msgDropRate"] == 0.0
    assert admin.stats(name)["msgDropRate"] == 0.0, "Pulsar counts drops at the producer's connection here"
    assert slow.receive(60_000).data() == b"message 0"
    assert fast.receive(60_000).data() == b"message 0"
